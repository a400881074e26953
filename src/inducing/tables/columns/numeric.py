"""Columns of numbers and booleans.

Outliers are compressed. With d the distance from the median of the training table, and r four times its interquartile range:

    d -> r (2 - r / d)   if d > r

This keeps the order and has no kink, and no value is further away than 2 r. A network that extrapolates to 50 standard
deviations predicts anything, and on a log scale the exponential of it.
"""

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
from inducing.tables.errors import TableError, counted, quoted
from inducing.tables.numbers import format_number

# r in interquartile ranges: 5.4 standard deviations of a normal distribution
REACH = 4.0
# fewer rows tell nothing about outliers
MIN_ROWS = 20
# differences of larger numbers overflow
LARGEST = 1e300


@dataclass(frozen=True)
class NumericColumn(Column):
    """Numbers, booleans, and durations in days.

    Arguments:
        name: Its name.
        fill: Replaces missing values: the median of the training table. None: missing values are refused.
        missing: Number of missing values in the training table. If there are any, another input marks them.
        unit: The unit that is written with the numbers, such as "kg", "$" or "%".
        comma: Whether a comma in a text separates thousands or is the decimal point.
        centre: The median of the training table.
        reach: Distance from it above which values are compressed. None: no value is compressed.
        outliers: Number of values in the training table that are compressed.
    """

    fill: float | None = None
    missing: int = 0
    unit: str = ""
    comma: Comma = "thousands"
    centre: float = 0.0
    reach: float | None = None
    outliers: int = 0
    kind: ClassVar[str] = "numeric"

    def __post_init__(self) -> None:
        if self.missing < 0 or (self.fill is None and self.missing) or not math.isfinite(self.fill or 0.0):
            raise ValueError(
                f"the column {self.name!r} cannot have {self.missing} missing values filled with {self.fill}"
            )
        if not math.isfinite(self.centre) or not 0 < (1.0 if self.reach is None else self.reach) < math.inf:
            raise ValueError(f"the column {self.name!r} cannot be compressed at {self.reach} from {self.centre}")

    @classmethod
    def learn(cls, values: pd.Series, impute: bool, unit: str = "", comma: Comma = "thousands") -> NumericColumn:
        """Describe a column of the training table."""
        plain = cls(str(values.name), None, 0, unit, comma)
        numbers = plain.to_codes(values)
        known = numbers[~np.isnan(numbers)]
        low, centre, high = map(float, np.quantile(known, [0.25, 0.5, 0.75]))
        reach = REACH * (high - low) if len(known) >= MIN_ROWS and 0 < high - low < LARGEST else None
        outliers = 0 if reach is None else int((np.abs(known - centre) > reach).sum())
        fill, missing = (centre, len(numbers) - len(known)) if impute else (None, 0)
        return cls(plain.name, fill, missing, unit, comma, centre, reach, outliers)

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
        if self.reach is not None:
            distance = filled - self.centre
            compressed = self.reach * (2 - self.reach / np.maximum(np.abs(distance), self.reach))
            filled = np.where(np.abs(distance) > self.reach, self.centre + np.sign(distance) * compressed, filled)
        return np.stack([filled, missing][: 1 + self.num_indicators], 1)

    def describe(self) -> tuple[str, str]:
        read_as = f"number in {self.unit}" if self.unit else "number"
        done = f"{counted(self.outliers, 'outlier')} compressed" if self.outliers else "unchanged"
        return read_as, done + describe_missing(
            self.missing, f"median {format_number(self.fill or 0.0)}, and an indicator"
        )

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
