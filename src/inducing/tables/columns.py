"""One column of a table: its kind, and how it becomes numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from pandas.api import types

from inducing.checks import did_you_mean

Kind = Literal["numeric", "categorical"]
# an option that makes a refused table usable; each interface names it in its own terms
Remedy = Literal["impute", "exclude"]
# more categories than this, with fewer than three rows per category on average, look like names or free text
MANY_CATEGORIES = 50
DATE = r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([T ]\d{1,2}:\d{2}.*)?\s*"
# names that pandas.api.types.infer_dtype gives
TIMES = ("date", "datetime", "datetime64", "period", "time", "timedelta", "timedelta64")


class TableError(ValueError):
    """A table that cannot be used.

    Arguments:
        problem: What is wrong, with the names of the columns.
        advice: What to do, as a sentence.
        remedies: Options that help.
    """

    def __init__(self, problem: str, advice: str = "", remedies: Iterable[Remedy] = ()) -> None:
        super().__init__(f"{problem}. {advice}" if advice else problem)
        self.problem, self.advice, self.remedies = problem, advice, tuple(remedies)


class TableWarning(UserWarning):
    """Something unusual about a table that can be used."""


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Arguments:
        name: Its name.
        kind: "numeric" or "categorical".
        categories: The sorted categories of the training table. Each becomes a column of 0 and 1.
        fill: Replaces missing values: the median or the most frequent category of the training table. Default: missing
            values are refused.
    """

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()
    fill: float | str | None = None

    def __post_init__(self) -> None:
        is_text = self.kind == "categorical"
        if bool(self.categories) != is_text or (self.fill is not None and isinstance(self.fill, str) != is_text):
            found = f"the categories {quoted(self.categories)} and be filled with {self.fill!r:.80}"
            raise ValueError(f"the {self.kind} column {self.name!r} cannot have {found}")

    @property
    def has_numeric_category(self) -> bool:
        """Whether a category looks like a number, so that a CSV file with few rows may show numbers only."""
        return bool(pd.to_numeric(pd.Series(self.categories, dtype=object), errors="coerce").notna().any())


def describe(values: pd.Series, impute: bool) -> Column:
    """Describe a column of the training table.

    Numbers and booleans are numeric, text and other pandas categories are categorical. Other types are refused.
    """
    name, present = str(values.name), values.dropna()
    if present.empty:
        raise _unusable(f"column {name!r} has no values", "Exclude it.")
    if _infer_kind(name, present) == "numeric":
        return Column(name, "numeric", (), float(np.median(_to_numbers(name, present))) if impute else None)
    texts = _to_texts(present)
    categories, counts = np.unique(texts, return_counts=True)
    if len(categories) > MANY_CATEGORIES and 3 * len(categories) > len(values):
        numbers = pd.to_numeric(pd.Series(texts), errors="coerce")
        if numbers.notna().mean() > 0.5:
            row = int(numbers.isna().argmax())
            raise TableError(
                f"column {name!r} holds numbers and text, e.g. {texts[row]!r} in row {present.index[row]}",
                "Replace the text by numbers, or by empty cells that are imputed.",
                ["impute"],
            )
        size = f"{len(categories)} categories in {len(values)} rows"
        raise _unusable(f"column {name!r} looks like free text: it has {size}", "Exclude it, or group its values.")
    most_frequent = str(categories[counts.argmax()])
    return Column(name, "categorical", tuple(map(str, categories)), most_frequent if impute else None)


