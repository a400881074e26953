"""Tests of uniform ranks: the largest deviation of their empirical distribution function, with simultaneous bands.

A calibrated posterior has ranks that are uniform on 0, ..., L. Then the number of ranks below z (L + 1) is binomial, with
probability z, for each z. The simultaneous band is made of these pointwise intervals, at a level at which 95 % of simulated
sets of uniform ranks stay inside the band everywhere. The p-value of a set of ranks is the share of simulated sets whose
most extreme pointwise interval is at least as extreme.

References:
    Talts, Betancourt, Simpson, Vehtari & Gelman, Validating Bayesian inference algorithms with simulation-based calibration
    (2018).
    Säilynoja, Bürkner & Vehtari, Graphical test for discrete uniformity and its applications in goodness-of-fit evaluation
    and multiple sample comparison (2022).
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.stats import binom

# simulated sets of uniform ranks
REPLICATES = 10_000


class Band(NamedTuple):
    """The distribution of the most extreme pointwise tail probability of uniform ranks.

    Arguments:
        points: Points z at which distribution functions are compared.
        count: Number of ranks in a set.
        extremes: Sorted smallest two-sided tail probabilities of simulated sets.
    """

    points: np.ndarray
    count: int
    extremes: np.ndarray

    def p_value(self, ranks: np.ndarray) -> float:
        """Return the share of simulated sets that are at least as extreme as these ranks."""
        found = _smallest_tail(counts_below(ranks[None], self.points), self.points, self.count)[0]
        # as if the ranks were one more simulated set, so that the p-value is never 0
        return float((np.searchsorted(self.extremes, found, side="right") + 1) / (len(self.extremes) + 1))

    def limits(self, level: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper limits of the empirical distribution function at the points."""
        tail = np.quantile(self.extremes, level) / 2
        return tuple(binom.ppf(each, self.count, self.points) / self.count for each in (tail, 1 - tail))


@cache
def band(count: int, num_draws: int) -> Band:
    """Return the band of a number of ranks from 0 to ``num_draws``."""
    points = np.arange(1, num_draws + 1) / (num_draws + 1)
    simulated = np.random.default_rng(0).integers(0, num_draws + 1, (REPLICATES, count))
    extremes = np.sort(_smallest_tail(counts_below(simulated, points), points, count))
    return Band(points, count, extremes)


def counts_below(ranks: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return the number of ranks below z (L + 1) for each point z, for each set of ranks."""
    num_ranks = len(points) + 1
    sets = np.arange(len(ranks))[:, None] * num_ranks
    histogram = np.bincount((ranks + sets).ravel(), minlength=len(ranks) * num_ranks).reshape(len(ranks), num_ranks)
    return histogram.cumsum(1)[:, :-1]


def coverage(ranks: np.ndarray, num_draws: int, level: float) -> float:
    """Return the share of truths inside the central interval of a level."""
    return float((np.abs((ranks + 0.5) / (num_draws + 1) - 0.5) < level / 2).mean())


def _smallest_tail(counts: np.ndarray, points: np.ndarray, count: int) -> np.ndarray:
    # 2 min(P(X <= x), P(X >= x)) for all x and z, since counts are few different numbers
    possible = np.arange(count + 1)[:, None]
    tails = 2 * np.minimum(binom.cdf(possible, count, points), binom.sf(possible - 1, count, points))
    return tails[counts, np.arange(len(points))].min(1)
