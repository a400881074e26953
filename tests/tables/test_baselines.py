"""Baselines against their definitions."""

import numpy as np
import scipy.stats
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_predict
from sklearn.preprocessing import StandardScaler

from inducing.prediction import metrics
from inducing.tables.baselines import PENALTIES, classification_baselines, regression_baselines

random = np.random.default_rng(0)
X, X_TEST = random.normal(3, 2, (30, 2)), random.normal(3, 2, (8, 2))
Y = np.stack([X[:, 0] + random.normal(size=30), 100 * random.normal(size=30)], 1)
Y_TEST = random.normal(size=(8, 2))


def test_a_constant_is_the_mean_and_variance_of_the_training_rows():
    constant = regression_baselines(X, Y, X_TEST)["constant"]
    expected = scipy.stats.norm(Y.mean(0), Y.std(0)).logpdf(Y_TEST).sum(1)
    np.testing.assert_allclose(constant.log_prob(torch.from_numpy(Y_TEST)).numpy(), expected)


def test_ridge_has_the_variance_of_its_leave_one_out_errors():
    """Each target by itself, by leaving out one row after the other."""
    prediction = regression_baselines(X, Y, X_TEST)["ridge"]
    scale = StandardScaler().fit(X)
    rows = scale.transform(X)
    for k in range(2):
        errors = [
            [
                (Y[i, k] - Ridge(p).fit(np.delete(rows, i, 0), np.delete(Y[:, k], i)).predict(rows[i : i + 1])[0]) ** 2
                for p in PENALTIES
            ]
            for i in range(30)
        ]
        squares = np.mean(errors, 0)
        best = Ridge(PENALTIES[squares.argmin()]).fit(rows, Y[:, k])
        np.testing.assert_allclose(prediction.mean[:, k].numpy(), best.predict(scale.transform(X_TEST)), rtol=1e-6)
        # scikit-learn's leave-one-out errors take the centre of all rows
        np.testing.assert_allclose(prediction.variance[:, k].numpy(), squares.min(), rtol=0.1)


def test_boosted_trees_have_the_variance_of_their_cross_validation_errors():
    found = regression_baselines(X, Y, X_TEST)["boosted trees"]
    for k in range(2):
        model = HistGradientBoostingRegressor(random_state=0)
        errors = cross_val_predict(model, X, Y[:, k], cv=3) - Y[:, k]
        np.testing.assert_allclose(found.mean[:, k].numpy(), model.fit(X, Y[:, k]).predict(X_TEST))
        np.testing.assert_allclose(found.variance[:, k].numpy(), np.mean(errors**2))


def test_targets_without_noise_have_a_finite_density():
    for y in (X[:, :1], np.ones((30, 1))):
        for baseline in regression_baselines(X, y, X_TEST).values():
            assert torch.isfinite(baseline.log_prob(torch.from_numpy(X_TEST[:, :1]))).all()


def test_classes():
    labels = np.where(X[:, 0] > 3, "yes", "no")
    truth = torch.from_numpy((X_TEST[:, 0] > 3).astype(int))
    baselines = classification_baselines(X, labels, X_TEST)
    share = np.mean(labels == "yes")
    np.testing.assert_allclose(baselines["constant"].mean[:, 1].numpy(), share)
    scale = StandardScaler().fit(X)
    logistic = LogisticRegression().fit(scale.transform(X), labels).predict_proba(scale.transform(X_TEST))
    np.testing.assert_allclose(baselines["logistic"].mean.numpy(), logistic, rtol=1e-3)
    assert metrics.accuracy(baselines["logistic"], truth) > 0.8


def test_inputs_of_any_size():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(40, 2)), random.normal(size=(40, 1))
    expected, found = (regression_baselines(rows, y, rows[:5])["ridge"] for rows in (x, x * [1e300, 1.0]))
    np.testing.assert_allclose(found.mean, expected.mean)
    labels = y[:, 0] > 0
    expected, found = (classification_baselines(rows, labels, rows[:5])["logistic"] for rows in (x, x * [1e300, 1.0]))
    np.testing.assert_allclose(found.mean, expected.mean)


def test_a_class_of_one_row_among_many():
    """Above 10,000 rows, scikit-learn's trees stop early by a stratified split, which needs two rows of each class."""
    x = np.random.default_rng(0).normal(size=(10_001, 1))
    y = np.r_[np.arange(10_000) % 2, 2]
    found = classification_baselines(x, y, x[:5])
    assert found["boosted trees"].mean.shape == (5, 3)
