"""The benchmark of the estimators."""

import numpy as np
import pytest

from benchmarks import estimator_page, estimators
from benchmarks.estimator_peers import PEERS, by_row

X = np.random.default_rng(0).normal(size=(80, 3))
Y = 10 + X[:, 0] + 0.1 * np.random.default_rng(1).normal(size=80)


@pytest.mark.parametrize("model", ["Ridge", "BoostedTrees", "GaussianProcess"])
def test_peers_are_scored(model):
    found = estimators.run_fold(model, (X[:60], Y[:60], X[60:], Y[60:]), 0)
    assert found["rmse"] < Y.std()
    assert found["log_likelihood"] > -2
    assert set(PEERS) > {"CatBoost", "NGBoost"}


def test_a_gaussian_for_each_row():
    mean, deviation = np.array([9.0, 11.0]), np.array([0.5, 2.0])
    prediction = by_row(mean, deviation, Y)
    np.testing.assert_allclose(prediction.mean[:, 0], mean)
    np.testing.assert_allclose(prediction.stddev[:, 0], deviation)
    expected = -0.5 * np.log(2 * np.pi) - np.log(deviation) - 0.5 * ((10 - mean) / deviation) ** 2
    np.testing.assert_allclose(prediction.log_prob(np.array([10.0, 10.0])), expected)


def test_the_page_and_the_figure_show_what_is_stored():
    scores = {"log_likelihood": -1.5, "rmse": 2.25, "crps": 1.0, "seconds": 3.0, "test_rows": 10}
    scores |= {f"coverage_{level}": level / 100 for level in (50, 90, 95)}
    models = ["BoostedTrees", "GaussianProcess", "BNNRegressor"]
    results = {("boston", fold, model): scores for fold in range(5) for model in models}
    text = estimator_page.page(results)
    assert "| boston | BNNRegressor | 5 | -1.50 ± 0.00 | 2.25 ± 0.00 |" in text
    assert "kin8nm | BNNRegressor" not in text
    axes = estimator_page.figure(results).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["boston"]
