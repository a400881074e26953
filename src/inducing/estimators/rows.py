"""Rows as estimators train on them: equal rows are one row with a weight."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def merge_equal_rows(
    rows: Float[np.ndarray, "N D"], y: np.ndarray, weights: Float[np.ndarray, " N"]
) -> tuple[Float[np.ndarray, "M D"], np.ndarray, Float[np.ndarray, " M"]]:
    """Return the distinct rows in ascending order, with their targets and total weights."""
    # labels of any type by their positions
    targets = y if y.dtype.kind == "f" else np.unique(y, return_inverse=True)[1]
    # missing targets are equal to each other; infinite targets were refused
    targets = np.where(np.isnan(targets), np.inf, targets)
    _, first, group = np.unique(np.column_stack([rows, targets]), axis=0, return_index=True, return_inverse=True)
    return rows[first], y[first], np.bincount(group.reshape(-1), weights)
