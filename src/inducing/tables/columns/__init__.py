"""The kinds of columns, and how each becomes numbers.

Each kind is a class with the same methods: `learn` describes the training values, `to_codes` gives one number for each row,
and `expand` gives the inputs of a model.
"""

from __future__ import annotations

import dataclasses
from typing import Any, get_type_hints

import numpy as np
import pandas as pd
from pandas.api import types

from inducing.saving.values import fits, shorten
from inducing.tables.columns.base import DATES, DURATIONS, Codes, Column
from inducing.tables.columns.categorical import CategoricalColumn
from inducing.tables.columns.dates import DateColumn, are_dates
from inducing.tables.columns.ignored import IgnoredColumn
from inducing.tables.columns.levels import LevelColumn
from inducing.tables.columns.numbers_in_text import MISSING_MARKS, find_notation, parse_numbers
from inducing.tables.columns.numeric import NumericColumn
from inducing.tables.errors import TableError, check_complete

KINDS: dict[str, type[Column]] = {
    cls.kind: cls for cls in (NumericColumn, CategoricalColumn, LevelColumn, DateColumn, IgnoredColumn)
}
# with this many distinct values, a column in which most texts are numbers is one of numbers with stray texts
MANY_NUMBERS = 20
MISSING_ADVICE = "Remove those rows, or {impute}."


def describe_column(values: pd.Series, impute: bool) -> Column:
    """Describe a column of the training table: numbers, text, or dates. Other types are refused."""
    name, present = str(values.name), values.dropna()
    if present.empty:
        raise TableError(f"column {name!r} has no values", "Exclude it{exclude}.")
    inferred = types.infer_dtype(present)
    if inferred == "string":
        return _describe_text(values, present, impute)
    if inferred in DATES:
        return DateColumn.learn(values, impute)
    if inferred == "categorical" and not types.is_bool_dtype(present.dtype):
        return CategoricalColumn.learn(values, impute)
    numbers = int | float | np.number | np.bool_
    is_numeric = types.is_numeric_dtype(present.dtype) or all(isinstance(value, numbers) for value in present)
    if inferred in DURATIONS or (is_numeric and inferred != "complex"):
        return NumericColumn.learn(values, impute)
    found = ", ".join(sorted({type(value).__name__ for value in present}))
    advice = "Convert them to numbers or text, or exclude it{exclude}."
    raise TableError(f"column {name!r} holds values of type {found}", advice)


def _describe_text(values: pd.Series, present: pd.Series, impute: bool) -> Column:
    if are_dates(present):
        return DateColumn.learn(values, impute)
    if (notation := find_notation(present)) is not None:
        return NumericColumn.learn(values, impute, *notation)
    if present.nunique() > MANY_NUMBERS:
        is_text = ~np.array(parse_numbers(present, "thousands").is_number)
        if is_text.any() and is_text.mean() < 0.5:
            text, row = present[is_text].iloc[0], present[is_text].index[0]
            problem = f"column {values.name!r} holds numbers and text, e.g. {text!r} in row {row}"
            marks = ", ".join(sorted(mark for mark in MISSING_MARKS if mark))
            raise TableError(problem, f"Replace the text by numbers, or by a sign for a missing value ({marks}).")
    return CategoricalColumn.learn(values, impute)


def encode(column: Column, values: pd.Series) -> Codes:
    """Convert values to one number for each row. Missing values are refused unless they are imputed."""
    if column.refuses_missing:
        check_complete(values, f"column {column.name!r}", MISSING_ADVICE)
    codes = column.to_codes(values)
    if column.refuses_missing and (marked := np.isnan(codes)).any():
        row, text = values.index[marked.argmax()], str(values.iloc[marked.argmax()])
        raise TableError(f"column {column.name!r} has missing values ({text!r} in row {row})", MISSING_ADVICE)
    return codes


def column_to_json(column: Column) -> dict[str, Any]:
    """A column as JSON."""
    return {"kind": column.kind, **dataclasses.asdict(column)}


def column_from_json(entry: Any) -> Column:
    """Make a column from an entry of a file, which may not be trusted. Missing arguments get their defaults."""
    where = "a column of the schema"
    if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str) or entry["kind"] not in KINDS:
        raise ValueError(f"{where} must have a kind among {', '.join(KINDS)}, got {shorten(entry)}")
    cls = KINDS[entry["kind"]]
    arguments = {name: _to_tuples(value) for name, value in entry.items() if name != "kind"}
    # version 0.1.0
    if cls is NumericColumn and arguments.get("categories") == ():
        del arguments["categories"]
    hints = {field.name: get_type_hints(cls)[field.name] for field in dataclasses.fields(cls)}
    for name, value in arguments.items():
        if name not in hints or not fits(value, hints[name]):
            raise ValueError(f"{where}: {shorten(name)} cannot be {shorten(value)}")
    if absent := [
        f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING and f.name not in arguments
    ]:
        raise ValueError(f"{where} of the kind {cls.kind} needs {', '.join(absent)}")
    return cls(**arguments)


def _to_tuples(value: Any) -> Any:
    return tuple(map(_to_tuples, value)) if isinstance(value, list) else value
