"""A fit to a problem: what is learned from which rows, and the scores beside the baselines."""

import dataclasses
import re

import numpy as np
import pandas as pd
import pytest
import torch

import inducing
from inducing.prediction import metrics
from inducing.tables import columns, schema
from inducing.tables.errors import TableError
from inducing.tables.fitting import compute_scores, find_losses, fit_problem, make_estimator
from inducing.tables.problem import make_problem
from tests.tables.examples import INPUTS, make_table, outcome


def test_scores_are_those_of_the_test_rows():
    fitted = outcome("price")
    problem, estimator = fitted.problem, fitted.estimator
    mean = estimator.predict(problem.inputs.iloc[problem.test])
    ours = fitted.scores["BNNRegressor"]
    assert ours["RMSE"] == pytest.approx(np.sqrt(np.mean((mean - problem.y[problem.test]) ** 2)))
    low, high = estimator.predict_interval(problem.inputs.iloc[problem.test], 0.9)
    inside = (low <= problem.y[problem.test]) & (problem.y[problem.test] <= high)
    assert ours["in 90 %"] == pytest.approx(inside.mean())
    assert list(fitted.scores) == ["BNNRegressor", "constant", "ridge", "boosted trees"]
    # a linear problem: the ridge is ahead of the constant
    assert fitted.scores["ridge"]["CRPS"] < fitted.scores["constant"]["CRPS"]


def test_classes_are_scored():
    fitted = outcome("kind", model="dgp")
    problem, estimator = fitted.problem, fitted.estimator
    right = estimator.predict(problem.inputs.iloc[problem.test]) == problem.y[problem.test]
    assert fitted.scores["DeepGPClassifier"]["accuracy"] == pytest.approx(right.mean())
    assert list(fitted.scores) == ["DeepGPClassifier", "constant", "logistic", "boosted trees"]
    assert fitted.scores["logistic"]["log-likelihood"] > fitted.scores["constant"]["log-likelihood"]


def gaussian(mean, variance):
    outputs = torch.as_tensor(mean, dtype=torch.float64)[None, :, None]
    return inducing.Predictive(outputs, inducing.Gaussian(variance, learn_variance=False).double())


def test_it_says_when_a_baseline_is_better_and_by_how_much():
    random = np.random.default_rng(0)
    truth = random.normal(size=400)
    y = torch.from_numpy(truth)[:, None]
    good, poor = gaussian(truth + 0.1 * random.normal(size=400), 0.01), gaussian(truth + random.normal(size=400), 1.0)
    likelihood, squares = find_losses(poor, "ridge", good, y)
    assert re.fullmatch(
        r"ridge predicts the 400 test rows better: its log-likelihood is higher by 2.2\d ± 0.0\d nats per row",
        likelihood,
    )
    assert re.fullmatch(r"ridge predicts the 400 test rows better: its squared error is lower by 99 ± \d+ %", squares)
    assert not find_losses(good, "ridge", poor, y)
    assert not find_losses(good, "ridge", good, y)
    # one row says nothing
    one = torch.zeros(1, 1).double()
    assert not find_losses(gaussian([2.0], 1.0), "ridge", gaussian([0.0], 1.0), one)


def test_classes_are_compared_by_log_likelihood():
    logits = torch.tensor([[2.0, 0.0]]).double().expand(50, 2)
    sure, unsure = (inducing.Predictive(each[None], inducing.Categorical()) for each in (logits, 0.1 * logits))
    (loss,) = find_losses(unsure, "logistic", sure, torch.zeros(50, dtype=torch.long))
    assert loss.startswith("logistic predicts the 50 test rows better: its log-likelihood")


def test_the_automatic_choice_is_fitted_and_scored():
    problem = make_problem(make_table()[[*INPUTS, "price"]], ["price"])
    estimator = make_estimator("auto", problem, max_steps=3, random_state=0)
    fitted = fit_problem(estimator, problem)
    assert type(fitted.estimator).__name__ in fitted.scores
    assert estimator.scores_.keys() == {"bnn", "dgp", "trees"}
    with pytest.raises(ValueError, match="prior is not available for auto"):
        make_estimator("auto", problem, prior="neal")


def test_known_weights_may_come_from_another_number_of_rows():
    problem = make_problem(make_table()[[*INPUTS, "price"]], ["price"])
    weights = {"second bnn": 0.5, "dgp": 0.5}
    earlier = inducing.AutoRegressor(weights=weights, noise_factor=0.5, max_steps=1, random_state=0)
    earlier.fit(np.eye(5), np.arange(5.0))
    estimator = make_estimator("auto", problem, earlier, max_steps=1, random_state=0)
    assert estimator.noise_factor == 0.5
    kinds = {name: type(each).__name__ for name, each in fit_problem(estimator, problem).estimator.members_.items()}
    assert kinds == {"second bnn": "BNNRegressor", "dgp": "DeepGPRegressor"}