def encode(column: Column, values: pd.Series) -> Float[np.ndarray, " N"] | Int[np.ndarray, " N"]:
    """Convert a column to its numbers, or to the positions of its categories: -1 for an unseen category."""
    if column.fill is None:
        check_complete(values, f"column {column.name!r}", "Remove those rows, or impute the values.", ["impute"])
    missing = values.isna().to_numpy()
    if column.kind == "numeric":
        numbers = _to_numbers(column.name, values)
        if (infinite := np.isinf(numbers)).any():
            row = values.index[infinite.argmax()]
            raise TableError(f"column {column.name!r} has infinite values (first in row {row})", "Remove those rows.")
        if column.fill is not None:
            numbers[missing] = float(column.fill)
        return numbers
    mistyped = types.is_numeric_dtype(values.dtype) and not missing.all() and not column.has_numeric_category
    if mistyped or types.infer_dtype(values) in TIMES:
        raise wrong_type(column, str(values.dtype))
    texts = np.full(len(values), column.fill, dtype=object)
    texts[~missing] = _to_texts(values[~missing])
    return pd.Index(column.categories, dtype=object).get_indexer(texts)


def check_complete(values: pd.Series, what: str, advice: str, remedies: Iterable[Remedy] = ()) -> None:
    """Refuse missing values."""
    missing = values.isna().to_numpy()
    if missing.any():
        # a part of a table keeps the row labels of the whole
        row = values.index[missing.argmax()]
        raise TableError(f"{what} has {missing.sum()} missing values (first in row {row})", advice, remedies)


def wrong_type(column: Column, found: str) -> TableError:
    """The error for numbers or dates in a categorical column."""
    known = quoted(column.categories)
    return TableError(f"column {column.name!r} is {found}, but was text in the training table: {known}")


def quoted(names: Iterable[object], limit: int = 8) -> str:
    """List names for a message."""
    names = list(names)
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(repr(str(name)) for name in names[:limit]) + rest


def check_present(names: Iterable[str], table: Collection[str], purpose: str = "") -> None:
    """Refuse names that the table does not have."""
    absent = [name for name in names if name not in table]
    if absent:
        close = did_you_mean(absent[0], map(str, table))
        raise TableError(f"there is no column {quoted(absent)}{purpose}{close}", f"The table has {quoted(table)}.")


def _infer_kind(name: str, present: pd.Series) -> Kind:
    if isinstance(present.dtype, pd.CategoricalDtype):
        return "numeric" if types.is_bool_dtype(present.dtype) else "categorical"
    inferred = types.infer_dtype(present)
    is_text = inferred == "string"
    if inferred in TIMES or (is_text and present.astype(str).str.fullmatch(DATE).all()):
        example = f"pandas.to_datetime(table[{name!r}]).dt.month"
        raise _unusable(f"column {name!r} holds dates", f"Convert it to numbers, e.g. {example}, or exclude it.")
    if is_text:
        return "categorical"
    numbers = int | float | np.number | np.bool_
    is_numeric = types.is_numeric_dtype(present.dtype) or all(isinstance(value, numbers) for value in present)
    if is_numeric and inferred != "complex":
        return "numeric"
    found = ", ".join(sorted({type(value).__name__ for value in present}))
    raise _unusable(f"column {name!r} holds values of type {found}", "Convert them to numbers or text, or exclude it.")


def _unusable(problem: str, advice: str) -> TableError:
    return TableError(problem, advice, ["exclude"])


def _to_texts(values: pd.Series) -> np.ndarray:
    """Categories as text. Whole numbers give the same text as integers and as floats."""
    texts = [f"{value:.15g}" if isinstance(value, float) else str(value) for value in values.astype(object)]
    return np.array(texts, dtype=object)


def _to_numbers(name: str, values: pd.Series) -> Float[np.ndarray, " N"]:
    if isinstance(values.dtype, pd.CategoricalDtype) and types.is_bool_dtype(values.dtype):
        values = values.astype("boolean")
    if isinstance(values.dtype, pd.CategoricalDtype) or types.infer_dtype(values) in TIMES:
        raise TableError(f"column {name!r} is {values.dtype}, but was numeric in the training table")
    numbers = np.array(pd.to_numeric(values, errors="coerce").to_numpy(dtype=float, na_value=np.nan))
    wrong = np.isnan(numbers) & ~values.isna().to_numpy()
    if wrong.any():
        row, text = values.index[wrong.argmax()], str(values.iloc[wrong.argmax()])
        raise TableError(f"column {name!r} was numeric in the training table, but row {row} holds {text!r}")
    return numbers
