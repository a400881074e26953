"""Estimators with NaN in some of several targets of a row."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import r2_score

import inducing

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(40, 2))
Y = np.column_stack([np.sin(X[:, 0]), 5 + 3 * X[:, 1]]) + 0.1 * RANDOM.normal(size=(40, 2))
Y[::3, 0], Y[1::4, 1] = np.nan, np.nan
# rows 9, 21 and 33 have no target
EMPTY = np.isnan(Y).all(1)
SMALL = {"max_steps": 3, "random_state": 0, "n_samples": 8}


def bnn(**settings):
    return inducing.BNNRegressor([5], **SMALL, **settings)


@pytest.mark.parametrize(
    "estimator",
    [
        *(bnn(likelihood=name) for name in ("gaussian", "heteroscedastic", "student-t")),
        inducing.DeepGPRegressor(**SMALL, num_inducing=9),
    ],
    ids=lambda estimator: f"{type(estimator).__name__}-{estimator.likelihood}",
)
def test_a_row_without_targets_contributes_nothing(estimator):
    assert EMPTY.sum() == 3
    model, other = clone(estimator).fit(X, Y), clone(estimator).fit(X[~EMPTY], Y[~EMPTY])
    assert np.isfinite(model.elbo_)
    assert np.array_equal(model.predict(X), other.predict(X))
    assert model.predict_interval(X)[0].shape == (40, 2)


@pytest.mark.parametrize("rows", [1000, 10])
def test_outputs_learn_from_their_observed_rows(rows):
    settings = {"num_inducing": "auto" if rows == 1000 else rows, "likelihood": "gaussian"}
    model = inducing.BNNRegressor([20], max_steps=60, random_state=0, **settings).fit(X, Y)
    assert (model.network_.optimal_last is not None) == (rows == 1000)
    truth = np.column_stack([np.sin(X[:, 0]), 5 + 3 * X[:, 1]])
    errors = np.sqrt(np.mean((model.predict(X) - truth) ** 2, 0)) / truth.std(0)
    assert (errors < 0.5).all()


def test_a_weight_is_a_number_of_rows():
    twice = np.arange(40) < 10
    weighted = bnn().fit(X, Y, sample_weight=1 + twice)
    repeated = bnn().fit(np.concatenate([X, X[twice]]), np.concatenate([Y, Y[twice]]))
    assert np.array_equal(weighted.predict(X), repeated.predict(X))


def test_targets_are_standardised_by_their_observed_values():
    scale = bnn().fit(X, Y).targets_.scale
    np.testing.assert_allclose(scale.mean.numpy(), np.nanmean(Y, 0))
    np.testing.assert_allclose(scale.std.numpy(), np.nanstd(Y, 0))


def test_a_log_scale_is_chosen_by_observed_values():
    y = np.exp(3 * np.where(np.isnan(Y), np.nan, X))
    model = bnn(target_transform="auto").fit(X, y)
    assert model.targets_.is_log == (True, True)
    assert np.isfinite(inducing.log_likelihood_score(model, X, y))


def test_counts():
    model = bnn(likelihood="poisson").fit(X, np.abs(Y).round())
    assert np.isfinite(model.predict(X)).all()


def test_tables_with_text_columns(tmp_path):
    table = pd.DataFrame({"a": X[:, 0], "level": [f"level {k % 30}" for k in range(40)]})
    model = bnn().fit(table, pd.DataFrame(Y, columns=["one", "two"]))
    inducing.save(model, tmp_path / "model.safetensors")
    assert np.array_equal(inducing.load(tmp_path / "model.safetensors").predict(table), model.predict(table))


def test_updates_and_held_out_rows_may_have_missing_targets():
    model = bnn(likelihood="gaussian").fit(X[:30], Y[:30], eval_set=(X[30:], Y[30:]))
    before = model.predict(X)
    assert not np.array_equal(model.update(X[30:], Y[30:]).predict(X), before)
    assert np.isfinite(model.predict(X)).all()
    # nothing is learned from rows without targets
    again = bnn(likelihood="gaussian").fit(X[:30], Y[:30], eval_set=(X[30:], Y[30:]))
    np.testing.assert_allclose(again.update(X[30:], np.full((10, 2), np.nan)).predict(X), before)


def test_the_automatic_choice_and_scores_leave_out_missing_targets():
    model = inducing.AutoRegressor({"bnn": bnn()}, random_state=0).fit(X, Y)
    assert np.isfinite(model.scores_["bnn"])
    assert np.isfinite(inducing.crps_score(model, X, Y))


@pytest.mark.parametrize(
    ("y", "settings", "message"),
    [
        (np.where([True, False], Y, np.nan), {}, "column 1 of y has only NaN"),
        (Y[:, 0], {}, "y contains NaN in 14 rows"),
        (Y[:, :1], {}, "y contains NaN in 14 rows"),
        (np.where(np.isnan(Y), np.inf, Y), {}, "y contains infinity"),
        (Y, {"likelihood": "poisson"}, "needs counts"),
    ],
)
def test_what_cannot_be_missing(y, settings, message):
    with pytest.raises(ValueError, match=message):
        bnn(**settings).fit(X, y)


def test_the_score_leaves_out_missing_targets():
    rows = np.random.default_rng(0).normal(size=(60, 2))
    both = np.stack([rows[:, 0], rows[:, 1] ** 2], 1)
    model = inducing.BNNRegressor([5], max_steps=10, random_state=0).fit(rows, both)
    whole = r2_score(both, model.predict(rows))
    assert model.score(rows, both) == pytest.approx(whole)
    holes = both.copy()
    holes[:20, 1] = np.nan
    parts = [r2_score(both[k:, i], model.predict(rows)[k:, i]) for i, k in ((0, 0), (1, 20))]
    assert model.score(rows, holes) == pytest.approx(np.mean(parts))
