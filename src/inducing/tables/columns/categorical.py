"""Columns of text with few categories: one input of 0 and 1 for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int

from inducing.tables.columns.base import describe_missing
from inducing.tables.columns.text import MISSING, TextColumn, count_categories


@dataclass(frozen=True)
class CategoricalColumn(TextColumn):
    """Text and other categories, one-hot encoded. Unseen categories are zero everywhere."""

    kind: ClassVar[str] = "categorical"

    @classmethod
    def learn(cls, values: pd.Series, impute: bool) -> CategoricalColumn:
        """Describe a column of the training table."""
        counts = count_categories(values, impute)
        missing = int(values.isna().sum()) if impute else 0
        return cls(str(values.name), tuple(counts.index), MISSING if impute else None, missing)

    @property
    def encoded_names(self) -> list[str]:
        return [f"{self.name}={category}" for category in self.categories]

    @property
    def num_indicators(self) -> int:
        return len(self.categories)

    def expand(self, codes: Int[np.ndarray, " N"]) -> Bool[np.ndarray, "N C"]:
        return codes[:, None] == np.arange(len(self.categories))

    def describe(self) -> tuple[str, str]:
        number = len(self.categories) - (self.missing > 0)
        return f"text, {number} categories", "one-hot" + describe_missing(self.missing, "a category")
