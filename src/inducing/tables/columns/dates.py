"""Columns of dates, with or without times: elapsed days, year, and the position in year, week and day."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float
from pandas.api import types

from inducing.tables.columns.base import DATES, Column, describe_missing
from inducing.tables.errors import TableError

Order = Literal["year-month-day", "day-month-year", "month-day-year"]
Part = Literal["days", "year", "month", "weekday", "hour"]
TIME = r"(?:[T ]\s*(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}(?:\.\d+)?))?\s*(?:Z|UTC|[+-]\d{2}:?\d{2})?)?"
PATTERN = re.compile(
    r"\s*(?:(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})|(?P<a>\d{1,2})[-/.](?P<b>\d{1,2})[-/.](?P<c>\d{4}|\d{2}))"
    + TIME
    + r"\s*"
)
# two digits below are in this century
THIS_CENTURY = 70
# pandas counts nanoseconds, which are 292 years
LARGEST_DAY = 1e5
# the length of a cycle
CYCLES: dict[Part, int] = {"month": 12, "weekday": 7, "hour": 24}


@dataclass(frozen=True)
class DateColumn(Column):
    """Dates, in local time.

    Arguments:
        name: Its name.
        parts: What becomes an input: only what differs between the rows of the training table.
        order: The order of day, month and year in texts.
        first: The first date of the training table, in days since 1970.
        last: The last one.
        fill: Replaces missing values: the median of the training table. None: missing values are refused.
        missing: Number of missing values in the training table. If there are any, another input marks them.
    """

    parts: tuple[Part, ...]
    order: Order
    first: float
    last: float
    fill: float | None = None
    missing: int = 0
    kind: ClassVar[str] = "date"

    def __post_init__(self) -> None:
        days = (self.first, self.last, self.first if self.fill is None else self.fill)
        is_known = all(abs(day) < LARGEST_DAY for day in days)
        if not self.parts or len(set(self.parts)) < len(self.parts) or self.missing < 0 or not is_known:
            raise ValueError(
                f"the column {self.name!r} of dates cannot have the parts {self.parts} and the days {days}"
            )

    @classmethod
    def learn(cls, values: pd.Series, impute: bool) -> DateColumn:
        """Describe a column of the training table."""
        plain = cls(str(values.name), ("days",), _find_order(values), 0.0, 0.0)
        days = plain.to_codes(values)
        known = days[~np.isnan(days)]
        parts: tuple[Part, ...] = tuple(part for part, found in _split(known).items() if np.ptp(found) > 0)
        first, last = float(known.min()), float(known.max())
        fill, missing = (float(np.median(known)), len(days) - len(known)) if impute else (None, 0)
        return cls(plain.name, parts or ("days",), plain.order, first, last, fill, missing)

    @property
    def encoded_names(self) -> list[str]:
        names = []
        for part in self.parts:
            names += (
                [f"{self.name}: {part}, sin", f"{self.name}: {part}, cos"]
                if part in CYCLES
                else [f"{self.name}: {part}"]
            )
        return names + [f"{self.name} is missing"] * self.num_indicators

    @property
    def num_indicators(self) -> int:
        return int(self.missing > 0)

    @property
    def refuses_missing(self) -> bool:
        return self.fill is None

    def to_codes(self, values: pd.Series) -> Float[np.ndarray, " N"]:
        """Days since 1970, with NaN for missing values."""
        present = values.dropna()
        inferred = types.infer_dtype(present)
        if inferred in DATES or present.empty:
            times = _to_times(present)
        elif inferred == "string":
            first_rows = present.drop_duplicates()
            parsed = {text: self._parse(row, text) for row, text in first_rows.items()}
            times = pd.Series(pd.to_datetime([parsed[text] for text in present]), present.index)
        else:
            raise TableError(f"column {self.name!r} is {values.dtype}, but held dates in the training table")
        days = np.full(len(values), np.nan)
        days[values.notna().to_numpy()] = (times - pd.Timestamp(1970, 1, 1)) / pd.Timedelta(days=1)
        if len(far := np.flatnonzero(np.abs(days) >= LARGEST_DAY)):
            row, value = values.index[far[0]], values.iloc[far[0]]
            raise TableError(
                f"column {self.name!r} has the date {value} in row {row}",
                "Dates before 1697 or after 2243 are refused: leave a cell empty if the date is not known.",
            )
        return days

    def expand(self, codes: Float[np.ndarray, " N"]) -> Float[np.ndarray, "N E"]:
        missing = np.isnan(codes)
        found = _split(codes if self.fill is None else np.where(missing, self.fill, codes))
        inputs = []
        for part in self.parts:
            if part in CYCLES:
                angle = 2 * np.pi * found[part] / CYCLES[part]
                inputs += [np.sin(angle), np.cos(angle)]
            else:
                inputs.append(found[part] - (self.first if part == "days" else 0.0))
        return np.stack([*inputs, *[missing] * self.num_indicators], 1)

    def describe(self) -> tuple[str, str]:
        first, last = (
            f"{pd.Timestamp(1970, 1, 1) + pd.Timedelta(days=day):%Y-%m-%d}" for day in (self.first, self.last)
        )
        done = ", ".join(self.parts) + describe_missing(self.missing, "median, and an indicator")
        return f"date, {first} to {last}" + f" ({self.order})" * (self.order != "year-month-day"), done

    def _parse(self, row: object, text: str) -> pd.Timestamp:
        found = PATTERN.fullmatch(text)
        if found is None:
            raise TableError(f"column {self.name!r} held dates in the training table, but row {row} holds {text!r}")
        if found["y"]:
            year, month, day = int(found["y"]), int(found["m"]), int(found["d"])
        else:
            day, month, year = int(found["a"]), int(found["b"]), int(found["c"])
            day, month = (day, month) if self.order == "day-month-year" else (month, day)
            year += 0 if year > 99 else 2000 if year < THIS_CENTURY else 1900
        try:
            seconds = float(found["second"] or 0)
            clock = pd.Timedelta(hours=int(found["hour"] or 0), minutes=int(found["minute"] or 0), seconds=seconds)
            return pd.Timestamp(year, month, day) + clock
        except ValueError as error:
            problem = f"column {self.name!r} holds dates ({self.order}), but row {row} holds {text!r}"
            raise TableError(problem, "Correct it, or write dates as 2021-12-31.") from error


def are_dates(texts: pd.Series) -> bool:
    """Whether all texts look like dates."""
    return all(PATTERN.fullmatch(str(text)) for text in texts)


def _find_order(values: pd.Series) -> Order:
    """The order of day and month by the values above 12; if there are none, dots mean day first."""
    present = values.dropna()
    if types.infer_dtype(present) != "string":
        return "year-month-day"
    found = [match for text in present if (match := PATTERN.fullmatch(text)) and match["a"]]
    if not found:
        return "year-month-day"
    if any(int(match["a"]) > 12 for match in found):
        return "day-month-year"
    dotted = all("." in match[0].split(":")[0] for match in found)
    return "day-month-year" if dotted and all(int(match["b"]) <= 12 for match in found) else "month-day-year"


def _to_times(values: pd.Series) -> pd.Series:
    if isinstance(values.dtype, pd.PeriodDtype):
        return values.dt.to_timestamp()
    times = pd.Series(pd.to_datetime(values), values.index)
    return times.dt.tz_localize(None) if times.dt.tz is not None else times


def _split(days: Float[np.ndarray, " N"]) -> dict[Part, Float[np.ndarray, " N"]]:
    """The parts of dates. Months and weekdays count from 0."""
    # whole seconds: fractions of a day are rounded
    times = pd.DatetimeIndex(pd.Timestamp(1970, 1, 1) + pd.to_timedelta((days * 86400).round(), unit="s"))
    parts: dict[Part, Any] = {
        "days": days,
        "year": times.year,
        "month": times.month - 1,
        "weekday": times.day_of_week,
        "hour": times.hour + times.minute / 60,
    }
    return {name: np.asarray(part, dtype=float) for name, part in parts.items()}
