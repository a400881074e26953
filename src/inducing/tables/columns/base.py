"""The base class of all kinds of columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Shaped

from inducing.tables.errors import counted

Codes = Float[np.ndarray, " N"] | Int[np.ndarray, " N"]
# infer_dtype of pandas gives these names
DATES = ("date", "datetime", "datetime64", "period")
DURATIONS = ("timedelta", "timedelta64")
TIMES = (*DATES, *DURATIONS, "time")


@dataclass(frozen=True)
class Column(ABC):
    """A column of the training table, and how its values become inputs of a model: an immutable value, saved as JSON.

    Arguments:
        name: Its name.
    """

    name: str
    kind: ClassVar[str]

    @property
    @abstractmethod
    def encoded_names(self) -> list[str]:
        """The names of the inputs of a model."""

    @property
    @abstractmethod
    def num_indicators(self) -> int:
        """How many of the inputs, counted from the last, are 0 or 1 and share one scale."""

    @property
    @abstractmethod
    def refuses_missing(self) -> bool:
        """Whether missing values are an error."""

    @abstractmethod
    def to_codes(self, values: pd.Series) -> Codes:
        """One number for each row."""

    @abstractmethod
    def expand(self, codes: Codes) -> Shaped[np.ndarray, "N E"]:
        """The inputs of a model."""

    @abstractmethod
    def describe(self) -> tuple[str, str]:
        """What the column was read as, and what was done with it."""


def describe_missing(missing: int, treatment: str) -> str:
    """What is done with missing values, for the end of a sentence."""
    return f"; {counted(missing, 'missing value')}: {treatment}" if missing else ""
