"""A schema converts tables to numbers, the same way every time.

It is learned from the training table and saved with the model. It holds the names and kinds of the columns, the categories,
and the values that replace missing ones. A later table that does not match is refused, and the message names the columns.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from inducing.checks import did_you_mean
from inducing.tables.columns import Column, column_from_json, describe, encode, to_texts
from inducing.tables.errors import TableError, TableWarning, counted, quoted

# categories that the training table did not have: by column, the number of their rows and the first few
Unseen = dict[str, tuple[int, list[str]]]
UNSEEN_EXAMPLES = 3


@dataclass(frozen=True)
class Schema:
    """The columns of a table and how they become numbers: an immutable value that is saved as JSON.

    Arguments:
        columns: The columns in the order of the training table.

    Example:
        >>> import inducing, pandas as pd
        >>> table = pd.DataFrame({"size": [1.0, 2.5, 2.0], "colour": ["red", "blue", "red"]})
        >>> schema = inducing.Schema.of(table)
        >>> schema.encoded_names
        ('size', 'colour=blue', 'colour=red')
        >>> schema.encode(pd.DataFrame({"size": [3.0], "colour": ["red"]})).tolist()
        [[3.0, 0.0, 1.0]]
    """

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        if not self.columns or len(set(self.names)) < len(self.columns):
            raise ValueError(f"a schema needs columns with different names, got {quoted(self.names)}")

    @classmethod
    def of(cls, table: pd.DataFrame, impute: bool = False) -> Schema:
        """Learn the schema of a training table. Constant and duplicate columns are reported in a `TableWarning`.

        Arguments:
            table: The training inputs. Numbers and booleans are numeric; text and categories are categorical.
            impute: Whether missing values, here and later, are replaced by the median or the most frequent category.
        """
        return learn_schema(table, impute).schema

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """The names of the encoded columns: "size", or "colour=red" for each category."""
        return tuple(name for column in self.columns for name in column.encoded_names)

    def encode(self, table: pd.DataFrame) -> Float[np.ndarray, "N D"]:
        """Convert a table to numbers: numeric columns unchanged, categories one-hot, all zero for unseen categories.

        Columns are found by name. Another order and unseen categories are accepted with a `TableWarning`. Missing,
        additional and mistyped columns are refused.
        """
        encoded = self.encode_columns(table)
        warn_of_unseen(encoded.find_unseen(table))
        return encoded.to_numpy()

    def encode_columns(self, table: pd.DataFrame) -> EncodedTable:
        """Convert each column to numbers or to positions of categories. There is no warning of unseen categories."""
        check_table(table)
        names, known = list(table.columns), self.names
        here, wanted = set(names), set(known)
        missing, extra = [n for n in known if n not in here], [n for n in names if n not in wanted]
        if missing or extra:
            parts = [f"{quoted(missing)} missing"] * bool(missing) + [f"{quoted(extra)} not expected"] * bool(extra)
            similar = "".join(did_you_mean(name, missing) for name in extra[:8])
            # a missing column may be there under another name, and must not be excluded
            unexpected = "the columns that are not expected"
            remedy = f"Rename or remove {unexpected}." if missing else f"Remove {unexpected}{{exclude}}."
            raise TableError(
                f"the columns differ from the training table: {', '.join(parts)}{similar}",
                f"It had {quoted(known)}." + f" {remedy}" * bool(extra),
            )
        if moved := [name for name, other in zip(names, known, strict=True) if name != other]:
            message = f"columns {quoted(moved)} are in another order than in the training table; matched by name"
            warnings.warn(message, TableWarning, stacklevel=3)
        return EncodedTable(self, tuple(encode(column, table[column.name]) for column in self.columns))

    def to_json(self) -> list[dict[str, Any]]:
        """The columns as JSON."""
        return [
            {"name": column.name, "kind": column.kind, "categories": [*column.categories], "fill": column.fill}
            for column in self.columns
        ]

    @classmethod
    def from_json(cls, columns: list[dict[str, Any]]) -> Schema:
        """The inverse of `to_json`. The columns may come from an untrusted file."""
        return cls(tuple(map(column_from_json, columns)))


@dataclass(frozen=True, eq=False)
class EncodedTable:
    """A table whose columns are numbers. Estimators accept it in place of the table, so that rows are encoded once.

    Arguments:
        schema: The schema that encoded it.
        codes: For each column its numbers, or the positions of its categories: -1 for an unseen category.
    """

    schema: Schema
    codes: tuple[Float[np.ndarray, " N"] | Int[np.ndarray, " N"], ...]

    def __len__(self) -> int:
        return len(self.codes[0])

    def take(self, rows: Int[np.ndarray, " K"] | slice) -> EncodedTable:
        """Select rows by position."""
        return EncodedTable(self.schema, tuple(codes[rows] for codes in self.codes))

    def find_unseen(self, table: pd.DataFrame, before: Unseen | None = None) -> Unseen:
        """Find the categories of the table that the schema does not have, and add them to those of the chunks before."""
        found = dict(before or {})
        for column, codes in zip(self.schema.columns, self.codes, strict=True):
            if column.kind == "categorical" and (codes < 0).any():
                texts = to_texts(table[column.name][codes < 0])
                rows, examples = found.get(column.name, (0, []))
                found[column.name] = rows + len(texts), list(dict.fromkeys([*examples, *texts]))[:UNSEEN_EXAMPLES]
        return found

    def to_numpy(self) -> Float[np.ndarray, "N D"]:
        """The numbers, and one column of 0 and 1 for each category."""
        parts = [column.expand(codes) for column, codes in zip(self.schema.columns, self.codes, strict=True)]
        return np.concatenate(parts, axis=1, dtype=float)


def learn_schema(
    table: pd.DataFrame, impute: bool = False, train: Int[np.ndarray, " T"] | slice = slice(None)
) -> EncodedTable:
    """Learn a schema from the training rows of a table, and encode all rows.

    All columns that cannot be used are reported in one error.
    """
    check_table(table)
    if table.empty:
        columns = counted(table.shape[1], "column")
        raise TableError(f"the table is empty: it has {counted(len(table), 'row')} and {columns}")
    found, errors = [], []
    for name in table.columns:
        try:
            column = describe(table[name].iloc[train], impute)
            found.append((column, encode(column, table[name])))
        except TableError as error:
            errors.append(error)
    if errors:
        raise TableError.combine(errors)
    columns, codes = zip(*found, strict=True)
    encoded = EncodedTable(Schema(columns), codes)
    _warn_of_uninformative(encoded.take(train))
    return encoded


def _warn_of_uninformative(encoded: EncodedTable) -> None:
    """Warn of constant and of duplicate columns."""
    constant, copies, first = [], [], dict[int, str]()
    for name, codes in zip(encoded.schema.names, encoded.codes, strict=True):
        if (codes == codes[0]).all():
            constant.append(name)
        elif (original := first.setdefault(hash(codes.tobytes()), name)) != name:
            copies.append(f"{name} = {original}")
    for kind, names in (("constant", constant), ("duplicate", copies)):
        if names:
            warnings.warn(f"{kind} columns are not informative: {quoted(names)}", TableWarning, stacklevel=4)


def warn_of_unseen(unseen: Unseen) -> None:
    """Warn of unseen categories."""
    for name, (rows, examples) in unseen.items():
        found = f"{counted(rows, 'row')} with categories that the training table did not have, e.g. {quoted(examples)}"
        warnings.warn(f"column {name!r}: {found}; treated as none of the known ones", TableWarning, stacklevel=4)


def check_table(table: object) -> None:
    """Check that a table has columns with distinct names."""
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"expected a table with named columns, a pandas.DataFrame, got {type(table).__name__}")
    odd = [name for name in table.columns if not isinstance(name, str)]
    if odd:
        raise TableError(f"column names must be text, got {odd[0]!r}", "Set table.columns, or use table.to_numpy().")
    twice = table.columns[table.columns.duplicated()].unique()
    if len(twice):
        raise TableError(f"several columns have the name {quoted(twice)}", "Rename them.")
