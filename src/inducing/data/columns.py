"""One column of a table: what kind it is, and how it becomes numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from pandas.api import types

Kind = Literal["numeric", "categorical"]
# more categories than this, in fewer than three times as many rows, look like names or text
MANY_CATEGORIES = 50
DATE = r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([T ]\d{1,2}:\d{2}.*)?\s*"


class TableError(ValueError):
    """A table that cannot be used, with the columns and the reason."""


class TableWarning(UserWarning):
    """Something odd about a table that can be used."""


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Arguments:
        name: Its name.
        kind: "numeric" or "categorical".
        categories: The categories of the training table, sorted; each becomes a column of 0 and 1.
        fill: What stands for a missing value: the median or the most frequent category of the training table. None refuses
            missing values.
    """

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()
    fill: float | str | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"a column is {' or '.join(get_args(Kind))}, got {self.kind!r}")


def describe(values: pd.Series, impute: bool) -> Column:
    """Describe a column of the training table."""
    name, kind, present = str(values.name), _kind(values), values.dropna()
    if present.empty:
        raise TableError(f"column {name!r} has no values at all; leave it out")
    if kind == "numeric":
        return Column(name, kind, (), float(np.median(_numbers(name, present))) if impute else None)
    texts = _texts(present)
    categories, counts = np.unique(texts, return_counts=True)
    if len(categories) > MANY_CATEGORIES and 3 * len(categories) > len(values):
        numbers = pd.to_numeric(pd.Series(texts), errors="coerce")
        if numbers.notna().mean() > 0.5:
            row = int(numbers.isna().argmax())
            raise TableError(
                f"column {name!r} holds numbers, but not only: its value number {row + 1} is {texts[row]!r}. Write it as a "
                "number, or leave it empty and ask for imputation"
            )
        raise TableError(
            f"column {name!r} has {len(categories)} categories in {len(values)} rows; it looks like names or text. "
            "Exclude it, or make groups of its values"
        )
    most_frequent = str(categories[counts.argmax()])
    return Column(name, kind, tuple(map(str, categories)), most_frequent if impute else None)


def explain_unseen(name: str, rows: int) -> str:
    """Say that a column has categories which the training table did not have."""
    return f"column {name!r}: the categories of {rows} rows were not in the training table; they count as none"


def encode(column: Column, values: pd.Series) -> Float[np.ndarray, " N"] | Int[np.ndarray, " N"]:
    """Turn a column into numbers as they are, or into positions among its categories: -1 for one never seen."""
    name, empty = column.name, values.isna().to_numpy()
    if empty.any() and column.fill is None:
        raise TableError(
            f"column {name!r} has {int(empty.sum())} missing values (first in row {_row(values, empty)}); remove those "
            "rows, or have them imputed: Schema.of(table, impute=True), or `inducing fit --impute`"
        )
    if column.kind == "numeric":
        numbers = _numbers(name, values)
        if np.isinf(numbers).any():
            row = _row(values, np.isinf(numbers))
            raise TableError(f"column {name!r} has infinite values (first in row {row}); remove those rows")
        if column.fill is not None:
            numbers[empty] = float(column.fill)
        return numbers
    mistyped = types.is_numeric_dtype(values.dtype) and not looks_numeric(column)
    if (mistyped and not empty.all()) or _is_time(values.dtype):
        raise TableError(
            f"column {name!r} is {values.dtype}, but was text in the training table: {quoted(column.categories)}"
        )
    texts = np.full(len(values), column.fill, dtype=object)
    texts[~empty] = _texts(values[~empty])
    return pd.Index(column.categories, dtype=object).get_indexer(texts)


def looks_numeric(column: Column) -> bool:
    """Whether a categorical column has a category that a file without types would not tell from a number."""
    return any(map(_is_number, column.categories))


def fingerprint(encoded: np.ndarray) -> bytes:
    """Say whether two columns are the same."""
    return hashlib.sha256(encoded.tobytes()).digest()


def quoted(names: Iterable[object], most: int = 8) -> str:
    """List names for a message."""
    names = list(names)
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(str(name)) for name in names[:most]) + rest


def _kind(values: pd.Series) -> Kind:
    """Numbers and booleans are numeric, text and other categories categorical; everything else is refused."""
    name, dtype, present = values.name, values.dtype, values.dropna()
    dates = TableError(
        f"column {name!r} holds dates, and which of their sides matters is not known. Make numbers of them, with "
        f"t = pandas.to_datetime(table[{str(name)!r}]), e.g. (t - t.min()).dt.days, t.dt.month or t.dt.hour, and leave the "
        "column itself out (`inducing fit --exclude`)"
    )
    if _is_time(dtype):
        raise dates
    if types.is_complex_dtype(dtype):
        raise TableError(f"column {name!r} holds complex numbers; use their real and imaginary parts as two columns")
    if types.is_bool_dtype(dtype) or types.is_numeric_dtype(dtype):
        return "numeric"
    if isinstance(dtype, pd.CategoricalDtype):
        return "categorical"
    if present.map(lambda value: isinstance(value, int | float | np.number | np.bool_)).all():
        return "numeric"
    if not present.map(lambda value: isinstance(value, str)).all():
        kinds = sorted({type(value).__name__ for value in present})
        if set(kinds) & {"date", "datetime", "Timestamp", "time", "timedelta", "Timedelta"}:
            raise dates
        raise TableError(f"column {name!r} holds values of the types {', '.join(kinds)}; make them numbers or text")
    if present.astype(str).str.fullmatch(DATE).all():
        raise dates
    return "categorical"


def _is_time(dtype: object) -> bool:
    return (
        types.is_datetime64_any_dtype(dtype) or isinstance(dtype, pd.PeriodDtype) or types.is_timedelta64_dtype(dtype)
    )


def _row(values: pd.Series, mask: np.ndarray) -> object:
    """The first row where the mask is true, by its label: in a part of a table it is that of the whole."""
    return values.index[int(mask.argmax())]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _texts(values: pd.Series) -> np.ndarray:
    """Categories as text; whole numbers look the same whether or not pandas made floats of them."""
    return np.array(
        [f"{value:.15g}" if isinstance(value, float) else str(value) for value in values.astype(object)], dtype=object
    )


def _numbers(name: str, values: pd.Series) -> Float[np.ndarray, " N"]:
    if isinstance(values.dtype, pd.CategoricalDtype) and types.is_bool_dtype(values.dtype):
        # categories that are true and false are numbers as booleans are
        values = values.astype("boolean")
    if _is_time(values.dtype) or isinstance(values.dtype, pd.CategoricalDtype):
        raise TableError(f"column {name!r} is {values.dtype}, but was numeric in the training table")
    numbers = np.array(pd.to_numeric(values, errors="coerce").to_numpy(dtype=float, na_value=np.nan))
    wrong = np.isnan(numbers) & ~values.isna().to_numpy()
    if wrong.any():
        value = str(values.iloc[int(wrong.argmax())])
        raise TableError(
            f"column {name!r} was numeric in the training table, but row {_row(values, wrong)} holds {value!r}"
        )
    return numbers
