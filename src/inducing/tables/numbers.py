"""Numbers for people: as many decimals as a column has, and thousands separators, in place of 6.175e+04.

>>> format_number(61750.2), format_number(2015.0), format_number(0.012345)
('61,750', '2015', '0.01235')
>>> format_number(61750.2, decimals_of([1999.5, 120000.0]))
'61,750.2'
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

# significant digits of means, standard deviations and errors
DIGITS = 4
# smaller and larger numbers are written with a power of ten
MOST_DECIMALS, LARGEST = 8, 1e15
MOST_WRITTEN = 6
# from here on thousands are separated: 2015 may be a year
SEPARATED = 10_000


def format_number(value: float, decimals: int | None = None) -> str:
    """Write a number. Default: the decimals that show four significant digits, without zeros at the end."""
    number = float(value)
    places = decimals_for(number) if decimals is None else decimals
    if not math.isfinite(number) or places > MOST_DECIMALS or abs(number) >= LARGEST:
        return f"{number:.{DIGITS}g}"
    text = f"{number:,.{places}f}" if abs(number) >= SEPARATED else f"{number:.{places}f}"
    return text.rstrip("0").rstrip(".") if decimals is None and "." in text else text


def decimals_for(size: float, digits: int = DIGITS) -> int:
    """The decimals that show a number of significant digits of values of this size."""
    return 0 if size == 0 or not math.isfinite(size) else max(0, digits - 1 - math.floor(math.log10(abs(size))))


def decimals_of(values: ArrayLike) -> int:
    """The decimals with which a column was written; if more than six, those that show four digits of its spread."""
    numbers = np.asarray(values)
    precision = np.finfo(numbers.dtype).eps if numbers.dtype.kind == "f" else 0.0
    numbers = numbers.astype(float)
    numbers = numbers[np.isfinite(numbers) & (np.abs(numbers) < LARGEST)]
    for places in range(MOST_WRITTEN + 1):
        if (np.abs(numbers - numbers.round(places)) <= precision * np.abs(numbers)).all():
            return places
    return decimals_for(float(numbers.std()))


def decimals_of_predictions(values: ArrayLike) -> int:
    """The decimals of predictions and errors of a target: those of its column, and four significant digits of its spread."""
    return max(decimals_of(values), decimals_for(float(np.std(np.asarray(values, dtype=float)))))
