"""A schema converts tables to numbers, the same way every time.

It is learned from the training table and saved with the model. It holds the names and kinds of the columns, and what becomes
of each. A later table that does not match is refused, and the message names the columns.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int

from inducing.checks import did_you_mean
from inducing.data.standardise import Standardiser
from inducing.pages import Table
from inducing.tables.columns import column_from_json, column_to_json, describe_column, encode
from inducing.tables.columns.base import Codes, Column
from inducing.tables.columns.categorical import CategoricalColumn
from inducing.tables.columns.ignored import MIN_DISTINCT, IgnoredColumn, are_row_numbers
from inducing.tables.columns.levels import Effects, LevelColumn, are_many, estimate_effects
from inducing.tables.columns.text import TextColumn, to_texts
from inducing.tables.errors import TableError, TableWarning, counted, quoted

# categories that the training table did not have: by column, the number of their rows and the first few
Unseen = dict[str, tuple[int, list[str]]]
UNSEEN_EXAMPLES = 3
# without targets, more categories than this, with fewer than three rows per category on average, are free text
MANY_CATEGORIES = 50
ROW_NUMBERS = "row numbers"


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
    def of(cls, table: pd.DataFrame, impute: bool = True, targets: pd.DataFrame | None = None) -> Schema:
        """Learn the schema of a training table. Columns that are left out are reported in a `TableWarning`.

        Arguments:
            table: The training inputs: numbers, booleans, text, categories and dates.
            impute: Whether missing values, here and later, are replaced by the median, or are a category of their own.
            targets: Numbers to predict. With them, text with more than 20 levels, or with few rows for each, is encoded by
                the effect of each level on the targets. Default: all text is one-hot encoded.
        """
        return learn_schema(table, impute, targets=targets).schema

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def has_effects(self) -> bool:
        """Whether text is encoded by the effects of its levels on the targets."""
        return any(isinstance(column, LevelColumn) for column in self.columns)

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """The names of the encoded columns: "size", or "colour=red" for each category."""
        return tuple(name for column in self.columns for name in column.encoded_names)

    @property
    def left_out(self) -> dict[str, str]:
        """The columns that are not inputs, with the reasons."""
        return {column.name: column.reason for column in self.columns if isinstance(column, IgnoredColumn)}

    def encode(self, table: pd.DataFrame) -> Float[np.ndarray, "N D"]:
        """Convert a table to numbers.

        Columns are found by name. Another order and unseen categories are accepted with a `TableWarning`. Missing,
        additional and mistyped columns are refused. Columns that the schema leaves out may be there or not.
        """
        return self.encode_table(table).to_numpy()

    def encode_table(self, table: pd.DataFrame) -> EncodedTable:
        """Convert each column to codes, and warn of unseen categories."""
        encoded = self.encode_columns(table)
        warn_of_unseen(encoded.find_unseen(table))
        return encoded

    def encode_columns(self, table: pd.DataFrame) -> EncodedTable:
        """Convert each column to codes. There is no warning of unseen categories."""
        check_table(table)
        names, known = list(table.columns), self.names
        here, wanted = set(names), set(known)
        ignored = self.left_out
        missing, extra = [n for n in known if n not in here and n not in ignored], [n for n in names if n not in wanted]
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
        used = [name for name in names if name not in ignored]
        order = [name for name in known if name not in ignored]
        if moved := [name for name, other in zip(used, order, strict=True) if name != other]:
            message = f"columns {quoted(moved)} are in another order than in the training table; matched by name"
            warnings.warn(message, TableWarning, stacklevel=3)
        nothing = pd.Series(0, table.index)
        codes = (encode(column, table.get(column.name, nothing)) for column in self.columns)
        return EncodedTable(self, tuple(codes))

    def balance(self, scale: Standardiser) -> Standardiser:
        """Change a standardiser of the inputs so that each column has a total variance of 1, as a number has.

        Inputs of 0 and 1 share one scale: two rows with different categories have about the same distance whichever the
        categories are. Standardised one by one, a column of 300 categories would weigh as much as 300 numbers.
        """
        std, stop = scale.std.clone(), 0
        for column in self.columns:
            start, stop = stop, stop + len(column.encoded_names)
            if stop - start < 2:
                continue
            unit, variance = std[start:stop].clone(), torch.ones(stop - start, dtype=std.dtype)
            is_indicator = torch.arange(start, stop) >= stop - column.num_indicators
            # the standard deviation of a constant is given as 1
            variance[is_indicator] = torch.where(unit < 1, unit.square(), 0.0)[is_indicator]
            unit[is_indicator] = 1.0
            total = variance.sum().sqrt()
            std[start:stop] = unit * (total if total > 0 else 1.0)
        return scale._replace(std=std)

    def describe(self, title: str = "") -> Table:
        """A table of the columns: what each was read as, and what was done with it."""
        rows = [[column.name, *column.describe(), str(len(column.encoded_names))] for column in self.columns]
        return Table(["column", "read as", "treatment", "inputs"], rows, title, text_columns=3)

    def to_json(self) -> list[dict[str, Any]]:
        """The columns as JSON."""
        return [column_to_json(column) for column in self.columns]

    @classmethod
    def from_json(cls, columns: list[dict[str, Any]]) -> Schema:
        """The inverse of `to_json`. The columns may come from an untrusted file."""
        return cls(tuple(map(column_from_json, columns)))


@dataclass(frozen=True, eq=False)
class EncodedTable:
    """A table whose columns are numbers. Estimators accept it in place of the table, so that rows are encoded once.

    Arguments:
        schema: The schema that encoded it.
        codes: For each column one number for each row: a number, days, or the position of a category, which is -1 for an
            unseen one.
    """

    schema: Schema
    codes: tuple[Codes, ...]

    def __len__(self) -> int:
        return len(self.codes[0])

    def take(self, rows: Int[np.ndarray, " K"] | slice) -> EncodedTable:
        """Select rows by position."""
        return EncodedTable(self.schema, tuple(codes[rows] for codes in self.codes))

    def find_unseen(self, table: pd.DataFrame, before: Unseen | None = None) -> Unseen:
        """Find the categories of the table that the schema does not have, and add them to those of the chunks before."""
        found = dict(before or {})
        for column, codes in zip(self.schema.columns, self.codes, strict=True):
            if isinstance(column, TextColumn) and (codes < 0).any():
                unseen = table[column.name][codes < 0]
                texts = to_texts(unseen).where(unseen.notna(), column.fill)
                rows, examples = found.get(column.name, (0, []))
                found[column.name] = rows + len(texts), list(dict.fromkeys([*examples, *texts]))[:UNSEEN_EXAMPLES]
        return found

    def to_numpy(self) -> Float[np.ndarray, "N D"]:
        """The inputs of a model."""
        return self._concatenate([column.expand(codes) for column, codes in self._columns()])

    def to_training_numpy(
        self, targets: pd.DataFrame | None, weights: Float[np.ndarray, " N"] | None = None
    ) -> Float[np.ndarray, "N D"]:
        """The inputs of a model at the rows that it is trained on.

        The effects of levels on the target are computed without the row itself, so that the target does not leak.
        """
        return self.to_numpy() if targets is None else self.learn_effects(targets, weights)[1]

    def learn_effects(
        self, targets: pd.DataFrame, weights: Float[np.ndarray, " N"] | None = None
    ) -> tuple[Schema, Float[np.ndarray, "N D"]]:
        """Learn the effects of all levels on the targets of training rows.

        Return the schema with these effects, and the inputs of a model at the training rows, as in `to_training_numpy`.
        """
        columns, parts = list(self.schema.columns), [column.expand(codes) for column, codes in self._columns()]
        where = [(k, column) for k, column in enumerate(columns) if isinstance(column, LevelColumn)]
        for _, column in where:
            if (known := len(column.targets)) != (given := targets.shape[1]):
                raise ValueError(f"the schema has effects on {known} targets, but {given} are given. Learn it again.")
        found = self._estimate_effects(targets.to_numpy(float), weights) if where else []
        for (k, column), effects in zip(where, found, strict=True):
            # the training rows may lack some levels, and have unseen ones
            levels = np.zeros((len(column.categories), targets.shape[1]))
            levels[: len(effects.levels)] = effects.levels[: len(levels)]
            columns[k] = replace(column, effects=tuple(map(tuple, levels.tolist())))
            parts[k] = effects.rows
        return Schema(tuple(columns)), self._concatenate(parts)

    def with_effects_of(self, schema: Schema) -> EncodedTable:
        """The same rows under a schema that differs only in the effects of levels."""
        if [*map(_without_effects, self.schema.columns)] != [*map(_without_effects, schema.columns)]:
            raise ValueError("the table was encoded by another schema than that of the estimator")
        return EncodedTable(schema, self.codes)

    def _columns(self) -> Sequence[tuple[Column, Codes]]:
        return list(zip(self.schema.columns, self.codes, strict=True))

    def _estimate_effects(self, y: Float[np.ndarray, "N O"], weights: Float[np.ndarray, " N"] | None) -> list[Effects]:
        """The effects of each column with levels, in training rows.

        Equal rows are merged into one with a weight, so that all of them are in the same fold.
        """
        table = np.column_stack([*self.codes, y]).astype(float)
        # missing values are equal to each other
        table[np.isnan(table)] = np.inf
        _, first, group = np.unique(table, axis=0, return_index=True, return_inverse=True)
        counts = np.bincount(group.reshape(-1), weights)
        distinct = self.take(first)
        plain = [column.expand(codes) for column, codes in distinct._columns() if not isinstance(column, LevelColumn)]
        # all unseen levels are one
        levels = [
            np.where(codes < 0, len(column.categories), codes)
            for column, codes in distinct._columns()
            if isinstance(column, LevelColumn)
        ]
        inputs = self._concatenate([*plain, np.zeros((len(first), 0))])
        found = estimate_effects(inputs, levels, y[first], counts)
        return [effects._replace(rows=effects.rows[group.reshape(-1)]) for effects in found]

    @staticmethod
    def _concatenate(parts: Sequence[np.ndarray]) -> Float[np.ndarray, "N D"]:
        return np.concatenate(parts, axis=1, dtype=float)


def learn_schema(
    table: pd.DataFrame,
    impute: bool = True,
    train: Int[np.ndarray, " T"] | slice = slice(None),
    targets: pd.DataFrame | None = None,
    include: Collection[str] = (),
    num_rows: int | None = None,
    weights: Float[np.ndarray, " T"] | None = None,
) -> EncodedTable:
    """Learn a schema from the training rows of a table, and encode all rows.

    All columns that cannot be used are reported in one error.

    Arguments:
        table: The inputs.
        impute: Whether missing values are accepted.
        train: Positions of the training rows.
        targets: Numbers to predict in the training rows, for text with many levels.
        include: Columns to use even if they look like row numbers.
        num_rows: Number of rows of which the table is a sample. Default: it is the whole table.
        weights: Weights of the training rows, for text with many levels. Default: 1.
    """
    check_table(table)
    if table.empty:
        size = f"{counted(len(table), 'row')} and {counted(table.shape[1], 'column')}"
        raise TableError(f"the table is empty: it has {size}")
    found, errors = [], list[TableError]()
    for name in table.columns:
        try:
            column = _learn_column(table[name], impute, train, targets, include, num_rows)
            found.append((column, encode(column, table[name])))
        except TableError as error:
            errors.append(error)
    if errors:
        raise TableError.combine(errors)
    columns, codes = zip(*found, strict=True)
    ignored = [column for column in columns if isinstance(column, IgnoredColumn)]
    if len(ignored) == len(columns):
        if numbered := [
            column.name for column in ignored if column.reason == ROW_NUMBERS and column.name not in include
        ]:
            return learn_schema(table, impute, train, targets, numbered, num_rows, weights)
        raise TableError("no column can be used: " + "; ".join(f"{each.name!r} ({each.reason})" for each in ignored))
    encoded = EncodedTable(Schema(columns), codes)
    if targets is not None and encoded.schema.has_effects:
        encoded = EncodedTable(encoded.take(train).learn_effects(targets, weights)[0], codes)
    _warn_of_uninformative(encoded.take(train))
    return encoded


def _learn_column(
    values: pd.Series,
    impute: bool,
    train: Int[np.ndarray, " T"] | slice,
    targets: pd.DataFrame | None,
    include: Collection[str],
    num_rows: int | None,
) -> Column:
    """Describe a column by its training rows. Whether it identifies rows is judged by all rows."""
    name, known = str(values.name), values.iloc[train]
    if known.isna().all():
        return IgnoredColumn(name, "no values")
    column = describe_column(known, impute)
    codes = column.to_codes(known)
    # missing values are NaN
    if len(codes) > 1 and (codes == codes[0]).all():
        return IgnoredColumn(name, "constant")
    if are_row_numbers(values, num_rows) and name not in include:
        return IgnoredColumn(name, ROW_NUMBERS)
    if not isinstance(column, CategoricalColumn) or not are_many(number := len(column.categories), len(known)):
        return column
    if len(values) >= MIN_DISTINCT and values.is_unique:
        return IgnoredColumn(name, "each row has a text of its own")
    free_text = IgnoredColumn(name, f"free text: {number} different texts in {len(known)} rows")
    if targets is None:
        return free_text if number > MANY_CATEGORIES and 3 * number > len(known) else column
    return LevelColumn.learn(known, impute, tuple(map(str, targets.columns))) or free_text


def _warn_of_uninformative(encoded: EncodedTable) -> None:
    """Warn of columns that are left out, and of duplicate columns."""
    ignored, copies, first = [], [], dict[int, str]()
    for column, codes in zip(encoded.schema.columns, encoded.codes, strict=True):
        if isinstance(column, IgnoredColumn):
            ignored.append(f"{column.name!r} ({column.reason})")
        elif (original := first.setdefault(hash(codes.tobytes()), column.name)) != column.name:
            copies.append(f"{column.name} = {original}")
    if ignored:
        rest = f" and {len(ignored) - 8} more" if len(ignored) > 8 else ""
        warnings.warn(f"columns that are left out: {', '.join(ignored[:8])}{rest}", TableWarning, stacklevel=4)
    if copies:
        warnings.warn(f"duplicate columns are not informative: {quoted(copies)}", TableWarning, stacklevel=4)


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


def _without_effects(column: Column) -> dict[str, Any]:
    """What determines the codes of a column."""
    return {"kind": column.kind} | {name: value for name, value in vars(column).items() if name != "effects"}
