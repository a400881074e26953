"""Fit an estimator to a problem, and score it beside baselines on the test rows."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from inducing.arrays import as_tensor
from inducing.checks import check_known
from inducing.data.standardise import Standardiser
from inducing.estimators import BNNClassifier, BNNRegressor, DeepGPClassifier, DeepGPRegressor
from inducing.estimators.auto import Auto, AutoClassifier, AutoRegressor
from inducing.estimators.base import NetworkEstimator
from inducing.estimators.likelihoods import check_counts
from inducing.estimators.stacking import TreeBNN, TreeBNNClassifier, TreeBNNRegressor
from inducing.estimators.targets import LabelTargets
from inducing.pages import Cell, Table
from inducing.prediction import metrics
from inducing.prediction.predictive import Predictive
from inducing.tables.baselines import classification_baselines, regression_baselines
from inducing.tables.errors import counted
from inducing.tables.numbers import decimals_of_predictions, format_number
from inducing.tables.problem import Problem
from inducing.tables.streaming import TableStream

ESTIMATORS: dict[str, dict[str, type[NetworkEstimator]]] = {
    "bnn": {"regression": BNNRegressor, "classification": BNNClassifier},
    "dgp": {"regression": DeepGPRegressor, "classification": DeepGPClassifier},
    "trees": {"regression": TreeBNNRegressor, "classification": TreeBNNClassifier},
}
AUTOMATIC: dict[str, type[Auto]] = {"regression": AutoRegressor, "classification": AutoClassifier}
COVERAGES = (50, 90, 95)
# scores in units of the target
IN_UNITS = ("RMSE", "CRPS")
SEVERAL_TARGETS = "With several targets, RMSE and CRPS are in standard deviations of each target in the training rows."


@dataclass(frozen=True, eq=False)
class TableFit:
    """A fitted estimator and its predictions for the test rows.

    Arguments:
        problem: The problem.
        estimator: The fitted estimator.
        predictive: Its predictions for the test rows.
        y_test: Their targets (H, O), or the positions of their labels among the classes (H,).
        scores: Scores by model and name: the estimator's, then those of the baselines.
        losses: Sentences about baselines that predict the test rows better.
        seconds: Training time.
        num_train: Number of training rows.
    """

    problem: Problem
    estimator: NetworkEstimator | Auto
    predictive: Predictive
    y_test: Tensor
    scores: dict[str, dict[str, float]]
    losses: list[str]
    seconds: float
    num_train: int

    @property
    def members(self) -> dict[str, NetworkEstimator]:
        """The fitted networks by name: one, or those of a blend."""
        return members_of(self.estimator)

    def score_table(self, title: str = "", note: str = "") -> Table:
        """The scores as a table. The first row is the estimator."""
        names = list(next(iter(self.scores.values())))
        rows: list[list[Cell]] = []
        for model, values in self.scores.items():
            cells = [model, *(self._write_score(name, values[name]) for name in names)]
            rows.append([Cell(cell, "plain" if rows else "bold") for cell in cells])
        notes = [note] * bool(note) + [SEVERAL_TARGETS] * (len(self.problem.targets) > 1)
        return Table(["", *names], rows, title, " ".join(notes))

    def write_error(self, value: float) -> str:
        """An error in the format of the target. With several targets it is in their standard deviations."""
        several = len(self.problem.targets) > 1
        return format_number(value, None if several else decimals_of_predictions(self.problem.y))

    def _write_score(self, name: str, value: float) -> str:
        if name in IN_UNITS:
            return self.write_error(value)
        return f"{100 * value:.0f} %" if name.endswith("%") else f"{value:.3f}"


def make_estimator(
    model: str, problem: Problem, earlier: Auto | None = None, **parameters: Any
) -> NetworkEstimator | Auto:
    """Make an estimator for a problem, with its schema.

    Arguments:
        model: "bnn", "dgp", "trees" (a network with the predictions of boosted trees as inputs), or "auto" for the best
            blend of them.
        problem: The problem.
        earlier: A blend that was fitted to other rows of the table, whose weights and factor of the noise are kept.
        parameters: Parameters of the estimator. None: its default.
    """
    given = {name: value for name, value in parameters.items() if value is not None}
    check_known("model", model, (*ESTIMATORS, "auto"))
    if model == "auto":
        if "prior" in given:
            raise ValueError("prior is not available for auto, since Gaussian processes have no weights. Use bnn.")
        shared: dict[str, Any] = {
            name: given.pop(name) for name in ("random_state", "verbose", "time_budget") if name in given
        }
        automatic = AUTOMATIC[problem.task]
        # the earlier blend may be of another number of rows
        kinds = automatic.default_candidates(len(problem.train) if earlier is None else None)
        candidates = {name: _make(kind, problem, given) for name, kind in kinds.items()}
        if earlier is not None:
            shared |= {"weights": earlier.weights_, "noise_factor": earlier.noise_factor_}
        return automatic(candidates, **shared)
    if model == "dgp" and "prior" in given:
        raise ValueError("prior is not available for dgp, since Gaussian processes have no weights. Use bnn.")
    return _make(ESTIMATORS[model][problem.task], problem, given)


def _make(estimator: type[NetworkEstimator], problem: Problem, given: Mapping[str, Any]) -> NetworkEstimator:
    """Make an estimator of a kind, with the schema and the scale of the targets of a problem."""
    likelihood = given.get("likelihood", "auto")
    check_known(f"likelihood for {problem.task}", likelihood, ("auto", *estimator.likelihoods))
    check_counts(likelihood, problem.y)
    if problem.task == "regression":
        given = {**given, "target_transform": problem.target_transform}
    return estimator(schema=problem.encoded.schema, **given)


def fit_problem(estimator: NetworkEstimator | Auto, problem: Problem, stream: TableStream | None = None) -> TableFit:
    """Fit to the training rows, then score the test rows. A problem about a sample is fitted to the rows of a stream."""
    start = time.perf_counter()
    fitted = fit_training_rows(estimator, problem, stream)
    return score_fit(fitted, problem, time.perf_counter() - start, stream)


def score_fit(
    estimator: NetworkEstimator | Auto, problem: Problem, seconds: float, stream: TableStream | None = None
) -> TableFit:
    """Score the test rows of a problem, beside baselines.

    Arguments:
        estimator: An estimator that was fitted to the training rows.
        problem: The problem.
        seconds: The time of the fit.
        stream: The rows of the fit, if the problem is about a sample.
    """
    train, test = problem.encoded.take(problem.train), problem.encoded.take(problem.test)
    y_train, y_test = problem.y[problem.train], problem.y[problem.test]
    predictive = estimator.predict_distribution(test)
    first, *_ = members_of(estimator).values()
    inputs = train.to_training_numpy(first._effect_targets(y_train))
    units: Tensor | float = 1.0
    if problem.task == "classification":
        targets = LabelTargets.fit(y_train).encode(y_test)
        baselines = classification_baselines(inputs, y_train, test.to_numpy())
    else:
        columns = y_train.reshape(len(y_train), -1)
        targets = as_tensor(y_test.reshape(len(y_test), -1))
        baselines = regression_baselines(inputs, columns, test.to_numpy())
        units = Standardiser.of(columns).std if columns.shape[1] > 1 else units
    models = {type(estimator).__name__: predictive, **baselines}
    scores = {name: compute_scores(each, targets, units) for name, each in models.items()}
    losses = [loss for name, each in baselines.items() for loss in find_losses(predictive, name, each, targets, units)]
    num_train = len(problem.train) if stream is None else stream.num_rows - len(problem.test)
    return TableFit(problem, estimator, predictive, targets, scores, losses, seconds, num_train)


def fit_training_rows(
    estimator: NetworkEstimator | Auto, problem: Problem, stream: TableStream | None = None
) -> NetworkEstimator | Auto:
    """Fit to all training rows of a problem. The result is the estimator, or the only model of a blend."""
    if stream is not None:
        if isinstance(estimator, Auto | TreeBNN):
            name = "auto" if isinstance(estimator, Auto) else "trees"
            raise ValueError(f"the model {name} needs all rows in memory. Use bnn or dgp for a table that is streamed.")
        return stream.fit(estimator, problem)
    estimator.fit(problem.encoded.take(problem.train), problem.y[problem.train])
    members = members_of(estimator)
    return estimator if len(members) > 1 else next(iter(members.values()))


def members_of(estimator: NetworkEstimator | Auto) -> dict[str, NetworkEstimator]:
    """The fitted networks of an estimator by name: one, or those of a blend."""
    return estimator.members_ if isinstance(estimator, Auto) else {type(estimator).__name__: estimator}


def find_losses(
    predictive: Predictive, name: str, baseline: Predictive, y: Tensor, units: Float[Tensor, " O"] | float = 1.0
) -> list[str]:
    """Sentences about scores in which a baseline is better by more than two standard errors of the paired difference."""
    rows = counted(len(y), "test row")
    gains = {"log-likelihood": (baseline.log_prob(y) - predictive.log_prob(y), "{:.2f} ± {:.2f} nats per row")}
    if predictive.likelihood.support == "real":
        errors, of_baseline = (((each.mean - y) / units).square().sum(-1) for each in (predictive, baseline))
        gains["squared error"] = (100 * (errors - of_baseline) / errors.mean(), "{:.0f} ± {:.0f} %")
    found = []
    for score, (gain, text) in gains.items():
        mean, error = float(gain.mean()), float(gain.std()) / math.sqrt(len(gain)) if len(gain) > 1 else math.inf
        if mean > 2 * error:
            better = "higher" if score == "log-likelihood" else "lower"
            found.append(f"{name} predicts the {rows} better: its {score} is {better} by {text.format(mean, error)}")
    return found


def compute_scores(predictive: Predictive, y: Tensor, units: Float[Tensor, " O"] | float = 1.0) -> dict[str, float]:
    """Scores of predictions by name. For labels: accuracy, log-likelihood and ECE.

    Arguments:
        predictive: Predictions for test rows.
        y: Their targets (H, O), or labels (H,) as integers.
        units: Divides the errors of each target in RMSE and CRPS.
    """
    if predictive.likelihood.support == "classes":
        return {
            "accuracy": metrics.accuracy(predictive, y),
            "log-likelihood": metrics.log_likelihood(predictive, y),
            "ECE": metrics.expected_calibration_error(predictive, y),
        }
    return {
        "RMSE": metrics.rmse(predictive, y, units),
        "log-likelihood": metrics.log_likelihood(predictive, y),
        "CRPS": metrics.crps(predictive, y, units),
        **{f"in {level} %": metrics.coverage(predictive, y, level / 100) for level in COVERAGES},
    }
