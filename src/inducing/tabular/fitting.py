"""Fit an estimator to a problem, and judge it beside baselines on the rows that were kept for testing."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from inducing.arrays import as_tensor
from inducing.data.columns import TableError
from inducing.data.schema import Schema
from inducing.data.standardise import Standardiser
from inducing.estimators import BNNClassifier, BNNRegressor, DeepGPClassifier, DeepGPRegressor
from inducing.estimators.base import NetworkEstimator
from inducing.estimators.regression import COUNTS
from inducing.prediction.predictive import Predictive
from inducing.tabular.baselines import classification_baselines, regression_baselines
from inducing.tabular.problem import Problem
from inducing.tabular.scores import scores

MODELS = ("bnn", "dgp")
ESTIMATORS: dict[tuple[str, str], type[NetworkEstimator]] = {
    ("bnn", "regression"): BNNRegressor,
    ("bnn", "classification"): BNNClassifier,
    ("dgp", "regression"): DeepGPRegressor,
    ("dgp", "classification"): DeepGPClassifier,
}


@dataclass(frozen=True, eq=False)
class Outcome:
    """A fitted estimator, and how it does on rows that it has not seen.

    Arguments:
        problem: What it was fitted to.
        estimator: The estimator.
        predictive: Its predictions for the test rows.
        y_test: Their targets (H, O), or the positions of their labels among the classes (H,).
        scores: The scores of the estimator and of the baselines, by name.
        seconds: How long fitting took.
    """

    problem: Problem
    estimator: NetworkEstimator
    predictive: Predictive
    y_test: Tensor
    scores: dict[str, dict[str, float]]
    seconds: float


def make_estimator(model: str, problem: Problem, impute: bool = False, **parameters: Any) -> NetworkEstimator:
    """An estimator for a problem, with the schema of its training rows.

    Arguments:
        model: "bnn" or "dgp".
        problem: What is to be predicted from what.
        impute: Whether missing inputs are replaced by the median or the most frequent category of the training rows.
        parameters: Parameters of the estimator; None stands for its default.
    """
    if model not in MODELS:
        raise ValueError(f"a model is {' or '.join(MODELS)}, got {model!r}")
    if model == "dgp" and parameters.get("prior") is not None:
        raise ValueError(
            "a prior is over weights, and Gaussian processes have none; leave it out, or use the model bnn"
        )
    if parameters.get("likelihood") in COUNTS and (np.any(problem.y < 0) or np.any(problem.y % 1 != 0)):
        raise TableError(
            f"the likelihood {parameters['likelihood']} is for counts, but not all targets are 0, 1, 2, ..."
        )
    schema = Schema.of(problem.inputs.iloc[problem.train], impute)
    given = {name: value for name, value in parameters.items() if value is not None}
    return ESTIMATORS[model, problem.task](schema=schema, **given)


def fit_problem(estimator: NetworkEstimator, problem: Problem) -> Outcome:
    """Fit to the training rows, then score the test rows."""
    schema = estimator.schema
    assert schema is not None
    # all rows are looked at before any time is spent
    x = schema.encode(problem.inputs)
    x_train, x_test = x[problem.train], x[problem.test]
    y_train, y_test = problem.y[problem.train], problem.y[problem.test]
    start = time.perf_counter()
    estimator.fit(problem.inputs.iloc[problem.train], y_train)
    seconds = time.perf_counter() - start
    predictive = estimator.predict_distribution(problem.inputs.iloc[problem.test])
    units = None
    if problem.task == "classification":
        targets = as_tensor(np.searchsorted(np.unique(y_train), y_test))
        baselines = classification_baselines(x_train, y_train, x_test)
    else:
        columns = y_train.reshape(len(y_train), -1)
        targets = as_tensor(y_test.reshape(len(y_test), -1))
        baselines = regression_baselines(x_train, columns, x_test)
        units = Standardiser.of(columns).std if columns.shape[1] > 1 else None
    models = {type(estimator).__name__: predictive, **baselines}
    table = {name: scores(each, targets, units) for name, each in models.items()}
    return Outcome(problem, estimator, predictive, targets, table, seconds)
