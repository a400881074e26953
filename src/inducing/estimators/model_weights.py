"""Weights of several models, by the log-likelihoods of rows that none of them was fitted to.

    maximise over w   sum_i log sum_k w_k p_k(y_i | x_i)  +  sum_k log w_k,   w_k >= 0,  sum_k w_k = 1

Row i counts as often as its weight, and N is the sum of the weights. The second sum is a prior: one more row for each model,
which only this model can predict. It keeps weights away from zero, more so if there are few rows. A new row that is nearly
impossible under the best model then costs little, and models with the same densities have the same weight. The objective is
concave, and never decreases in the iteration

    w_k <- (n_k + 1) / (N + K),   n_k = sum_i w_k p_k(y_i | x_i) / sum_j w_j p_j(y_i | x_i)

where n_k is the expected number of rows of model k.

References:
    Yao et al., Using stacking to average Bayesian predictive distributions (2018).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import accumulate, pairwise
from numbers import Real
from typing import Any

import numpy as np
from jaxtyping import Float

from inducing.checks import check_kind, check_known
from inducing.saving.values import shorten

# Models with a smaller weight are left out. Those that are not have a share of a hundred draws.
LEAST_WEIGHT = 0.01
# So are models with fewer expected rows: far behind on all rows, they would have no weight without the prior, and could ruin
# the mean.
LEAST_ROWS = 0.1
# the iteration ends when no weight changes by more
TOLERANCE, MOST_ITERATIONS = 1e-9, 100_000
# a row with this log-likelihood is as bad as an impossible one
IMPOSSIBLE = -1e6


def find_weights(
    log_likelihoods: Float[np.ndarray, "N K"], row_weights: Float[np.ndarray, " N"]
) -> Float[np.ndarray, " K"]:
    """Find the weights. Models without a prediction for some row (NaN) have none, unless that is true of all.

    Arguments:
        log_likelihoods: Log-likelihood of each row under each model.
        row_weights: Weights of the rows, positive.
    """
    predicts = ~np.isnan(log_likelihoods).any(0)
    kept = np.flatnonzero(predicts if predicts.any() else ~predicts)
    scores = np.maximum(np.nan_to_num(log_likelihoods[:, kept], nan=IMPOSSIBLE), IMPOSSIBLE)
    # densities in units of the largest of each row
    densities = np.exp(scores - scores.max(1, keepdims=True))
    num_rows, num_models = row_weights.sum(), len(kept)
    weights = np.full(num_models, 1 / num_models)
    for _ in range(MOST_ITERATIONS):
        expected = weights * ((row_weights / (densities @ weights)) @ densities)
        before, weights = weights, (expected + 1) / (num_rows + num_models)
        if np.abs(weights - before).max() < TOLERANCE:
            break
    # with very many models, each weight is small: those above half of the mean weight stay
    share = 1 / (2 * num_models)
    stays = (weights >= min(LEAST_WEIGHT, share)) & (expected >= min(LEAST_ROWS, num_rows * share))
    found = np.zeros(log_likelihoods.shape[1])
    found[kept] = stays * weights / weights[stays].sum()
    return found


def check_weights(weights: Mapping[str, float], candidates: Mapping[str, Any]) -> dict[str, float]:
    """Weights of candidates by name, whose sum is 1."""
    check_kind("weights", weights, Mapping, f"numbers by name, e.g. {dict.fromkeys(candidates, 1.0)}")
    for name in weights:
        check_known("weights of candidates", name, tuple(candidates))
        check_kind(f"the weight of {name}", weights[name], Real, "a number")
    values = {name: float(weight) for name, weight in weights.items() if weight != 0}
    total = sum(values.values())
    if not values or not all(weight > 0 for weight in values.values()) or not np.isfinite(total):
        raise ValueError(f"weights must be numbers, none negative and some positive, got {shorten(dict(weights))}")
    return {name: weight / total for name, weight in values.items()}


def share_draws(weights: Float[np.ndarray, " K"], num_draws: int, offset: float) -> list[int]:
    """Divide draws in proportion to the weights.

    Arguments:
        weights: The weights, whose sum is 1.
        num_draws: Number of draws.
        offset: With a uniform random number between 0 and 1, the expected shares are exact for any number of draws. With
            1/2 they are rounded.
    """
    # systematic sampling: how many of the points offset, offset + 1, ... are in each interval of length w_k * num_draws
    ends = [math.floor(end + 1 - offset) for end in accumulate(weights * num_draws, initial=0.0)]
    ends[-1] = num_draws
    return [last - first for first, last in pairwise(ends)]
