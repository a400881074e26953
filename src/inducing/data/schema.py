"""A schema turns tables into numbers, the same way every time.

It is made from the training table. It knows the columns by name and kind, the categories, and what stands for missing
values, and it is kept with the model: a later table that does not fit gets a message that names the columns.
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from inducing.data.columns import (
    Column,
    TableError,
    TableWarning,
    describe,
    encode,
    explain_unseen,
    fingerprint,
    quoted,
)


@dataclass(frozen=True)
class Schema:
    """The columns of a table and how they become numbers: an immutable value that is kept as JSON.

    Arguments:
        columns: The columns in the order of the training table.

    Example:
        >>> import pandas as pd
        >>> from inducing.data.tables import Schema
        >>> schema = Schema.of(pd.DataFrame({"size": [1.0, 2.5, 2.0], "colour": ["red", "blue", "red"]}))
        >>> schema.encoded_names
        ('size', 'colour=blue', 'colour=red')
        >>> schema.encode(pd.DataFrame({"size": [3.0], "colour": ["red"]})).tolist()
        [[3.0, 0.0, 1.0]]
    """

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, table: pd.DataFrame, impute: bool = False) -> Schema:
        """Describe a training table; constant and duplicate columns are reported in a `TableWarning`.

        Arguments:
            table: The training inputs. Numbers and booleans are numeric; text and categories are categorical.
            impute: Whether missing values, here and later, are replaced by the median or the most frequent category.
        """
        check_table(table)
        if table.empty:
            raise TableError(f"the table is empty: it has {len(table)} rows and {table.shape[1]} columns")
        described = _describe_all(table, impute)
        constant, copies = [], []
        seen: dict[bytes, str] = {}
        for column, values in described:
            if (values == values[0]).all():
                constant.append(column.name)
            elif (original := seen.setdefault(fingerprint(values), column.name)) != column.name:
                copies.append(f"{column.name} = {original}")
        if constant:
            warnings.warn(f"constant columns tell nothing: {quoted(constant)}", TableWarning, stacklevel=2)
        if copies:
            warnings.warn(f"duplicate columns tell nothing new: {quoted(copies)}", TableWarning, stacklevel=2)
        return cls(tuple(column for column, _ in described))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """The names of the encoded columns: "size", or "colour=red" for each category."""
        parts = ([f"{c.name}={value}" for value in c.categories] or [c.name] for c in self.columns)
        return tuple(name for part in parts for name in part)

    def encode(self, table: pd.DataFrame) -> Float[np.ndarray, "N D"]:
        """Turn a table into numbers: numeric columns as they are, categories one-hot, all zero for one never seen.

        The columns are found by name. Another order and categories never seen are accepted, with a `TableWarning`; missing,
        additional and mistyped columns are refused.
        """
        check_table(table)
        names, known = list(table.columns), self.names
        here, wanted = set(names), set(known)
        missing, extra = [n for n in known if n not in here], [n for n in names if n not in wanted]
        if missing or extra:
            problems = [f"{quoted(missing)} missing"] * bool(missing) + [f"{quoted(extra)} too many"] * bool(extra)
            hint = "; `inducing predict --exclude` leaves columns out" if extra else ""
            raise TableError(
                f"the columns are not those of the training table: {', '.join(problems)}. It had {quoted(known)}{hint}"
            )
        if names != list(known):
            moved = [name for name, other in zip(names, known, strict=True) if name != other]
            warnings.warn(
                f"columns {quoted(moved)} are in another order than in the training table; they were taken by name",
                TableWarning,
                stacklevel=2,
            )
        encoded = np.zeros((len(table), sum(len(column.categories) or 1 for column in self.columns)))
        first = 0
        for column in self.columns:
            values = encode(column, table[column.name])
            if column.kind == "numeric":
                encoded[:, first] = values
            else:
                rows = np.flatnonzero(values >= 0)
                encoded[rows, first + values[rows]] = 1.0
                if len(rows) < len(values):
                    warnings.warn(explain_unseen(column.name, len(values) - len(rows)), TableWarning, stacklevel=2)
            first += len(column.categories) or 1
        return encoded

    def to_json(self) -> list[dict[str, Any]]:
        """The columns as JSON."""
        return [asdict(column) | {"categories": list(column.categories)} for column in self.columns]

    @classmethod
    def from_json(cls, columns: list[dict[str, Any]]) -> Schema:
        """The inverse of `to_json`."""
        return cls(tuple(Column(**{**column, "categories": tuple(column["categories"])}) for column in columns))


def _describe_all(table: pd.DataFrame, impute: bool) -> list[tuple[Column, np.ndarray]]:
    """Describe and encode all columns, and name all that cannot be used at once."""
    described, problems = [], []
    for name in table.columns:
        try:
            column = describe(table[name], impute)
            described.append((column, encode(column, table[name])))
        except TableError as error:
            problems.append(str(error))
    if problems:
        number = f"{len(problems)} columns cannot be used. " if len(problems) > 1 else ""
        raise TableError(number + ". ".join(problems))
    return described


def check_table(table: object) -> None:
    """Ask for a table whose columns have names, each another."""
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"a table with named columns is needed, a pandas.DataFrame, got {type(table).__name__}")
    odd = [name for name in table.columns if not isinstance(name, str)]
    if odd:
        raise TableError(
            f"columns must have names, but {odd[0]!r} is not text; use table.columns = [...], "
            "or table.to_numpy() where all columns are numbers"
        )
    twice = table.columns[table.columns.duplicated()].unique()
    if len(twice):
        raise TableError(f"several columns have the name {quoted(twice)}; rename them")
