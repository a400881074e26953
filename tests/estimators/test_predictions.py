"""Predictions of regressors: means, covariances, quantiles, samples and functions."""

import pickle

import numpy as np
import pytest

import inducing
from inducing.estimators import functions
from tests.estimators.examples import BOTH, REGRESSORS, SMALL, X, Y

# a last layer that is learned, one that is exact, and processes
MODELS = [(REGRESSORS[0], 15), (REGRESSORS[0], "auto"), (REGRESSORS[1], 15)]


@pytest.fixture(scope="module", params=MODELS, ids=["learned", "exact", "processes"])
def model(request):
    kind, number = request.param
    return kind(**SMALL | {"num_inducing": number, "max_steps": 60}).fit(X, Y)


@pytest.fixture(scope="module")
def two():
    return inducing.BNNRegressor(**SMALL | {"max_steps": 60}).fit(X, BOTH)


def test_predictions_are_on_the_scale_of_the_targets(model):
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (60,)
    assert mean.dtype == std.dtype == np.float64
    assert np.array_equal(mean, model.predict(X))
    assert abs(mean.mean() - 100) < 10
    assert ((std > 0.5) & (std < 40)).all()
    assert model.score(X, Y) > 0.3
    assert -10 < model.elbo_ < 5
    assert len(model.history_) == 60


def test_the_covariance_agrees_with_the_standard_deviation(model):
    mean, cov = model.predict(X[:7], return_cov=True)
    expected, std = model.predict(X[:7], return_std=True)
    assert cov.shape == (7, 7)
    np.testing.assert_allclose(mean, expected)
    np.testing.assert_allclose(np.diag(cov), std**2)
    np.testing.assert_allclose(cov, cov.T)
    assert np.linalg.eigvalsh(cov).min() > 0
    with pytest.raises(RuntimeError, match="at most one of return_std and return_cov"):
        model.predict(X, return_std=True, return_cov=True)


def test_intervals_are_quantiles(model):
    low, high = model.predict_interval(X, 0.5)
    quantiles = model.predict_quantiles(X, [0.25, 0.5, 0.75])
    assert quantiles.shape == (3, 60)
    assert np.array_equal(low, quantiles[0])
    assert np.array_equal(high, quantiles[2])
    assert (np.diff(quantiles, axis=0) > 0).all()
    assert np.array_equal(model.predict_quantiles(X, 0.25), low)
    with pytest.raises(ValueError, match=r"coverage must be between 0 and 1, got 90"):
        model.predict_interval(X, 90)
    with pytest.raises(ValueError, match="between 0 and 1"):
        model.predict_quantiles(X, 1.0)


def test_predictions_do_not_depend_on_the_batches(model, monkeypatch):
    whole = model.predict(X, return_std=True), model.predict_quantiles(X, 0.1), model.sample_y(X, 3, 1)
    monkeypatch.setattr(functions, "BATCH_NUMBERS", 7 * model.n_samples * model._width())
    parts = model.predict(X, return_std=True), model.predict_quantiles(X, 0.1), model.sample_y(X, 3, 1)
    rows = [model.predict(X[row : row + 1])[0] for row in range(5)]
    np.testing.assert_allclose(parts[0], whole[0], rtol=1e-10)
    np.testing.assert_allclose(parts[1], whole[1], rtol=1e-10)
    np.testing.assert_allclose(parts[2], whole[2], rtol=1e-10)
    np.testing.assert_allclose(rows, whole[0][0][:5], rtol=1e-10)


def test_memory_of_a_batch_is_bounded(model, monkeypatch):
    """However many rows there are, a batch holds no more numbers than it may."""
    monkeypatch.setattr(functions, "BATCH_NUMBERS", 2**17)
    batches = model.sample_functions(5).predict_batches(np.zeros((1000, 2)))
    sizes = [predictive.outputs.shape[1] for predictive in batches]
    assert sum(sizes) == 1000
    assert max(sizes) * 5 * model._width() <= 2**17


def test_sampled_functions_are_functions(model):
    functions = model.sample_functions(4, random_state=1)
    values = functions(X)
    assert values.shape == (4, 60)
    np.testing.assert_allclose(functions(X[5:9]), values[:, 5:9], rtol=1e-10)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(functions))(X), values, rtol=1e-12)
    assert not np.allclose(model.sample_functions(4, random_state=2)(X), values)
    # on the scale of the targets, around their mean
    many = model.sample_functions(200, random_state=0)(X)
    epistemic = model.predict_distribution(X).epistemic.numpy()[:, 0]
    assert (np.abs(many.mean(0) - model.predict(X)) < 6 * np.sqrt(epistemic / model.n_samples)).all()


def test_samples_have_the_noise_of_the_targets(model):
    samples = model.sample_y(X[:10], 500, random_state=0)
    assert samples.shape == (10, 500)
    _, std = model.predict(X[:10], return_std=True)
    assert np.abs(samples.std(1) / std - 1).max() < 0.4
    assert np.array_equal(samples, model.sample_y(X[:10], 500, random_state=0))
    assert not np.array_equal(samples[:, :5], model.sample_y(X[:10], 5, np.random.RandomState(7)))


def test_several_targets(two):
    mean, std = two.predict(X, return_std=True)
    assert mean.shape == std.shape == (60, 2)
    assert two.predict(X[:5], return_cov=True)[1].shape == (5, 5, 2)
    assert two.predict_quantiles(X, [0.1, 0.9, 0.95]).shape == (3, 60, 2)
    assert two.sample_y(X, 4).shape == (60, 2, 4)
    assert two.sample_functions(4)(X).shape == (4, 60, 2)
    assert two.likelihood_.noise_variance.shape == (2,)
    assert two.score(X, BOTH) > 0.3
    # one column is not the same as none
    assert inducing.BNNRegressor(**{**SMALL, "max_steps": 1}).fit(X, Y[:, None]).predict(X).shape == (60, 1)


def test_reversed_rows_are_predicted_as_others(two):
    backward = X[::-1]
    np.testing.assert_allclose(two.predict(backward), two.predict(X)[::-1])
    np.testing.assert_allclose(two.score(backward, BOTH[::-1]), two.score(X, BOTH))
    assert two.sample_y(np.flip(X, 0), 2).shape == (60, 2, 2)
    assert two.sample_functions(2)(backward).shape == (2, 60, 2)
    two.predict_distribution(backward).log_prob(BOTH[::-1])


@pytest.mark.parametrize(("value", "found", "advice"), [(np.nan, "NaN", ", or impute"), (-np.inf, "infinity", "")])
def test_inputs_that_are_not_finite_are_refused_with_their_place(model, value, found, advice):
    inputs = X.copy()
    inputs[[3, 5], 1] = value
    message = (
        rf"Input X contains {found}.* in 2 rows \(first in row 3 and column 1\)\. Remove these rows{advice or '.'}"
    )
    for use in (inducing.BNNRegressor(max_steps=1).fit, model.score):
        with pytest.raises(ValueError, match=message):
            use(inputs, Y)
