"""Rows before anything is learned from them: equal ones are made one, and what they count is looked at."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
from jaxtyping import Float


def merge(
    rows: Float[np.ndarray, "N D"], y: np.ndarray, weights: Float[np.ndarray, " N"] | None
) -> tuple[Float[np.ndarray, "K D"], np.ndarray, Float[np.ndarray, " K"]]:
    """Make one row of rows that are equal; return how often each counts too.

    The order of the rows does not matter then, and rows that are there twice are candidates for inducing points once.
    """
    # labels of any type by their numbers
    targets = y if y.dtype.kind == "f" else np.unique(y, return_inverse=True)[1]
    table = np.concatenate([rows, targets.reshape(len(rows), -1)], axis=1)
    _, first, group = np.unique(table, axis=0, return_index=True, return_inverse=True)
    counts = np.bincount(group.reshape(-1), weights).astype(np.float64)
    return rows[first], y[first], counts


def warn_of_light_rows(weights: Float[np.ndarray, " N"]) -> None:
    """Weights are counts of rows; those that were normalised to sum to 1 leave little to learn from."""
    if weights.sum() < len(weights) / 10:
        warnings.warn(
            f"the sample weights sum to {weights.sum():.3g}, so {len(weights)} rows count as that many, and the posterior "
            "stays near the prior; a row of weight 1 counts as one: multiply the weights so that their mean is 1",
            stacklevel=4,
        )


def has_text(X: object) -> bool:
    """Whether a table has columns that are not numbers."""
    return isinstance(X, pd.DataFrame) and not all(pd.api.types.is_numeric_dtype(dtype) for dtype in X.dtypes)
