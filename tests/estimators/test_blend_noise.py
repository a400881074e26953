"""The noise of the models of a blend, chosen by held-out rows."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import norm
from sklearn.base import clone

import inducing
from inducing.estimators import auto
from inducing.estimators.blend_noise import FACTORS, PRIOR_STD, find_noise_factor
from inducing.prediction.log_scale import LogScale
from inducing.prediction.predictive import Predictive
from tests.estimators.examples import NeverFitted

ROWS = 2000
RANDOM = np.random.default_rng(0)
X, ERRORS = RANDOM.normal(size=(2, ROWS))
Y = X[:, None] + 0.3 * ERRORS[:, None]
ONES = np.ones(ROWS)
EQUAL = np.array([0.5, 0.5])


def log_factor(*arguments: Any) -> float:
    return math.log(find_noise_factor(*arguments))


def predictions(noise: float, *shifts: float, likelihood=inducing.Gaussian) -> list[Predictive]:
    """One model for each shift of its mean."""
    outputs = [torch.as_tensor(X + shift)[None, :, None] for shift in shifts]
    return [Predictive(each, likelihood(noise)) for each in outputs]


def test_a_mixture_of_models_with_the_right_noise_is_too_wide():
    """The oracle maximises the same objective by scipy, over all factors instead of a grid."""

    def objective(log_factor: float) -> float:
        std = 0.3 * math.exp(log_factor / 2)
        densities = [norm.pdf(Y[:, 0], X + shift, std) for shift in (0.2, -0.2)]
        return -np.log(np.mean(densities, 0)).sum() + (log_factor / PRIOR_STD) ** 2 / 2

    exact = minimize_scalar(objective, bounds=(-2, 2), method="bounded").x
    found = log_factor(predictions(0.09, 0.2, -0.2), EQUAL, Y, ONES)
    assert exact < -0.4
    assert abs(found - exact) <= math.log(2) / 8


@pytest.mark.parametrize("factor", [1.0, 1 / 2, 1 / 3])
def test_equal_models_that_are_too_wide_get_the_noise_of_the_rows(factor):
    found = log_factor(predictions(0.09 / factor, 0.0, 0.0), EQUAL, Y, ONES)
    assert found == pytest.approx(math.log(factor), abs=0.09)


def test_a_scale_is_the_root_of_a_variance():
    wide = predictions(0.3 * math.sqrt(2), 0.0, 0.0, likelihood=lambda scale: inducing.StudentT(scale, 1e4))
    assert log_factor(wide, EQUAL, Y, ONES) == pytest.approx(-math.log(2), abs=0.09)


def test_targets_on_a_log_scale():
    one = torch.ones(1, dtype=torch.float64)
    wide = predictions(0.18, 0.0, 0.0, likelihood=lambda v: LogScale(inducing.Gaussian(v), 0 * one, one, one.bool()))
    assert log_factor(wide, EQUAL, np.exp(Y), ONES) == pytest.approx(-math.log(2), abs=0.18)


def test_the_prior_keeps_the_factor_of_one_row_near_one():
    one = Predictive(torch.zeros(1, 1, 1, dtype=torch.float64), inducing.Gaussian(1.0))
    exact = minimize_scalar(
        lambda t: -norm.logpdf(0.0, 0, math.exp(t / 2)) + (t / PRIOR_STD) ** 2 / 2, bounds=(-2, 2), method="bounded"
    ).x
    found = log_factor([one, one], EQUAL, np.array([[0.0]]), ONES[:1])
    assert found == pytest.approx(exact, abs=math.log(2) / 16)


def test_factors_are_between_a_quarter_and_one():
    assert find_noise_factor(predictions(9.0, 0.0, 0.0), EQUAL, Y, ONES) == min(FACTORS)
    assert find_noise_factor(predictions(1e-4, 0.0, 0.0), EQUAL, Y, ONES) == 1.0


def test_one_outlier_does_not_widen_the_error_bars():
    y = Y.copy()
    y[0] += 100
    assert find_noise_factor(predictions(0.09, 0.0, 0.0), EQUAL, y, ONES) == 1.0


def test_missing_targets_do_not_count():
    outputs = torch.as_tensor(np.stack([X, X], 1))[None]
    both = [Predictive(outputs, inducing.Gaussian(0.18))] * 2
    targets = np.column_stack([Y, np.where(np.arange(ROWS) % 2 == 0, np.nan, Y[:, 0])])
    assert log_factor(both, EQUAL, targets, ONES) == pytest.approx(-math.log(2), abs=0.18)


def test_rows_count_by_their_weights():
    narrow = np.arange(ROWS) < ROWS / 2
    y = X[:, None] + 0.3 * np.where(narrow, 0.6, 1.0)[:, None] * ERRORS[:, None]
    found = [log_factor(predictions(0.09, 0.0, 0.0), EQUAL, y, 1.0 * each) for each in (narrow, ~narrow)]
    assert found == pytest.approx([2 * math.log(0.6), 0.0], abs=0.09)


def test_one_model_and_models_without_a_learned_noise_stay_as_they_are():
    assert find_noise_factor(predictions(1.0, 0.0), ONES[:1], Y, ONES) == 1.0
    fixed = predictions(1.0, 0.0, 0.0, likelihood=lambda variance: inducing.Gaussian(variance, learn_variance=False))
    assert find_noise_factor(fixed, EQUAL, Y, ONES) == 1.0
    classes = [Predictive(torch.zeros(1, ROWS, 3), inducing.Categorical()) for _ in range(2)]
    assert find_noise_factor(classes, EQUAL, np.zeros(ROWS, dtype=int), ONES) == 1.0


def test_models_stay_as_they_are_if_no_factor_makes_the_rows_possible():
    nowhere = Predictive(torch.full((1, 3, 1), math.nan, dtype=torch.float64), inducing.Gaussian())
    impossible = [nowhere] * 2
    assert find_noise_factor(impossible, EQUAL, Y[:3], ONES[:3]) == 1.0


def test_predictions_of_a_blend_have_the_factor_and_its_models_do_not(tmp_path, monkeypatch):
    x, y = X[:200, None], Y[:200, 0]
    candidates = {"first": inducing.BNNRegressor([5], max_steps=60), "second": inducing.BNNRegressor([5], max_steps=60)}
    monkeypatch.setattr(auto, "find_noise_factor", lambda *arguments: 0.5)
    model = inducing.AutoRegressor(candidates, random_state=0).fit(x, y)
    alone = inducing.AutoRegressor(candidates, weights=model.weights_, random_state=0).fit(x, y)
    assert (model.noise_factor_, alone.noise_factor_) == (0.5, 1.0)
    narrow, wide = (each.predict_distribution(x) for each in (model, alone))
    torch.testing.assert_close(narrow.aleatoric, wide.aleatoric / 2)
    torch.testing.assert_close(narrow.epistemic, wide.epistemic)
    for name, member in model.members_.items():
        assert np.array_equal(member.predict_interval(x), alone.members_[name].predict_interval(x))
    inducing.save(model, tmp_path / "blend.safetensors")
    loaded = inducing.load(tmp_path / "blend.safetensors")
    assert np.array_equal(loaded.predict_interval(x), model.predict_interval(x))
    again = clone(loaded).fit(x, y)
    assert (again.noise_factor_, list(again.weights_)) == (0.5, list(model.weights_)), "a new fit keeps both"
    assert loaded.update(x[:5] + 1, y[:5]).noise_factor_ == 0.5
    state, parts = model.to_parts()
    del state["noise_factor"]
    assert inducing.AutoRegressor.from_parts(state, parts).noise_factor_ == 1.0, "a file of an earlier version"


@pytest.mark.parametrize(("factor", "message"), [(0.1, "between 0.25 and 1"), (2.0, "between"), ("small", "a number")])
def test_given_factors_are_checked_before_any_fit(factor, message):
    with pytest.raises((ValueError, TypeError), match=message):
        inducing.AutoRegressor({"one": NeverFitted()}, noise_factor=factor).fit(X[:9, None], Y[:9, 0])


def test_a_given_factor_is_used_as_it_is():
    candidates = {name: inducing.BNNRegressor([3], max_steps=2) for name in ("first", "second")}
    for weights in (None, {"first": 1}):
        model = inducing.AutoRegressor(candidates, weights=weights, noise_factor=0.3, random_state=0)
        assert model.fit(X[:40, None], Y[:40, 0]).noise_factor_ == 0.3
