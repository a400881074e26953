"""A fit to a problem: what is learned from which rows, and the scores beside the baselines."""

import numpy as np
import pytest
import torch

from inducing.data.tables import TableError
from inducing.prediction import metrics
from inducing.tabular.fitting import fit_problem, make_estimator
from inducing.tabular.problem import pose
from inducing.tabular.scores import scores, shown
from tests.tabular.tables import INPUTS, make_table, outcome


def test_scores_are_those_of_the_test_rows():
    fitted = outcome("price")
    problem, estimator = fitted.problem, fitted.estimator
    mean = estimator.predict(problem.inputs.iloc[problem.test])
    ours = fitted.scores["BNNRegressor"]
    assert ours["RMSE"] == pytest.approx(np.sqrt(np.mean((mean - problem.y[problem.test]) ** 2)))
    low, high = estimator.predict_interval(problem.inputs.iloc[problem.test], 0.9)
    inside = (low <= problem.y[problem.test]) & (problem.y[problem.test] <= high)
    assert ours["in 90 %"] == pytest.approx(inside.mean())
    assert list(fitted.scores) == ["BNNRegressor", "constant", "ridge"]
    # a linear problem: the ridge is ahead of the constant
    assert fitted.scores["ridge"]["CRPS"] < fitted.scores["constant"]["CRPS"]


def test_classes_are_scored():
    fitted = outcome("kind", model="dgp")
    problem, estimator = fitted.problem, fitted.estimator
    right = estimator.predict(problem.inputs.iloc[problem.test]) == problem.y[problem.test]
    assert fitted.scores["DeepGPClassifier"]["accuracy"] == pytest.approx(right.mean())
    assert list(fitted.scores) == ["DeepGPClassifier", "constant", "logistic"]
    assert fitted.scores["logistic"]["log-likelihood"] > fitted.scores["constant"]["log-likelihood"]


def test_several_targets_are_measured_in_their_own_units():
    fitted = outcome("price", "weight")
    std = torch.from_numpy(fitted.problem.y[fitted.problem.train].std(0))
    error = (fitted.predictive.mean - fitted.y_test) / std
    assert fitted.scores["BNNRegressor"]["RMSE"] == pytest.approx(float(error.square().mean().sqrt()))
    assert fitted.scores["BNNRegressor"]["log-likelihood"] == metrics.log_likelihood(fitted.predictive, fitted.y_test)
    one = torch.ones(2, dtype=torch.float64)
    assert scores(fitted.predictive, fitted.y_test, one) == scores(fitted.predictive, fitted.y_test)


def test_scores_as_text():
    assert [shown("in 90 %", 0.914), shown("RMSE", 12.3456), shown("ECE", 0.01234)] == ["91 %", "12.35", "0.012"]


def test_imputation_is_by_the_training_rows():
    table = make_table()[[*INPUTS, "price"]]
    problem = pose(table, ["price"], test_fraction=0.3)
    table.loc[problem.test[0], "size"] = np.nan
    table.loc[problem.test[1:], "size"] = 1e6
    problem = pose(table, ["price"], test_fraction=0.3)
    schema = make_estimator("bnn", problem, impute=True).schema
    assert schema.columns[0].fill == table["size"].iloc[problem.train].median()
    assert make_estimator("bnn", problem).schema.columns[0].fill is None


def test_test_rows_are_looked_at_before_any_time_is_spent(monkeypatch):
    table = make_table()[[*INPUTS, "price"]]
    row = int(pose(table, ["price"]).test[2])
    table.loc[row, "size"] = np.nan
    problem = pose(table, ["price"])
    estimator = make_estimator("bnn", problem)
    monkeypatch.setattr(type(estimator), "fit", lambda *_: pytest.fail("time was spent"))
    with pytest.raises(TableError, match=rf"'size' has 1 missing values \(first in row {row}\)"):
        fit_problem(estimator, problem)


def test_counts_may_be_asked_for():
    table = make_table()[["size", "grade"]]
    problem = pose(table, ["grade"], "regression")
    parameters = {"likelihood": "poisson", "max_steps": 3, "num_inducing": 5, "n_samples": 5, "random_state": 0}
    fitted = fit_problem(make_estimator("bnn", problem, **parameters), problem)
    assert np.isfinite(list(fitted.scores["BNNRegressor"].values())).all()


@pytest.mark.parametrize(
    ("model", "parameters", "message"),
    [
        ("mlp", {}, "a model is bnn or dgp, got 'mlp'"),
        ("dgp", {"prior": "neal"}, "a prior is over weights, and Gaussian processes have none"),
        ("bnn", {"likelihood": "poisson"}, "poisson is for counts, but not all targets are 0, 1, 2"),
    ],
)
def test_what_is_refused(model, parameters, message):
    with pytest.raises(ValueError, match=message):
        make_estimator(model, pose(make_table()[["size", "price"]], ["price"]), **parameters)
