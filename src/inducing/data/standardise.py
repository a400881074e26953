"""Zero mean and unit standard deviation, from the training rows alone; constant columns are left at zero."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Standardiser(NamedTuple):
    """x -> (x - mean) / std, column by column.

    Arguments:
        mean: Mean of each column.
        std: Its standard deviation; 1 for a constant column, so that it becomes zero and not NaN.
    """

    mean: Float[np.ndarray, " D"]
    std: Float[np.ndarray, " D"]

    @classmethod
    def of(cls, rows: Float[np.ndarray, "N D"]) -> Standardiser:
        """Take the moments of the training rows."""
        mean, std = rows.mean(0), rows.std(0)
        # rounding gives a constant column a tiny standard deviation
        constant = std <= 1e-10 * np.abs(rows).max(0)
        return cls(mean, np.where(constant, 1.0, std))

    def apply(self, rows: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
        """Standardise rows."""
        return (rows - self.mean) / self.std
