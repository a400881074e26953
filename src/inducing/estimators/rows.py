"""Rows as estimators train on them: equal rows are one row with a weight, and some rows are held out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped


class DistinctRows(NamedTuple):
    """The distinct rows of a dataset in ascending order.

    Arguments:
        inputs: Their inputs.
        targets: Their targets.
        weights: Their total weights.
        copies: How often each occurs.
    """

    inputs: Float[np.ndarray, "M D"]
    targets: np.ndarray
    weights: Float[np.ndarray, " M"]
    copies: Int[np.ndarray, " M"]


def merge_equal_rows(rows: Float[np.ndarray, "N D"], y: np.ndarray, weights: Float[np.ndarray, " N"]) -> DistinctRows:
    """Find the rows that differ in inputs or targets."""
    # labels of any type by their positions
    targets = y if y.dtype.kind == "f" else np.unique(y, return_inverse=True)[1]
    # missing targets are equal to each other; infinite targets were refused
    targets = np.where(np.isnan(targets), np.inf, targets)
    _, first, group = np.unique(np.column_stack([rows, targets]), axis=0, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    return DistinctRows(rows[first], y[first], np.bincount(group, weights), np.bincount(group))


def hold_out_rows(
    groups: Shaped[np.ndarray, " N"], number: int, seed: int
) -> tuple[Int[np.ndarray, " T"], Int[np.ndarray, " H"]]:
    """Draw rows to hold out, stratified by group, and return the positions of the others and of these.

    Each group keeps at least one row, so fewer rows may be held out.
    """
    order = np.random.default_rng(seed).permutation(len(groups))
    _, kind = np.unique(groups, return_inverse=True)
    order = order[np.argsort(kind[order], kind="stable")]
    first = np.r_[True, kind[order][1:] != kind[order][:-1]]
    candidates = order[~first]
    number = min(number, len(candidates))
    # evenly spaced positions in an order by group are a stratified sample
    held_out = np.sort(candidates[((np.arange(number) + 0.5) * len(candidates) / max(number, 1)).astype(int)])
    return np.setdiff1d(np.arange(len(groups)), held_out), held_out
