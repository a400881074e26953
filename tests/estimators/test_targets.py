"""Targets on a log scale: when, and that everything else is on the original scale."""

import numpy as np
import pytest

import inducing
from inducing.estimators.targets import NumericTargets, choose_log_scale

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(80, 2))
PRICE = np.exp(10 + X[:, 0] + 0.1 * RANDOM.normal(size=80))
SMALL = {"num_inducing": 15, "n_samples": 20, "max_steps": 60, "random_state": 0}


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        (np.exp(RANDOM.normal(size=500)), True),
        (RANDOM.normal(size=500), False),
        (np.exp(RANDOM.normal(size=500)) - 0.1, False),
        (RANDOM.uniform(1, 2, 500), False),
        # the logarithm is as skewed to the other side
        (RANDOM.exponential(size=500), False),
        (np.ones(500), False),
        (1e300 * np.exp(RANDOM.normal(size=500)), True),
    ],
    ids=["log-normal", "normal", "negative", "uniform", "exponential", "constant", "large"],
)
def test_auto_looks_at_the_skewness(y, expected):
    assert choose_log_scale("auto", "auto", y) == (expected,)


def test_each_target_is_chosen_by_itself_and_a_weight_is_a_number_of_rows():
    y = np.stack([PRICE, -PRICE, X[:, 0]], 1)
    assert choose_log_scale("auto", "auto", y) == (True, False, False)
    weights = np.r_[np.ones(79), 0.0]
    assert choose_log_scale("auto", "auto", np.r_[PRICE[:79], 1e-300][:, None], weights) == (True,)


@pytest.mark.parametrize("kind", [inducing.BNNRegressor, inducing.DeepGPRegressor])
def test_predictions_are_on_the_original_scale(kind, tmp_path):
    model = kind(target_transform="auto", **SMALL).fit(X, PRICE)
    assert model.targets_.is_log == (True,)
    assert model.built.startswith("Gaussian likelihood")
    mean, std = model.predict(X, return_std=True)
    assert (mean > 0).all()
    assert (std > 0).all()
    low, high = model.predict_interval(X)
    assert ((low > 0) & (low < high)).all()
    assert np.corrcoef(np.log(mean), np.log(PRICE))[0, 1] > 0.9
    assert (model.sample_y(X, 5) > 0).all()
    inducing.save(model, tmp_path / "m.safetensors")
    again = inducing.load(tmp_path / "m.safetensors")
    assert again.targets_.is_log == (True,)
    assert again.target_transform == "auto"
    assert (again.predict(X) == mean).all()


def test_a_density_of_skewed_targets_is_higher_on_a_log_scale():
    found = []
    for transform in ("none", "log"):
        model = inducing.BNNRegressor(target_transform=transform, **SMALL).fit(X[:60], PRICE[:60])
        found.append(model.predict_distribution(X[60:]).log_prob(PRICE[60:]).mean())
    assert found[1] > found[0] + 0.3


@pytest.mark.parametrize(
    ("settings", "y", "message"),
    [
        ({"target_transform": "log"}, X[:, 0], "needs positive targets"),
        ({"target_transform": "logarithm"}, PRICE, "unknown target_transform 'logarithm'"),
        ({"target_transform": "log", "likelihood": "student-t"}, PRICE, "does not support the likelihood 'student-t'"),
        (
            {"target_transform": "log", "likelihood": "poisson"},
            PRICE.round(),
            "does not support the likelihood 'poisson'",
        ),
    ],
)
def test_what_is_refused(settings, y, message):
    with pytest.raises(ValueError, match=message):
        inducing.BNNRegressor(**SMALL | settings).fit(X, y)


@pytest.mark.parametrize("likelihood", ["student-t", "poisson"])
def test_auto_leaves_other_likelihoods_alone(likelihood):
    model = inducing.BNNRegressor(target_transform="auto", likelihood=likelihood, **SMALL | {"max_steps": 2})
    assert model.fit(X, PRICE.round()).targets_.is_log == (False,)


def test_warm_start_continues_on_the_log_scale():
    model = inducing.BNNRegressor(target_transform="log", warm_start=True, **SMALL).fit(X, PRICE)
    assert model.fit(X, PRICE).targets_.is_log == (True,)
    with pytest.raises(ValueError, match="must be positive"):
        model.fit(X, X[:, 0])


def test_a_file_that_does_not_fit_is_refused():
    state, tensors = NumericTargets.fit(PRICE, np.ones(80), True, (True,)).to_state()
    assert NumericTargets.from_state(state, tensors).is_log == (True,)
    # version 0.1.0
    assert NumericTargets.from_state({"ndim": 1}, tensors).is_log == (False,)
    model = inducing.BNNRegressor(likelihood="student-t", **SMALL | {"max_steps": 1}).fit(X, PRICE)
    state_of_model, tensors_of_model = model.to_state()
    wrong = state_of_model | {"targets": {"ndim": 1, "is_log": [True]}}
    with pytest.raises(ValueError, match="log scale needs Gaussian noise"):
        inducing.BNNRegressor.from_state(wrong, tensors_of_model, model.network_, model.likelihood_)
    for is_log in ([True, True], [1], "no"):
        with pytest.raises(ValueError, match="is_log"):
            NumericTargets.from_state(state | {"is_log": is_log}, tensors)
