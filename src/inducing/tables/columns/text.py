"""Columns of text: what one-hot encoded columns and those with many levels have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Int
from pandas.api import types

from inducing.tables.columns.base import TIMES, Column
from inducing.tables.errors import TableError, quoted

# the category of missing values
MISSING = "(missing)"


@dataclass(frozen=True)
class TextColumn(Column):
    """Text and other categories.

    Arguments:
        name: Its name.
        categories: The sorted categories of the training table.
        fill: The category of missing values. None: missing values are refused.
        missing: Number of missing values in the training table.
    """

    categories: tuple[str, ...]
    fill: str | None = None
    missing: int = 0

    def __post_init__(self) -> None:
        if not self.categories or len(set(self.categories)) < len(self.categories) or self.missing < 0:
            found = f"{quoted(self.categories)} and {self.missing} missing values"
            raise ValueError(f"the column {self.name!r} cannot have the categories {found}")

    @property
    def refuses_missing(self) -> bool:
        return self.fill is None

    def to_codes(self, values: pd.Series) -> Int[np.ndarray, " N"]:
        """The positions of the categories: -1 for an unseen category."""
        is_number = types.is_numeric_dtype(values.dtype) and values.notna().any()
        if types.infer_dtype(values) in TIMES or (is_number and not self.has_numeric_category):
            raise self.wrong_type(str(values.dtype))
        texts = to_texts(values).where(values.notna(), self.fill)
        return pd.Index(self.categories, dtype=object).get_indexer(texts)

    @property
    def has_numeric_category(self) -> bool:
        """Whether a category looks like a number, so that a CSV file with few rows may show numbers only."""
        return bool(pd.to_numeric(pd.Series(self.categories, dtype=object), errors="coerce").notna().any())

    def wrong_type(self, found: str) -> TableError:
        """The error for numbers or dates in this column."""
        known = quoted(self.categories)
        return TableError(f"column {self.name!r} is {found}, but was text in the training table: {known}")


def count_categories(values: pd.Series, impute: bool) -> pd.Series:
    """The number of rows of each category, in the order of their names. Missing values are a category if imputed."""
    texts = to_texts(values)
    texts = texts.where(values.notna(), MISSING) if impute else texts[values.notna()]
    return texts.value_counts().sort_index()


def to_texts(values: pd.Series) -> pd.Series:
    """Categories as text. Whole numbers give the same text as integers and as floats."""
    texts = [f"{value:.15g}" if isinstance(value, float) else str(value) for value in values.astype(object)]
    return pd.Series(texts, values.index, dtype=object)
