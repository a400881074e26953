"""Columns that are not inputs, because they cannot tell anything about other rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from pandas.api import types

from inducing.tables.columns.base import Column

# a column of fewer rows may have distinct values by chance
MIN_DISTINCT = 20


@dataclass(frozen=True)
class IgnoredColumn(Column):
    """A column that is left out. Later tables may have it or not.

    Arguments:
        name: Its name.
        reason: Why it is left out.
    """

    reason: str
    kind: ClassVar[str] = "ignored"

    @property
    def encoded_names(self) -> list[str]:
        return []

    @property
    def num_indicators(self) -> int:
        return 0

    @property
    def refuses_missing(self) -> bool:
        return False

    def to_codes(self, values: pd.Series) -> Int[np.ndarray, " N"]:
        return np.zeros(len(values), dtype=np.int64)

    def expand(self, codes: Int[np.ndarray, " N"]) -> Float[np.ndarray, "N 0"]:
        return np.zeros((len(codes), 0))

    def describe(self) -> tuple[str, str]:
        return "left out", self.reason


def are_row_numbers(values: pd.Series, num_rows: int | None = None) -> bool:
    """Whether values are consecutive whole numbers, each once, in any order; or a sample of so many such numbers."""
    if not types.is_integer_dtype(values.dtype) or len(values) < MIN_DISTINCT or values.isna().any():
        return False
    numbers = values.to_numpy()
    return int(numbers.max()) - int(numbers.min()) < (num_rows or len(values)) and values.is_unique
