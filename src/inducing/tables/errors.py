"""Errors and warnings about tables, and the checks that raise them for several parts of the package."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import pandas as pd

from inducing.checks import did_you_mean
from inducing.tables.numbers import format_number


class TableError(ValueError):
    """A table that cannot be used.

    Arguments:
        problem: What is wrong, with the names of the columns.
        advice: What to do, as a sentence. It may contain "{impute}" and "{exclude}", see `explain`.
    """

    def __init__(self, problem: str, advice: str = "") -> None:
        super().__init__(problem, advice)
        self.problem, self.advice = problem, advice

    def __str__(self) -> str:
        return self.explain()

    def explain(self, impute: str = "use Schema.of(table, impute=True)", exclude: str = "") -> str:
        """The message, with the words of one interface for the options that impute values and exclude columns."""
        advice = self.advice.replace("{impute}", impute).replace("{exclude}", exclude)
        return f"{self.problem}. {advice}" if advice else self.problem

    @classmethod
    def combine(cls, errors: Sequence[TableError]) -> TableError:
        """One error for several columns."""
        count = f"{len(errors)} columns cannot be used: " if len(errors) > 1 else ""
        advice = " ".join(dict.fromkeys(error.advice for error in errors if error.advice))
        return cls(count + "; ".join(error.problem for error in errors), advice)


class TableWarning(UserWarning):
    """Something unusual about a table that can be used."""


def check_complete(values: pd.Series, what: str, advice: str) -> None:
    """Refuse missing values."""
    # a part of a table keeps the row labels of the whole
    rows = values.index[values.isna()]
    if len(rows):
        raise TableError(f"{what} has {counted(len(rows), 'missing value')} (first in row {rows[0]})", advice)


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 row", "2 rows", "61,750 rows"."""
    return f"{number} {noun}" if number == 1 else f"{format_number(number)} {noun}s"


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
