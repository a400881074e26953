"""Errors and warnings about tables, and the checks that raise them for several parts of the package."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Literal

import pandas as pd

from inducing.checks import did_you_mean

# an option that makes a refused table usable; each interface names it in its own terms
Remedy = Literal["impute", "exclude"]


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

    @classmethod
    def combine(cls, errors: Sequence[TableError]) -> TableError:
        """One error for several columns."""
        count = f"{len(errors)} columns cannot be used: " if len(errors) > 1 else ""
        advice = " ".join(dict.fromkeys(error.advice for error in errors if error.advice))
        remedies = dict.fromkeys(remedy for error in errors for remedy in error.remedies)
        return cls(count + "; ".join(error.problem for error in errors), advice, remedies)


class TableWarning(UserWarning):
    """Something unusual about a table that can be used."""


def check_complete(values: pd.Series, what: str, advice: str, remedies: Iterable[Remedy] = ()) -> None:
    """Refuse missing values."""
    # a part of a table keeps the row labels of the whole
    rows = values.index[values.isna()]
    if len(rows):
        raise TableError(f"{what} has {len(rows)} missing values (first in row {rows[0]})", advice, remedies)


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
