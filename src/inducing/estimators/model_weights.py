"""Weights of several models, by the log-likelihoods of rows that none of them was fitted to.

    maximise over w   mean_i log sum_k w_k p_k(y_i | x_i),   w_k >= 0,  sum_k w_k = 1

The objective is concave, and never decreases in the iteration of expectation and maximisation

    w_k <- mean_i w_k p_k(y_i | x_i) / sum_j w_j p_j(y_i | x_i)

References:
    Yao et al., Using stacking to average Bayesian predictive distributions (2018).
"""

from __future__ import annotations

import math
from itertools import accumulate, pairwise

import numpy as np
from jaxtyping import Float

# models with smaller weights are left out
LEAST_WEIGHT = 0.1
ITERATIONS = 500
# a row with this log-likelihood is as bad as an impossible one
IMPOSSIBLE = -1e6


def find_weights(
    log_likelihoods: Float[np.ndarray, "N K"], row_weights: Float[np.ndarray, " N"]
) -> Float[np.ndarray, " K"]:
    """Find the weights of the highest log-likelihood.

    The best model alone has all the weight, unless the gain of the others is beyond its standard error.

    Arguments:
        log_likelihoods: Log-likelihood of each row under each model.
        row_weights: Weights of the rows.
    """
    scores = np.maximum(np.nan_to_num(log_likelihoods, nan=IMPOSSIBLE), IMPOSSIBLE)
    shares = row_weights / row_weights.sum()
    best = (np.arange(scores.shape[1]) == (shares @ scores).argmax()).astype(float)
    weights = _maximise(scores, shares, np.full(len(best), 1 / len(best)))
    while (smallest := weights[weights > 0].min()) < LEAST_WEIGHT:
        weights = _maximise(scores, shares, np.where(weights > smallest, weights, 0.0))
    gains = _mixture(scores, weights) - scores @ best
    mean = shares @ gains
    # the standard error of the mean of as many rows as the sum of the weights
    error = math.sqrt(shares @ (gains - mean) ** 2 / row_weights.sum())
    return weights if mean > error else best


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


def _maximise(
    scores: Float[np.ndarray, "N K"], shares: Float[np.ndarray, " N"], weights: Float[np.ndarray, " K"]
) -> Float[np.ndarray, " K"]:
    for _ in range(ITERATIONS):
        logs = scores + _log(weights)
        weights = shares @ np.exp(logs - np.logaddexp.reduce(logs, 1, keepdims=True))
    return weights / weights.sum()


def _mixture(scores: Float[np.ndarray, "N K"], weights: Float[np.ndarray, " K"]) -> Float[np.ndarray, " N"]:
    return np.logaddexp.reduce(scores + _log(weights), 1)


def _log(weights: Float[np.ndarray, " K"]) -> Float[np.ndarray, " K"]:
    return np.log(weights, out=np.full(len(weights), -np.inf), where=weights > 0)
