"""Weights of models by held-out rows, against a general optimiser."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from inducing.estimators import model_weights
from inducing.estimators.model_weights import find_weights, share_draws

RANDOM = np.random.default_rng(0)


# models that hardly differ need many iterations, and many rows for a gain beyond its standard error
@pytest.mark.parametrize(("spread", "number"), [(1.0, 300), (0.1, 6000)])
@pytest.mark.parametrize("seed", range(3))
def test_the_weights_have_the_highest_log_likelihood(seed, spread, number, monkeypatch):
    monkeypatch.setattr(model_weights, "LEAST_WEIGHT", 0.0)
    random = np.random.default_rng(seed)
    scores, rows = spread * random.normal(size=(number, 3)), random.uniform(0.5, 2, number)

    def loss(logits):
        return -np.average(logsumexp(scores + np.log(softmax(logits)), axis=1), weights=rows)

    best = minimize(loss, np.zeros(3), tol=1e-12)
    np.testing.assert_allclose(find_weights(scores, rows), softmax(best.x), atol=1e-4)


def test_small_weights_are_left_out():
    scores = RANDOM.normal(size=(400, 2))
    scores = np.column_stack([scores, np.where(np.arange(400) < 4, 3.0, -9.0)])
    weights = find_weights(scores, np.ones(400))
    assert weights[2] == 0
    np.testing.assert_allclose(weights.sum(), 1)
    np.testing.assert_allclose(weights[:2], find_weights(scores[:, :2], np.ones(400)))


def test_of_many_models_those_of_the_smallest_weights_are_left_out_one_by_one():
    # each of twelve models predicts a twelfth of the rows best: all weights would be below the least one
    scores = np.where(np.arange(480)[:, None] % 12 == np.arange(12), 2.0, -2.0) + 0.1 * RANDOM.normal(size=(480, 12))
    weights = find_weights(scores, np.ones(480))
    assert 5 <= (weights > 0).sum() <= 10
    assert weights[weights > 0].min() >= model_weights.LEAST_WEIGHT
    np.testing.assert_allclose(weights.sum(), 1)


def test_of_equal_models_one_has_all_the_weight():
    assert sorted(find_weights(np.zeros((100, 12)), np.ones(100))) == [0.0] * 11 + [1.0]


def test_a_gain_within_its_standard_error_is_no_gain():
    """Of two equal models and noise, the better one has all the weight, and of one row it always has."""
    scores = np.stack([np.zeros(50), 0.01 * RANDOM.normal(size=50)], 1)
    scores[0] = (0.0, 0.5)
    weights = find_weights(scores, np.ones(50))
    assert sorted(weights) == [0, 1]
    assert find_weights(np.array([[-1.0, -2.0]]), np.ones(1)).tolist() == [1, 0]


@pytest.mark.parametrize("seed", range(10))
def test_weights_of_rows_count_as_numbers_of_rows(seed):
    random = np.random.default_rng(seed)
    scores, rows = 0.3 * random.normal(size=(30, 2)), random.integers(1, 6, 30)
    np.testing.assert_allclose(
        find_weights(scores, 1.0 * rows), find_weights(np.repeat(scores, rows, 0), np.ones(rows.sum()))
    )


@pytest.mark.parametrize("impossible", [np.nan, -np.inf])
def test_a_model_that_cannot_predict_a_row_has_no_weight_alone(impossible):
    scores = np.stack([np.full(30, -1.0), np.full(30, -0.9)], 1)
    scores[3, 1] = impossible
    weights = find_weights(scores, np.ones(30))
    assert np.isfinite(weights).all()
    assert weights[0] > 0
    assert find_weights(np.full((3, 2), impossible), np.ones(3)).tolist() == [1, 0]


@pytest.mark.parametrize("number", [1, 2, 7, 100])
def test_draws_are_shared_in_proportion_to_the_weights(number):
    weights = np.array([0.2, 0.5, 0.3])
    counts = np.array([share_draws(weights, number, offset) for offset in (np.arange(1000) + 0.5) / 1000])
    assert (counts.sum(1) == number).all()
    assert np.abs(counts - number * weights).max() < 1
    np.testing.assert_allclose(counts.mean(0), number * weights, atol=2e-3)
    if number == 100:
        assert share_draws(weights, number, 0.5) == [20, 50, 30]
