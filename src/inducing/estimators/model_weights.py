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
# the iteration ends when no weight changes by more
TOLERANCE, MOST_ITERATIONS = 1e-9, 100_000
# a row with this log-likelihood is as bad as an impossible one
IMPOSSIBLE = -1e6


def find_weights(
    log_likelihoods: Float[np.ndarray, "N K"], row_weights: Float[np.ndarray, " N"]
) -> Float[np.ndarray, " K"]:
    """Find the weights of the highest log-likelihood.

    The best model has all the weight if the gain of the mixture over it is at most one standard error.

    Arguments:
        log_likelihoods: Log-likelihood of each row under each model.
        row_weights: Weights of the rows, positive.
    """
    scores = np.maximum(np.nan_to_num(log_likelihoods, nan=IMPOSSIBLE), IMPOSSIBLE)
    shares, places = row_weights / row_weights.sum(), np.arange(scores.shape[1])
    kept, weights = places, _maximise(scores, shares)
    while weights.min() < LEAST_WEIGHT:
        kept = np.delete(kept, weights.argmin())
        weights = _maximise(scores[:, kept], shares)
    best = (shares @ scores).argmax()
    gains = np.logaddexp.reduce(scores[:, kept] + np.log(weights), 1) - scores[:, best]
    mean = shares @ gains
    # the standard error of the mean of as many rows as the sum of the weights
    error = math.sqrt(shares @ (gains - mean) ** 2 / row_weights.sum())
    found = np.zeros(len(places))
    found[kept] = weights
    return found if mean > error else (places == best).astype(float)


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


def _maximise(scores: Float[np.ndarray, "N K"], shares: Float[np.ndarray, " N"]) -> Float[np.ndarray, " K"]:
    # densities in units of the largest of each row
    densities = np.exp(scores - scores.max(1, keepdims=True))
    weights = np.full(scores.shape[1], 1 / scores.shape[1])
    for _ in range(MOST_ITERATIONS):
        before, weights = weights, weights * ((shares / (densities @ weights)) @ densities)
        if np.abs(weights - before).max() < TOLERANCE:
            break
    return weights / weights.sum()
