"""Baselines: a constant and a linear model. Both return predictive distributions, so that they get the same scores."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from jaxtyping import Float, Shaped
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeCV

from inducing.arrays import as_tensor
from inducing.data.standardise import Standardiser
from inducing.nn.likelihoods import Categorical, Gaussian
from inducing.prediction.predictive import Predictive

PENALTIES = np.logspace(-3, 4, 15)


def regression_baselines(
    x: Float[np.ndarray, "T D"], y: Float[np.ndarray, "T O"], x_test: Float[np.ndarray, "H D"]
) -> dict[str, Predictive]:
    """Two baselines with Gaussian predictions: the mean and variance of the training targets, and ridge regression.

    The ridge penalty of each target is the one with the smallest leave-one-out squared error. This error is the variance of
    the predictions. It is the same for all rows.
    """
    constant = np.broadcast_to(y.mean(0), (len(x_test), y.shape[1]))
    x, x_test = _standardised(x, x_test)
    ridge = RidgeCV(PENALTIES, store_cv_results=True, alpha_per_target=y.shape[1] > 1).fit(x, y)
    mean = ridge.predict(x_test).reshape(constant.shape)
    # cv_results_ are squared errors (T, O, penalties)
    squares = ridge.cv_results_.reshape(len(y), -1, len(PENALTIES)).mean(0)
    return {
        "constant": _gaussian(constant, y.var(0), y),
        "ridge": _gaussian(mean, squares.min(-1), y),
    }


def classification_baselines(
    x: Float[np.ndarray, "T D"], y: Shaped[np.ndarray, " T"], x_test: Float[np.ndarray, "H D"]
) -> dict[str, Predictive]:
    """Two baselines: the class frequencies of the training rows, and logistic regression.

    The logistic regression has standardised inputs and scikit-learn's default penalty.
    """
    _, counts = np.unique(y, return_counts=True)
    constant = np.broadcast_to(np.log(counts / counts.sum()), (len(x_test), len(counts)))
    x, x_test = _standardised(x, x_test)
    logistic = LogisticRegression(max_iter=1000)
    with warnings.catch_warnings():
        # a baseline does not need to converge
        warnings.simplefilter("ignore", ConvergenceWarning)
        logistic.fit(x, y)
    return {"constant": _classes(constant), "logistic": _classes(logistic.predict_log_proba(x_test))}


def _standardised(x: np.ndarray, x_test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Standardise training and test rows by the statistics of the training rows."""
    # scikit-learn's StandardScaler overflows for values above 1e154
    scale = Standardiser.of(x)
    return scale.apply(x, torch.float64).numpy(), scale.apply(x_test, torch.float64).numpy()


def _gaussian(mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> Predictive:
    """One Gaussian for each row, as a mixture of a single draw."""
    scale = np.where(y.std(0) > 0, y.std(0), 1.0)
    # a minimum keeps the density finite if the residuals are zero
    noise = Gaussian(as_tensor(np.maximum(variance / scale**2, 1e-12)), learn_variance=False).double()
    return Predictive(as_tensor(mean / scale)[None], noise).unstandardise(np.zeros(len(scale)), scale)


def _classes(log_probabilities: np.ndarray) -> Predictive:
    return Predictive(as_tensor(log_probabilities).clamp_min(-700.0)[None], Categorical())
