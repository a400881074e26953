"""The regressor for skpro: skpro's own checks, and the distribution against the prediction it is made of."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import integrate
from sklearn.preprocessing import StandardScaler

import inducing
from inducing.prediction.log_scale import LogScale
from inducing.prediction.predictive import Predictive

# it needs another version of pandas: make test-skpro
pytest.importorskip("skpro")

from skpro.metrics import CRPS
from skpro.utils.estimator_checks import check_estimator

from inducing.integrations.skpro import InducingRegressor, PredictiveDistribution

RANDOM = np.random.default_rng(0)
X = pd.DataFrame(RANDOM.normal(size=(30, 2)), columns=["a", "b"], index=range(100, 130))
Y = pd.DataFrame({"one": X["a"] ** 2, "two": X["b"] + 3})
SMALL = {"max_steps": 3, "n_samples": 7, "random_state": 0}
OUTPUTS = torch.randn(6, 5, 4, generator=torch.Generator().manual_seed(0)).double()
A, B = torch.tensor([1.0, -2.0]).double(), torch.tensor([0.5, 3.0]).double()
NOISE = {
    "gaussian": inducing.Gaussian([0.1, 0.2]),
    "student-t": inducing.StudentT([0.1, 0.2]),
    "heteroscedastic": inducing.HeteroscedasticGaussian([0.1, 0.2]),
    "poisson": inducing.Poisson(),
}


def bnn(**settings):
    return InducingRegressor(inducing.BNNRegressor([5], **SMALL, **settings))


def predictive(name):
    likelihood = NOISE[name].double().requires_grad_(False)
    outputs = OUTPUTS if name == "heteroscedastic" else OUTPUTS[..., :2]
    return Predictive(outputs, likelihood, *((0.0, 1.0) if name == "poisson" else (A, B)))


def distribution(name):
    return PredictiveDistribution(predictive(name), index=list("vwxyz"), columns=["one", "two"])


def failures(cls, **settings):
    """The checks of skpro that a class does not pass."""
    # they draw from NumPy's global generator
    np.random.seed(0)  # noqa: NPY002
    with warnings.catch_warnings():
        # skpro warns where it approximates
        warnings.simplefilter("ignore")
        results = check_estimator(cls, verbose=False, **settings)
    assert results
    return {name: error for name, error in results.items() if error != "PASSED"}


def test_the_regressors_pass_the_checks_of_skpro():
    assert failures(InducingRegressor) == {}


def test_the_distribution_passes_the_checks_of_skpro():
    # the norm of the density is approximated by 1,000 samples
    assert failures(PredictiveDistribution, tests_to_exclude="test_methods_scalar") == {}


@pytest.mark.slow
def test_the_distribution_passes_the_slow_checks_of_skpro():
    assert failures(PredictiveDistribution, tests_to_run="test_methods_scalar") == {}


@pytest.mark.parametrize("name", NOISE)
def test_moments_and_quantiles_are_those_of_the_prediction(name):
    found, expected = distribution(name), predictive(name)
    np.testing.assert_allclose(found.mean(), expected.mean)
    np.testing.assert_allclose(found.var(), expected.variance)
    quantiles = found.quantile([0.1, 0.9])
    np.testing.assert_allclose(quantiles["one"].T, expected.quantile([0.1, 0.9])[..., 0])
    levels = np.linspace(0.02, 0.98, 10).reshape(5, 2)
    rows = [[expected.quantile(level)[i, j].item() for j, level in enumerate(row)] for i, row in enumerate(levels)]
    np.testing.assert_allclose(found.ppf(levels), rows, rtol=1e-6)
    ends = found.ppf(np.tile([0.0, 1.0], (5, 1)))
    assert (ends.to_numpy() == [-np.inf, np.inf]).all()
    assert np.isfinite(found.ppf(np.tile([1e-100, 1 - 1e-16], (5, 1)))).all(axis=None)


@pytest.mark.parametrize("name", ["gaussian", "student-t", "heteroscedastic"])
def test_the_density_is_the_derivative_of_the_distribution_function(name):
    found, x = distribution(name), np.linspace(-2, 2, 10).reshape(5, 2)
    slope = (found.cdf(x + 1e-5) - found.cdf(x - 1e-5)) / 2e-5
    np.testing.assert_allclose(found.pdf(x), slope, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(np.exp(found.log_pdf(x)), found.pdf(x))
    np.testing.assert_allclose(found.pmf(x), 0.0)
    assert (found.pdf(np.inf) == 0).all(axis=None)
    assert found.pdf(np.nan).isna().all(axis=None)


def test_counts_have_probabilities():
    found = distribution("poisson")
    total = sum(found.pmf(np.full((5, 2), float(k))) for k in range(150))
    np.testing.assert_allclose(total, 1.0)
    np.testing.assert_allclose(found.cdf(np.zeros((5, 2))), found.pmf(np.zeros((5, 2))))
    assert (found.pmf(0.5) == 0).all(axis=None)
    assert (found.pmf(-1.0) == 0).all(axis=None)
    assert "energy" in found.get_tag("capabilities:approx")
    assert "energy" in distribution("gaussian").get_tag("capabilities:exact")


def test_a_log_scale_has_no_density_below_zero():
    scale = LogScale(inducing.Gaussian(0.3).double().requires_grad_(False), A, B, torch.tensor([True, False]))
    found = PredictiveDistribution(Predictive(OUTPUTS[..., :2], scale))
    assert (found.pdf(-1.0)[0] == 0).all()
    mass, _ = integrate.quad(lambda x: found.pdf(x).iloc[0, 0], 0, np.inf, limit=200)
    assert mass == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("name", ["gaussian", "student-t"])
def test_the_crps_of_skpro_is_ours(name):
    y = pd.DataFrame(np.linspace(-2, 2, 10).reshape(5, 2), index=list("vwxyz"), columns=["one", "two"])
    expected = inducing.metrics.crps(predictive(name), y.to_numpy())
    assert CRPS()(y, distribution(name)) == pytest.approx(expected)


def test_rows_and_columns_are_selected_by_name():
    whole = distribution("gaussian")
    part = whole.loc[["x", "v"], ["two"]]
    assert part.shape == (2, 1)
    pd.testing.assert_frame_equal(part.mean(), whole.mean().loc[["x", "v"], ["two"]])
    pd.testing.assert_frame_equal(part.cdf(0.3), whole.cdf(0.3).loc[["x", "v"], ["two"]])
    pd.testing.assert_frame_equal(whole.iloc[1:3].pdf(0.3), whole.pdf(0.3).iloc[1:3])
    one = whole.at["y", "one"]
    assert one.ndim == 0
    assert one.ppf(0.3) == pytest.approx(whole.ppf(0.3).loc["y", "one"])
    assert isinstance(one.sample(), float)


def test_networks_in_float32():
    outputs, noise = OUTPUTS[..., :2].float(), inducing.Gaussian([0.1, 0.2]).requires_grad_(False)
    found, x = PredictiveDistribution(Predictive(outputs, noise)), np.linspace(-2, 2, 10).reshape(5, 2)
    wide = PredictiveDistribution(Predictive(outputs.double(), noise.double()))
    for method, argument in (("pdf", x), ("cdf", x), ("ppf", (x + 3) / 6), ("energy", x)):
        np.testing.assert_allclose(getattr(found, method)(argument), getattr(wide, method)(argument), rtol=1e-4)


def test_samples_have_the_moments_of_the_distribution():
    np.random.seed(0)  # noqa: NPY002
    found = distribution("gaussian")
    samples = found.sample(4000).to_numpy().reshape(4000, 5, 2)
    deviation = found.var().to_numpy() ** 0.5
    # the standard error of a mean of 4,000 samples is 1.6 % of the standard deviation
    assert (np.abs(samples.mean(0) - found.mean().to_numpy()) < 0.064 * deviation).all()
    np.random.seed(0)  # noqa: NPY002
    np.testing.assert_array_equal(found.sample(4000).to_numpy().reshape(4000, 5, 2), samples)


def test_a_regressor_predicts_as_its_estimator():
    model = bnn().fit(X, Y)
    estimator = inducing.BNNRegressor([5], **SMALL).fit(X, Y.to_numpy())
    np.testing.assert_array_equal(model.predict(X), estimator.predict(X))
    np.testing.assert_allclose(model.predict_var(X), estimator.predict(X, return_std=True)[1] ** 2)
    low, high = estimator.predict_interval(X, 0.8)
    found = model.predict_interval(X, 0.8)
    np.testing.assert_allclose(found["two"], np.column_stack([low[:, 1], high[:, 1]]))
    assert model.predict_proba(X).mean().equals(model.predict(X))


def test_targets_may_be_missing_and_new_rows_update_the_model():
    y = Y.mask(RANDOM.random(Y.shape) < 0.3)
    model = bnn(likelihood="gaussian").fit(X, y)
    before = model.predict(X)
    assert not model.update(X[:5] + 1, y[:5]).predict(X).equals(before)
    assert math.isfinite(model.predict(X).to_numpy().sum())


def test_tags_say_what_an_estimator_can_do():
    assert bnn().get_tag("capability:update")
    assert not bnn(likelihood="poisson").get_tag("capability:update")
    assert not bnn().get_tag("capability:missing")
    assert bnn(schema=inducing.Schema.of(X)).get_tag("capability:missing")
    table = X.mask(RANDOM.random(X.shape) < 0.1)
    model = bnn(schema=inducing.Schema.of(table)).fit(table, Y)
    assert np.isfinite(model.predict(table)).all(axis=None)
    assert isinstance(InducingRegressor()._given(), inducing.BNNRegressor)


def test_the_automatic_choice():
    candidates = {"bnn": inducing.BNNRegressor([5], **SMALL)}
    model = InducingRegressor(inducing.AutoRegressor(candidates, random_state=0)).fit(X, Y).update(X[:3], Y[:3])
    assert model.predict_proba(X).shape == (30, 2)


def test_draws_of_a_blend():
    np.random.seed(0)  # noqa: NPY002
    candidates = {"bnn": inducing.BNNRegressor([5], **SMALL), "dgp": inducing.DeepGPRegressor(**SMALL)}
    blended = inducing.AutoRegressor(candidates, weights={"bnn": 0.3, "dgp": 0.7}, random_state=0)
    found = InducingRegressor(blended).fit(X, Y).predict_proba(X[:5])
    samples = found.sample(4000).to_numpy().reshape(4000, 5, 2)
    error = found.var().to_numpy() ** 0.5 / 4000**0.5
    assert (np.abs(samples.mean(0) - found.mean().to_numpy()) < 4 * error).all()
    assert found.sample(3).shape == (15, 2)


def test_a_pipeline():
    last = inducing.BNNRegressor([5], **SMALL)
    model = InducingRegressor(inducing.Pipeline([("scale", StandardScaler()), ("model", last)])).fit(X, Y)
    assert model.predict_proba(X).quantile(0.5).shape == (30, 2)
    assert not model.get_tag("capability:update")
