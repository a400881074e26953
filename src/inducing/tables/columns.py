"""The kinds of columns, and how each becomes numbers.

Each kind is a class with the same methods: `learn` describes the training values, `to_codes` gives one number for each row,
and `expand` gives the inputs of a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from pandas.api import types

from inducing.saving.values import take
from inducing.tables.errors import TableError, check_complete, quoted

Kind = Literal["numeric", "categorical"]
# more categories than this, with fewer than three rows per category on average, look like names or free text
MANY_CATEGORIES = 50
DATE = r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([T ]\d{1,2}:\d{2}.*)?\s*"
# names that pandas.api.types.infer_dtype gives
TIMES = ("date", "datetime", "datetime64", "period", "time", "timedelta", "timedelta64")


@dataclass(frozen=True)
class NumericColumn:
    """Numbers and booleans.

    Arguments:
        name: Its name.
        fill: Replaces missing values: the median of the training table. Default: missing values are refused.
    """

    name: str
    fill: float | None = None
    kind: ClassVar[Kind] = "numeric"
    categories: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def learn(cls, values: pd.Series, impute: bool) -> NumericColumn:
        """Describe a column of the training table."""
        name = str(values.name)
        return cls(name, float(np.median(_to_numbers(name, values.dropna()))) if impute else None)

    @property
    def encoded_names(self) -> list[str]:
        """The names of the inputs of a model."""
        return [self.name]

    def to_codes(self, values: pd.Series) -> Float[np.ndarray, " N"]:
        """The numbers."""
        numbers = _to_numbers(self.name, values)
        if (infinite := np.isinf(numbers)).any():
            row = values.index[infinite.argmax()]
            raise TableError(f"column {self.name!r} has infinite values (first in row {row})", "Remove those rows.")
        return numbers if self.fill is None else np.where(np.isnan(numbers), self.fill, numbers)

    def expand(self, codes: Float[np.ndarray, " N"]) -> Float[np.ndarray, "N 1"]:
        """The numbers as a column."""
        return codes[:, None]


@dataclass(frozen=True)
class CategoricalColumn:
    """Text and other categories.

    Arguments:
        name: Its name.
        categories: The sorted categories of the training table. Each becomes a column of 0 and 1.
        fill: Replaces missing values: the most frequent category. Default: missing values are refused.
    """

    name: str
    categories: tuple[str, ...]
    fill: str | None = None
    kind: ClassVar[Kind] = "categorical"

    @classmethod
    def learn(cls, values: pd.Series, impute: bool) -> CategoricalColumn:
        """Describe a column of the training table. Free text is refused."""
        name, texts = str(values.name), to_texts(values.dropna())
        counts = texts.value_counts().sort_index()
        if len(counts) > MANY_CATEGORIES and 3 * len(counts) > len(values):
            is_text = pd.to_numeric(texts, errors="coerce").isna()
            if is_text.mean() < 0.5:
                text, row = texts[is_text].iloc[0], texts[is_text].index[0]
                problem = f"column {name!r} holds numbers and text, e.g. {text!r} in row {row}"
                raise TableError(problem, "Replace the text by numbers, or make these cells empty and {impute}.")
            size = f"{len(counts)} categories in {len(values)} rows"
            problem = f"column {name!r} looks like free text: it has {size}"
            raise TableError(problem, "Exclude it{exclude}, or group its values.")
        return cls(name, tuple(counts.index), str(counts.idxmax()) if impute else None)

    @property
    def encoded_names(self) -> list[str]:
        """The names of the inputs of a model."""
        return [f"{self.name}={category}" for category in self.categories]

    def to_codes(self, values: pd.Series) -> Int[np.ndarray, " N"]:
        """The positions of the categories: -1 for an unseen category."""
        is_number = types.is_numeric_dtype(values.dtype) and values.notna().any()
        if types.infer_dtype(values) in TIMES or (is_number and not self.has_numeric_category):
            raise self.wrong_type(str(values.dtype))
        texts = to_texts(values).where(values.notna(), self.fill)
        return pd.Index(self.categories, dtype=object).get_indexer(texts)

    def expand(self, codes: Int[np.ndarray, " N"]) -> Bool[np.ndarray, "N C"]:
        """One column for each category."""
        return codes[:, None] == np.arange(len(self.categories))

    @property
    def has_numeric_category(self) -> bool:
        """Whether a category looks like a number, so that a CSV file with few rows may show numbers only."""
        return bool(pd.to_numeric(pd.Series(self.categories, dtype=object), errors="coerce").notna().any())

    def wrong_type(self, found: str) -> TableError:
        """The error for numbers or dates in this column."""
        known = quoted(self.categories)
        return TableError(f"column {self.name!r} is {found}, but was text in the training table: {known}")


Column = NumericColumn | CategoricalColumn


def describe(values: pd.Series, impute: bool) -> Column:
    """Describe a column of the training table.

    Numbers and booleans are numeric, text and other pandas categories are categorical. Other types are refused.
    """
    name, present = str(values.name), values.dropna()
    if present.empty:
        raise TableError(f"column {name!r} has no values", "Exclude it{exclude}.")
    inferred = types.infer_dtype(present)
    is_text = inferred == "string"
    if inferred in TIMES or (is_text and present.astype(str).str.fullmatch(DATE).all()):
        example = f"pandas.to_datetime(table[{name!r}]).dt.month"
        advice = f"Convert it to numbers, e.g. {example}, or exclude it{{exclude}}."
        raise TableError(f"column {name!r} holds dates", advice)
    if is_text or (inferred == "categorical" and not types.is_bool_dtype(present.dtype)):
        return CategoricalColumn.learn(values, impute)
    numbers = int | float | np.number | np.bool_
    is_numeric = types.is_numeric_dtype(present.dtype) or all(isinstance(value, numbers) for value in present)
    if is_numeric and inferred != "complex":
        return NumericColumn.learn(values, impute)
    found = ", ".join(sorted({type(value).__name__ for value in present}))
    advice = "Convert them to numbers or text, or exclude it{exclude}."
    raise TableError(f"column {name!r} holds values of type {found}", advice)


def column_from_json(entry: dict[str, Any]) -> Column:
    """Make a column from an entry of a file, which may not be trusted."""
    hints = {"name": str, "kind": Kind, "categories": list[str], "fill": float | str | None}
    name, kind, categories, fill = take(entry, "a column of the schema", **hints)
    if kind == "numeric" and not categories and not isinstance(fill, str):
        return NumericColumn(name, fill)
    if kind == "categorical" and categories and (fill is None or isinstance(fill, str)):
        return CategoricalColumn(name, tuple(categories), fill)
    found = f"the categories {quoted(categories)} and be filled with {fill!r:.80}"
    raise ValueError(f"the {kind} column {name!r} cannot have {found}")


def encode(column: Column, values: pd.Series) -> Float[np.ndarray, " N"] | Int[np.ndarray, " N"]:
    """Convert values to one number for each row. Missing values are refused unless they are filled."""
    if column.fill is None:
        check_complete(values, f"column {column.name!r}", "Remove those rows, or {impute}.")
    return column.to_codes(values)


def to_texts(values: pd.Series) -> pd.Series:
    """Categories as text. Whole numbers give the same text as integers and as floats."""
    texts = [f"{value:.15g}" if isinstance(value, float) else str(value) for value in values.astype(object)]
    return pd.Series(texts, values.index, dtype=object)


def _to_numbers(name: str, values: pd.Series) -> Float[np.ndarray, " N"]:
    if isinstance(values.dtype, pd.CategoricalDtype) and types.is_bool_dtype(values.dtype):
        values = values.astype("boolean")
    if isinstance(values.dtype, pd.CategoricalDtype) or types.infer_dtype(values) in TIMES:
        raise TableError(f"column {name!r} is {values.dtype}, but was numeric in the training table")
    numbers = np.array(pd.to_numeric(values, errors="coerce").to_numpy(dtype=float, na_value=np.nan))
    wrong = np.isnan(numbers) & ~values.isna().to_numpy()
    if wrong.any():
        row, text = values.index[wrong.argmax()], str(values.iloc[wrong.argmax()])
        raise TableError(f"column {name!r} was numeric in the training table, but row {row} holds {text!r}")
    return numbers
