"""Weights of models by held-out rows, against a general optimiser."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from inducing.estimators.model_weights import find_weights, share_draws


# models that hardly differ need many iterations
@pytest.mark.parametrize(("spread", "number"), [(1.0, 300), (0.1, 6000)])
@pytest.mark.parametrize("seed", range(3))
def test_the_weights_have_the_highest_log_likelihood_with_one_more_row_for_each_model(seed, spread, number):
    random = np.random.default_rng(seed)
    scores, rows = spread * random.normal(size=(number, 3)), random.uniform(0.5, 2, number)

    def loss(logits):
        weights = softmax(logits)
        return -(rows @ logsumexp(scores + np.log(weights), axis=1) + np.log(weights).sum()) / rows.sum()

    best = minimize(loss, np.zeros(3), tol=1e-12)
    np.testing.assert_allclose(find_weights(scores, rows), softmax(best.x), atol=1e-4)


def test_small_weights_are_left_out():
    scores = np.stack([np.zeros(2000), np.full(2000, -1.0)], 1)
    assert find_weights(scores, np.ones(2000)).tolist() == [1, 0]
    few = find_weights(scores[:20], np.ones(20))
    assert 0.01 < few[1] < 0.1


@pytest.mark.parametrize("number", [1, 3, 20, 97, 1000])
def test_a_model_far_behind_on_all_rows_is_left_out(number):
    """It would ruin the mean of a blend, even with a weight of 0.01."""
    scores = np.stack([np.cos(np.arange(number)), np.full(number, -100.0), np.sin(np.arange(number))], 1)
    weights = find_weights(scores, np.ones(number))
    assert weights[1] == 0
    assert weights[[0, 2]].min() > 0
    np.testing.assert_allclose(weights.sum(), 1)


@pytest.mark.parametrize("number", [2, 12, 120, 500])
def test_of_any_number_of_models_that_are_alike_all_have_a_weight(number):
    np.testing.assert_allclose(find_weights(np.zeros((100, number)), np.ones(100)), 1 / number)
    alike = find_weights(0.1 * np.random.default_rng(number).normal(size=(400, number)), np.ones(400))
    assert (alike > 0).mean() > 0.5
    np.testing.assert_allclose(alike.sum(), 1)


def test_a_row_that_the_best_model_misses_costs_little():
    """Held-out rows without an outlier prefer light tails. A new row with one is then nearly impossible under them alone."""
    held_out = np.stack([np.zeros(80), np.full(80, -0.5)], 1)
    weights = find_weights(held_out, np.ones(80))
    outlier = logsumexp(np.array([-200.0, -4.0]) + np.log(weights))
    assert outlier > -10
    usual = logsumexp(np.array([0.0, -0.5]) + np.log(weights))
    assert usual > -0.03


@pytest.mark.parametrize("seed", range(10))
def test_weights_of_rows_count_as_numbers_of_rows(seed):
    random = np.random.default_rng(seed)
    scores, rows = 0.3 * random.normal(size=(30, 2)), random.integers(1, 6, 30)
    np.testing.assert_allclose(
        find_weights(scores, 1.0 * rows), find_weights(np.repeat(scores, rows, 0), np.ones(rows.sum()))
    )


def test_a_model_that_cannot_predict_a_row_has_no_weight():
    scores = np.stack([np.full(30, -1.0), np.full(30, -0.9)], 1)
    scores[3, 1] = np.nan
    assert find_weights(scores, np.ones(30)).tolist() == [1, 0]
    assert find_weights(np.full((3, 2), np.nan), np.ones(3)).tolist() == [0.5, 0.5]


def test_a_model_to_which_a_row_is_impossible_may_have_a_weight():
    scores = np.stack([np.full(30, -1.0), np.full(30, -0.9)], 1)
    scores[3, 1] = -np.inf
    weights = find_weights(scores, np.ones(30))
    assert 0 < weights[1] < 1
    np.testing.assert_allclose(find_weights(np.full((3, 2), -np.inf), np.ones(3)), 0.5)


@pytest.mark.parametrize("number", [1, 2, 7, 100])
def test_draws_are_shared_in_proportion_to_the_weights(number):
    weights = np.array([0.2, 0.5, 0.3])
    counts = np.array([share_draws(weights, number, offset) for offset in (np.arange(1000) + 0.5) / 1000])
    assert (counts.sum(1) == number).all()
    assert np.abs(counts - number * weights).max() < 1
    np.testing.assert_allclose(counts.mean(0), number * weights, atol=2e-3)
    if number == 100:
        assert share_draws(weights, number, 0.5) == [20, 50, 30]
