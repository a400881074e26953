"""The noise of the models of a blend, chosen by held-out rows."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import norm

import inducing
from inducing.estimators.blend_noise import PRIOR_STD, HeldOutPrediction, find_log_noise_factor
from inducing.estimators.noise import multiply_noise, noise_of
from inducing.nn.likelihoods.parameters import LOG_VARIANCE_SCALE
from inducing.prediction.log_scale import LogScale
from inducing.prediction.predictive import Predictive

ROWS = 2000
RANDOM = np.random.default_rng(0)
X, ERRORS = RANDOM.normal(size=(2, ROWS))
Y = X[:, None] + 0.3 * ERRORS[:, None]
ONES = np.ones(ROWS)
EQUAL = np.array([0.5, 0.5])


def predictions(noise: float, *shifts: float, likelihood=inducing.Gaussian) -> list[HeldOutPrediction]:
    """One model for each shift of its mean."""
    outputs = [torch.as_tensor(X + shift)[None, :, None] for shift in shifts]
    return [HeldOutPrediction(Predictive(each, likelihood(noise))) for each in outputs]


def test_a_mixture_of_models_with_the_right_noise_is_too_wide():
    """The oracle maximises the same objective by scipy, over all factors instead of a grid."""

    def objective(log_factor: float) -> float:
        std = 0.3 * math.exp(log_factor / 2)
        densities = [norm.pdf(Y[:, 0], X + shift, std) for shift in (0.2, -0.2)]
        return -np.log(np.mean(densities, 0)).sum() + (log_factor / PRIOR_STD) ** 2 / 2

    exact = minimize_scalar(objective, bounds=(-2, 2), method="bounded").x
    found = find_log_noise_factor(predictions(0.09, 0.2, -0.2), EQUAL, Y, ONES)
    assert exact < -0.4
    assert abs(found - exact) <= math.log(2) / 8


@pytest.mark.parametrize(("noise", "factor"), [(0.09, 1.0), (0.09 * 2, 1 / 2), (0.09 / 2, 2.0)])
def test_equal_models_get_the_noise_of_the_rows(noise, factor):
    assert find_log_noise_factor(predictions(noise, 0.0, 0.0), EQUAL, Y, ONES) == pytest.approx(
        math.log(factor), abs=0.18
    )


@pytest.mark.parametrize("factor", [1 / 2, 2.0])
def test_a_scale_is_the_root_of_a_variance(factor):
    wrong = predictions(0.3 / math.sqrt(factor), 0.0, 0.0, likelihood=lambda scale: inducing.StudentT(scale, 1e4))
    assert find_log_noise_factor(wrong, EQUAL, Y, ONES) == pytest.approx(math.log(factor), abs=0.18)


def test_targets_on_a_log_scale():
    one = torch.ones(1, dtype=torch.float64)
    wide = predictions(0.18, 0.0, 0.0, likelihood=lambda v: LogScale(inducing.Gaussian(v), 0 * one, one, one.bool()))
    assert find_log_noise_factor(wide, EQUAL, np.exp(Y), ONES) == pytest.approx(-math.log(2), abs=0.18)


def test_the_prior_keeps_the_factor_of_one_row_near_one():
    one = HeldOutPrediction(Predictive(torch.zeros(1, 1, 1, dtype=torch.float64), inducing.Gaussian(1.0)))
    exact = minimize_scalar(
        lambda t: -norm.logpdf(2.0, 0, math.exp(t / 2)) + (t / PRIOR_STD) ** 2 / 2, bounds=(-2, 2), method="bounded"
    ).x
    found = find_log_noise_factor([one, one], EQUAL, np.array([[2.0]]), ONES[:1])
    assert found == pytest.approx(exact, abs=math.log(2) / 8)


def test_factors_are_at_most_4():
    assert find_log_noise_factor(predictions(1e-4, 0.0, 0.0), EQUAL, Y, ONES) == pytest.approx(math.log(4))


def test_missing_targets_do_not_count():
    outputs = torch.as_tensor(np.stack([X, X], 1))[None]
    both = [HeldOutPrediction(Predictive(outputs, inducing.Gaussian(0.18))) for _ in range(2)]
    targets = np.column_stack([Y, np.where(np.arange(ROWS) % 2 == 0, np.nan, Y[:, 0])])
    assert find_log_noise_factor(both, EQUAL, targets, ONES) == pytest.approx(-math.log(2), abs=0.18)


def test_an_exact_last_layer_is_drawn_again_for_each_noise():
    """The factor that is found is that of the predictions after it was applied."""
    x, y = X[:60, None], Y[:60, 0]
    models = [inducing.BNNRegressor([5], max_steps=30, random_state=seed).fit(x, y) for seed in (0, 1)]
    assert models[0].network_.optimal_last is not None
    held_out = [HeldOutPrediction.by(model, X[60:90, None]) for model in models]
    before = models[0].predict_distribution(X[60:90, None])
    for model, each in zip(models, held_out, strict=True):
        found = each.with_noise(-1.0)
        multiply_noise(model.likelihood_, -1.0)
        applied = model.predict_distribution(X[60:90, None])
        assert torch.equal(found.log_prob(Y[60:90]), applied.log_prob(Y[60:90]))
    assert not torch.allclose(held_out[0].with_noise(-1.0).epistemic, before.epistemic, rtol=0.01)


def test_rows_count_by_their_weights():
    wide = np.arange(ROWS) < ROWS / 2
    y = X[:, None] + 0.3 * (1 + wide[:, None]) * ERRORS[:, None]
    factors = [
        find_log_noise_factor(predictions(0.09, 0.0, 0.0), EQUAL, y, weights) for weights in (1.0 * wide, 1.0 - wide)
    ]
    assert factors == pytest.approx([math.log(4), 0.0], abs=0.18)


def test_one_model_and_models_without_a_learned_noise_stay_as_they_are():
    assert find_log_noise_factor(predictions(1.0, 0.0), ONES[:1], Y, ONES) == 0.0
    fixed = predictions(1.0, 0.0, 0.0, likelihood=lambda variance: inducing.Gaussian(variance, learn_variance=False))
    assert find_log_noise_factor(fixed, EQUAL, Y, ONES) == 0.0
    classes = [HeldOutPrediction(Predictive(torch.zeros(1, ROWS, 3), inducing.Categorical())) for _ in range(2)]
    assert find_log_noise_factor(classes, EQUAL, np.zeros(ROWS, dtype=int), ONES) == 0.0


def test_models_stay_as_they_are_if_no_factor_makes_the_rows_possible():
    nowhere = Predictive(torch.full((1, 3, 1), math.nan, dtype=torch.float64), inducing.Gaussian())
    impossible = [HeldOutPrediction(nowhere)] * 2
    assert find_log_noise_factor(impossible, EQUAL, Y[:3], ONES[:3]) == 0.0


def test_the_noise_of_a_blend_is_multiplied_and_the_models_are_saved_with_it(tmp_path):
    x, y = X[:200, None], Y[:200, 0]
    candidates = {"first": inducing.BNNRegressor([5], max_steps=60), "second": inducing.BNNRegressor([5], max_steps=60)}
    model = inducing.AutoRegressor(candidates, random_state=0).fit(x, y)
    assert len(model.weights_) == 2
    alone = inducing.AutoRegressor(candidates, weights=model.weights_, random_state=0).fit(x, y)
    factors = []
    for name, member in model.members_.items():
        (ours, _), (theirs, _) = (noise_of(each.likelihood_)[0] for each in (member, alone.members_[name]))
        factors.append(math.exp(LOG_VARIANCE_SCALE * (ours - theirs).item()))
    assert factors[0] == pytest.approx(factors[1], rel=1e-4), "one factor for all models"
    assert factors[0] == pytest.approx(model.noise_factor_, rel=1e-4)
    assert model.noise_factor_ != alone.noise_factor_ == 1.0
    inducing.save(model, tmp_path / "blend.safetensors")
    loaded = inducing.load(tmp_path / "blend.safetensors")
    assert np.array_equal(loaded.predict_interval(x), model.predict_interval(x))
    assert loaded.noise_factor_ == model.noise_factor_
    factor = model.noise_factor_
    assert model.update(x[:5] + 1, y[:5]).noise_factor_ == factor
    state, parts = loaded.to_parts()
    del state["noise_factor"]
    assert inducing.AutoRegressor.from_parts(state, parts).noise_factor_ == 1.0, "a file of an earlier version"
