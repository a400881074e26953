"""Columns of numbers and booleans."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float
from pandas.api import types

from inducing.tables.columns.base import DURATIONS, TIMES, Column, describe_missing
from inducing.tables.columns.numbers_in_text import Comma, parse_numbers
from inducing.tables.errors import TableError, quoted


@dataclass(frozen=True)
class NumericColumn(Column):
    """Numbers, booleans, and durations in days.

    Arguments:
        name: Its name.
        fill: Replaces missing values: the median of the training table. None: missing values are refused.
        missing: Number of missing values in the training table. If there are any, another input marks them.
        unit: The unit that is written with the numbers, such as "kg", "$" or "%".
        comma: Whether a comma in a text separates thousands or is the decimal point.
    """

    fill: float | None = None
    missing: int = 0
    unit: str = ""
    comma: Comma = "thousands"
    kind: ClassVar[str] = "numeric"

    def __post_init__(self) -> None:
        if self.missing < 0 or (self.fill is None and self.missing) or not math.isfinite(self.fill or 0.0):
            raise ValueError(
                f"the column {self.name!r} cannot have {self.missing} missing values filled with {self.fill}"
            )

    @classmethod
    def learn(cls, values: pd.Series, impute: bool, unit: str = "", comma: Comma = "thousands") -> NumericColumn:
        """Describe a column of the training table."""
        plain = cls(str(values.name), None, 0, unit, comma)
        numbers = plain.to_codes(values)
        missing = int(np.isnan(numbers).sum())
        return cls(plain.name, float(np.nanmedian(numbers)), missing, unit, comma) if impute else plain

    @property
    def encoded_names(self) -> list[str]:
        return [self.name, f"{self.name} is missing"][: 1 + self.num_indicators]

    @property
    def num_indicators(self) -> int:
        return int(self.missing > 0)

    @property
    def refuses_missing(self) -> bool:
        return self.fill is None

    def to_codes(self, values: pd.Series) -> Float[np.ndarray, " N"]:
        """The numbers, with NaN for missing values."""
        numbers = self._to_numbers(values)
        if (infinite := np.isinf(numbers)).any():
            row = values.index[infinite.argmax()]
            raise TableError(f"column {self.name!r} has infinite values (first in row {row})", "Remove those rows.")
        return numbers

    def expand(self, codes: Float[np.ndarray, " N"]) -> Float[np.ndarray, "N E"]:
        missing = np.isnan(codes)
        filled = codes if self.fill is None else np.where(missing, self.fill, codes)
        return np.stack([filled, missing][: 1 + self.num_indicators], 1)

    def describe(self) -> tuple[str, str]:
        read_as = f"number in {self.unit}" if self.unit else "number"
        return read_as, "unchanged" + describe_missing(self.missing, f"median {self.fill:.4g}, and an indicator")

    def _to_numbers(self, values: pd.Series) -> Float[np.ndarray, " N"]:
        if isinstance(values.dtype, pd.CategoricalDtype) and types.is_bool_dtype(values.dtype):
            values = values.astype("boolean")
        inferred = types.infer_dtype(values)
        if inferred in DURATIONS:
            return (pd.to_timedelta(values) / pd.Timedelta(days=1)).to_numpy(float)
        if isinstance(values.dtype, pd.CategoricalDtype) or inferred in TIMES:
            raise TableError(f"column {self.name!r} is {values.dtype}, but was numeric in the training table")
        numbers = np.array(pd.to_numeric(values, errors="coerce").to_numpy(dtype=float, na_value=np.nan))
        wrong = np.isnan(numbers) & ~values.isna().to_numpy()
        if wrong.any():
            numbers[wrong] = self._parse(values[wrong])
        return numbers

    def _parse(self, values: pd.Series) -> Float[np.ndarray, " K"]:
        parsed = parse_numbers(values, self.comma)
        other = [unit not in ("", self.unit) for unit in parsed.units]
        for wrong, problem in (
            (np.array(other), f"in {quoted([self.unit])}"),
            (~np.array(parsed.is_number), "numeric"),
        ):
            if wrong.any():
                row, text = values.index[wrong.argmax()], str(values.iloc[wrong.argmax()])
                problem = "numeric" if not self.unit else problem
                raise TableError(
                    f"column {self.name!r} was {problem} in the training table, but row {row} holds {text!r}"
                )
        return parsed.numbers
