"""Simultaneous bands of uniform ranks: their level, and what they detect."""

import numpy as np
import pytest

from benchmarks.ranks import band, counts_below, coverage


def test_the_level_of_band_and_p_value_is_that_of_other_uniform_ranks():
    found = band(60, 19)
    sets = np.random.default_rng(1).integers(0, 20, (2000, 60))
    low, high = found.limits()
    curves = counts_below(sets, found.points) / 60
    inside = ((curves >= low) & (curves <= high)).all(1).mean()
    assert 0.935 < inside < 0.985
    p_values = np.array([found.p_value(ranks) for ranks in sets])
    assert 0.03 < (p_values <= 0.05).mean() < 0.07


@pytest.mark.parametrize("change", [lambda u: u**2, lambda u: 0.5 + (u - 0.5) / 2, lambda u: (u > 0.5) * 0.99])
def test_ranks_that_are_biased_or_too_narrow_or_too_wide_are_found(change):
    uniform = np.random.default_rng(0).random(100)
    assert band(100, 19).p_value((20 * uniform).astype(int)) > 0.05
    assert band(100, 19).p_value((20 * change(uniform)).astype(int)) < 0.001


def test_counts_and_coverage_by_hand():
    ranks = np.array([0, 0, 1, 3])
    assert counts_below(ranks[None], np.array([0.25, 0.5, 0.75])).tolist() == [[2, 3, 3]]
    # of the ranks 0, ..., 3 the central half is 1 and 2
    assert coverage(ranks, 3, 0.5) == 0.25
    assert coverage(np.arange(100), 99, 0.9) == 0.9
