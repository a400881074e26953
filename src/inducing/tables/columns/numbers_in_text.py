"""Numbers that are written as text: with units, currencies, percent signs and thousands separators.

"1,250"   "12 kg"   "$3.50"   "45%"   "-1 200.5"   "EUR 1.250,50"
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

Comma = Literal["thousands", "decimal"]
# cells that mean "no value" in a column of numbers
MISSING_MARKS = {"", "?", "-", "--", ".", "na", "n/a", "n.a.", "nan", "none", "null", "unknown", "missing"}
# text with at most this many distinct whole numbers is text
MAX_CODES = 20
CURRENCIES = r"[$€£¥₹]|(?:USD|EUR|GBP|CHF|JPY|CAD|AUD)\b"
UNIT = r"[^\W\d_][\w/^·²³°\-]*|[%‰°²³$€£¥₹µ][\w/^·²³°\-]*"
SPACES = " \u00a0\u202f"
DIGITS = {
    "thousands": rf"(?:\d{{1,3}}(?:[,{SPACES}']\d{{3}})+|\d+)(?:\.\d*)?|\.\d+",
    "decimal": rf"(?:\d{{1,3}}(?:[.{SPACES}']\d{{3}})+|\d+)(?:,\d*)?|,\d+",
}


class ParsedNumbers(NamedTuple):
    """Numbers and the units they were written with.

    Arguments:
        numbers: The numbers. NaN for missing values.
        units: The units of the rows. "": none.
        is_number: Whether each text is a number or a missing value.
    """

    numbers: Float[np.ndarray, " N"]
    units: list[str]
    is_number: list[bool]


def parse_numbers(texts: pd.Series, comma: Comma) -> ParsedNumbers:
    """Parse texts, in which a comma separates thousands or is the decimal point."""
    pattern = re.compile(
        rf"\s*(?P<sign>[+\-−]?)\s*(?P<currency>{CURRENCIES})?\s*(?P<minus>[+\-−]?)(?P<digits>{DIGITS[comma]})"
        rf"(?P<exponent>[eE][+\-]?\d+)?\s*(?P<unit>{UNIT})?\s*"
    )
    remove, point = (f",'{SPACES}", ".") if comma == "thousands" else (f".'{SPACES}", ",")
    numbers, units, is_number = np.full(len(texts), np.nan), [""] * len(texts), [True] * len(texts)
    for row, text in enumerate(texts):
        if pd.isna(text) or str(text).strip().lower() in MISSING_MARKS:
            continue
        found = pattern.fullmatch(str(text))
        if found is None:
            is_number[row] = False
            continue
        digits = found["digits"].translate(str.maketrans("", "", remove)).replace(point, ".")
        sign = -1 if any(mark in "-−" for mark in (found["sign"], found["minus"]) if mark) else 1
        numbers[row] = sign * float(digits + (found["exponent"] or ""))
        units[row] = found["currency"] or found["unit"] or ""
    return ParsedNumbers(numbers, units, is_number)


def find_notation(texts: pd.Series) -> tuple[str, Comma] | None:
    """Find the one unit ("": none) and the meaning of commas with which all texts are numbers, or None.

    Plain digits are numbers if they have many distinct values and no leading zeros. Otherwise they are text, as declared.
    """
    distinct = texts.drop_duplicates()
    if distinct.astype(str).str.fullmatch(r"\d+").all():
        has_zeros = distinct.astype(str).str.match(r"0\d").any()
        return None if has_zeros or len(distinct) <= MAX_CODES else ("", "thousands")
    commas: tuple[Comma, ...] = ("thousands", "decimal")
    for comma in commas:
        if not all(parse_numbers(distinct[:100], comma).is_number):
            continue
        parsed = parse_numbers(distinct, comma)
        units = set(parsed.units) - {""}
        if all(parsed.is_number) and len(units) <= 1 and np.isfinite(parsed.numbers).any():
            return next(iter(units), ""), comma
    return None
