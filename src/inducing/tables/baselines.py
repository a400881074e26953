"""Baselines: a constant, a linear model and boosted trees. They return predictive distributions, to get the same scores."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import cross_val_predict

from inducing.arrays import as_tensor
from inducing.data.standardise import Standardiser
from inducing.nn.likelihoods import Categorical, Gaussian
from inducing.prediction.predictive import Predictive

PENALTIES = np.logspace(-3, 4, 15)
# early stopping only from 10,000 rows: scikit-learn's default
TREES: dict[str, Any] = {"random_state": 0}
FOLDS = 3


def regression_baselines(
    x: Float[np.ndarray, "T D"], y: Float[np.ndarray, "T O"], x_test: Float[np.ndarray, "H D"]
) -> dict[str, Predictive]:
    """Baselines with Gaussian predictions: the moments of the training targets, ridge regression and boosted trees."""
    constant = np.broadcast_to(y.mean(0), (len(x_test), y.shape[1]))
    return {
        "constant": gaussian(constant, y.var(0), y),
        "ridge": ridge(x, y, x_test),
        "boosted trees": boosted_trees(x, y, x_test),
    }


def ridge(x: Float[np.ndarray, "T D"], y: Float[np.ndarray, "T O"], x_test: Float[np.ndarray, "H D"]) -> Predictive:
    """Ridge regression. The penalty of each target is the one with the smallest leave-one-out squared error.

    This error is the variance of the predictions of all rows.
    """
    x, x_test = _standardised(x, x_test)
    model = RidgeCV(PENALTIES, store_cv_results=True, alpha_per_target=y.shape[1] > 1).fit(x, y)
    mean = model.predict(x_test).reshape(len(x_test), y.shape[1])
    # cv_results_ are squared errors (T, O, penalties)
    squares = model.cv_results_.reshape(len(y), -1, len(PENALTIES)).mean(0)
    return gaussian(mean, squares.min(-1), y)


def boosted_trees(
    x: Float[np.ndarray, "T D"], y: Float[np.ndarray, "T O"], x_test: Float[np.ndarray, "H D"]
) -> Predictive:
    """Boosted trees. Their squared error in cross-validation is the variance of the predictions of all rows."""
    trees = [_boosted_trees(x, column, x_test) for column in y.T]
    return gaussian(np.stack([found for found, _ in trees], 1), np.array([error for _, error in trees]), y)


def classification_baselines(
    x: Float[np.ndarray, "T D"], y: Shaped[np.ndarray, " T"], x_test: Float[np.ndarray, "H D"]
) -> dict[str, Predictive]:
    """Baselines: the class frequencies of the training rows, logistic regression, boosted trees.

    The logistic regression has standardised inputs and scikit-learn's default penalty.
    """
    _, counts = np.unique(y, return_counts=True)
    constant = np.broadcast_to(np.log(counts / counts.sum()), (len(x_test), len(counts)))
    # early stopping, the default for many rows, needs two rows of each class
    settings = TREES if counts.min() > 1 else TREES | {"early_stopping": False}
    trees = HistGradientBoostingClassifier(**settings).fit(x, y).predict_proba(x_test)
    x, x_test = _standardised(x, x_test)
    logistic = LogisticRegression(max_iter=1000)
    with warnings.catch_warnings():
        # a baseline does not need to converge
        warnings.simplefilter("ignore", ConvergenceWarning)
        logistic.fit(x, y)
    with np.errstate(divide="ignore"):
        tree_logs = np.log(trees)
    return {
        "constant": _classes(constant),
        "logistic": _classes(logistic.predict_log_proba(x_test)),
        "boosted trees": _classes(tree_logs),
    }


def _boosted_trees(
    x: Float[np.ndarray, "T D"], y: Float[np.ndarray, " T"], x_test: Float[np.ndarray, "H D"]
) -> tuple[Float[np.ndarray, " H"], float]:
    """The predictions of boosted trees, and their squared error in cross-validation."""
    model = HistGradientBoostingRegressor(**TREES)
    errors = cross_val_predict(model, x, y, cv=min(FOLDS, len(y))) - y
    return model.fit(x, y).predict(x_test), float(np.mean(errors**2))


def _standardised(x: np.ndarray, x_test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Standardise training and test rows by the statistics of the training rows."""
    # scikit-learn's StandardScaler overflows for values above 1e154
    scale = Standardiser.of(x)
    return scale.apply(x, torch.float64).numpy(), scale.apply(x_test, torch.float64).numpy()


def gaussian(mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> Predictive:
    """One Gaussian for each row, as a mixture of a single draw."""
    scale = np.where(y.std(0) > 0, y.std(0), 1.0)
    # a minimum keeps the density finite if the residuals are zero
    noise = Gaussian(as_tensor(np.maximum(variance / scale**2, 1e-12)), learn_variance=False).double()
    return Predictive(as_tensor(mean / scale)[None], noise).unstandardise(np.zeros(len(scale)), scale)


def _classes(log_probabilities: np.ndarray) -> Predictive:
    return Predictive(as_tensor(log_probabilities).clamp_min(-700.0)[None], Categorical())