def test_several_targets_are_measured_in_their_own_units():
    fitted = outcome("price", "weight")
    std = torch.from_numpy(fitted.problem.y[fitted.problem.train].std(0))
    error = (fitted.predictive.mean - fitted.y_test) / std
    assert fitted.scores["BNNRegressor"]["RMSE"] == pytest.approx(float(error.square().mean().sqrt()))
    assert fitted.scores["BNNRegressor"]["log-likelihood"] == metrics.log_likelihood(fitted.predictive, fitted.y_test)
    one = torch.ones(2, dtype=torch.float64)
    assert compute_scores(fitted.predictive, fitted.y_test, one) == compute_scores(fitted.predictive, fitted.y_test)


def test_scores_as_a_table():
    fitted = outcome("price", "weight")
    scores = {"ours": {"RMSE": 12.3456, "in 90 %": 0.914}, "ridge": {"RMSE": 0.1, "in 90 %": 1.0}}
    table = dataclasses.replace(fitted, scores=scores).score_table("title", "A note.")
    assert table.headings == ["", "RMSE", "in 90 %"]
    assert [[cell.text for cell in row] for row in table.rows] == [["ours", "12.35", "91 %"], ["ridge", "0.1", "100 %"]]
    assert table.note.startswith("A note. With several targets")


def test_imputation_is_by_the_training_rows():
    table = make_table()[[*INPUTS, "price"]]
    problem = make_problem(table, ["price"], test_fraction=0.3)
    table.loc[problem.test[0], "size"] = np.nan
    table.loc[problem.test[1:], "size"] = 1e6
    problem = make_problem(table, ["price"], test_fraction=0.3)
    found = make_estimator("bnn", problem).schema
    assert found.columns[0].fill == table["size"].iloc[problem.train].median()


def test_test_rows_are_checked_before_training():
    table = make_table()[[*INPUTS, "price"]]
    row = int(make_problem(table, ["price"]).test[2])
    table.loc[row, "size"] = np.nan
    with pytest.raises(TableError, match=rf"'size' has 1 missing value \(first in row {row}\)"):
        make_problem(table, ["price"], impute=False)


def test_rows_are_encoded_once(monkeypatch):
    """From the table to the scores, each column is read once."""
    read = []
    monkeypatch.setattr(
        schema, "encode", lambda column, values: read.append(len(values)) or columns.encode(column, values)
    )
    problem = make_problem(make_table()[["size", "colour", "price"]], ["price"])
    fit_problem(make_estimator("bnn", problem, max_steps=1, n_samples=2, num_inducing=5), problem)
    assert read == [60, 60]


def test_counts_may_be_asked_for():
    table = make_table()[["size", "grade"]]
    problem = make_problem(table, ["grade"], "regression")
    parameters = {"likelihood": "poisson", "max_steps": 3, "num_inducing": 5, "n_samples": 5, "random_state": 0}
    fitted = fit_problem(make_estimator("bnn", problem, **parameters), problem)
    assert np.isfinite(list(fitted.scores["BNNRegressor"].values())).all()


@pytest.mark.parametrize(
    ("model", "parameters", "message"),
    [
        ("mlp", {}, "unknown model 'mlp'"),
        ("dgp", {"prior": "neal"}, "prior"),
        ("bnn", {"likelihood": "poisson"}, "'poisson' needs counts"),
        ("bnn", {"likelihood": "categorical"}, "unknown likelihood for regression 'categorical'"),
    ],
)
def test_what_is_refused(model, parameters, message):
    with pytest.raises(ValueError, match=message):
        make_estimator(model, make_problem(make_table()[["size", "price"]], ["price"]), **parameters)


def test_counts_and_their_baselines_have_the_same_units():
    random = np.random.default_rng(0)
    x = random.normal(size=80)
    table = pd.DataFrame({"x": x, "few": random.poisson(2, 80), "many": random.poisson(900 * np.exp(0.1 * x))})
    problem = make_problem(table, ["few", "many"], likelihood="poisson")
    fitted = fit_problem(make_estimator("bnn", problem, likelihood="poisson", max_steps=100, random_state=0), problem)
    errors = [scores["RMSE"] for scores in fitted.scores.values()]
    # in standard deviations of each target, a constant has about 1
    assert max(errors) < 3


def test_losses_have_the_units_of_the_scores():
    """A large target does not decide about a small one."""
    random = np.random.default_rng(0)
    y = torch.from_numpy(random.normal(size=(50, 2)) * [1.0, 1000.0])
    ours, theirs = y + torch.tensor([0.1, 10.0]), y + torch.tensor([1.0, 1.0])
    predictive, baseline = (
        inducing.Predictive(mean[None], inducing.Gaussian().double().requires_grad_(False)) for mean in (ours, theirs)
    )
    raw, in_units = (
        [loss for loss in find_losses(predictive, "ridge", baseline, y, units) if "squared error" in loss]
        for units in (1.0, torch.tensor([1.0, 1000.0]))
    )
    assert raw
    assert not in_units
