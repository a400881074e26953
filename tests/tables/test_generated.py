"""The defaults on tables with columns of all kinds: they are fitted, saved and predicted, and do not lose to ridge."""

import warnings

import numpy as np
import pytest
import torch

from inducing.arrays import as_tensor
from inducing.tables.baselines import classification_baselines, regression_baselines
from inducing.tables.errors import TableWarning
from inducing.tables.fitting import fit_problem, make_estimator
from inducing.tables.predicting import TableModel, predict_table
from inducing.tables.problem import make_problem
from tests.tables.generator import SIGNALS, generate

# seeds of the tables of the slow test; change the first to have fresh ones
FIRST_SEED, NUM_TABLES = 0, 30
# Differences that do not matter: nats per row, and a share of the squared error of ridge. In 60 comparisons of equal models, one
# or two are beyond two standard errors.
MARGIN = 0.01


def fit(seed, model="bnn", settings=None, **arguments):
    generated = generate(seed, **arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableWarning)
        problem = make_problem(generated.table, ["y"], test_fraction=0.2)
        return generated, fit_problem(make_estimator(model, problem, random_state=0, **settings or {}), problem)


@pytest.mark.parametrize("signal", SIGNALS)
def test_every_table_is_fitted_saved_and_predicted(signal, tmp_path):
    settings = {"max_steps": 5, "num_inducing": 10, "n_samples": 10}
    generated, fitted = fit(SIGNALS.index(signal), rows=120, signal=signal, levels=30, settings=settings)
    assert np.isfinite([*fitted.scores[type(fitted.estimator).__name__].values()]).all()
    TableModel(fitted.estimator, ("y",)).save(tmp_path / "m.safetensors")
    generated.table.to_csv(tmp_path / "t.csv", index=False)
    with (tmp_path / "p.csv").open("wb") as out, warnings.catch_warnings():
        warnings.simplefilter("ignore", TableWarning)
        assert predict_table(TableModel.load(tmp_path / "m.safetensors"), tmp_path / "t.csv", out) == 120


def test_the_same_seed_makes_the_same_table():
    first, again, other = generate(3), generate(3), generate(4)
    assert first.table.equals(again.table)
    assert not first.table.equals(other.table)


def advantages(fitted):
    """By score, the mean advantage over the linear model in the test rows, and its standard error.

    Squared errors are in units of the mean squared error of the linear model.
    """
    problem, y = fitted.problem, fitted.y_test
    train, y_train = problem.encoded.take(problem.train), problem.y[problem.train]
    inputs = train.to_training_numpy(fitted.estimator._effect_targets(y_train))
    later = problem.encoded.take(problem.test).to_numpy()
    if problem.task == "classification":
        linear = classification_baselines(inputs, y_train, later)["logistic"]
        labels = torch.nn.functional.one_hot(as_tensor(y), fitted.predictive.mean.shape[1])
    else:
        linear, labels = regression_baselines(inputs, y_train[:, None], later)["ridge"], y
    squares = [(each.mean - labels).square().sum(1) for each in (linear, fitted.predictive)]
    differences = {
        "log-likelihood": fitted.predictive.log_prob(y) - linear.log_prob(y),
        "squared error": (squares[0] - squares[1]) / squares[0].mean(),
    }
    return {name: (float(d.mean()), float(d.std() / len(d) ** 0.5)) for name, d in differences.items()}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + NUM_TABLES))
def test_the_default_does_not_lose_to_ridge(seed):
    generated, fitted = fit(seed)
    for score, (mean, error) in advantages(fitted).items():
        assert mean > -max(2 * error, MARGIN), (score, mean, error, generated.signal, len(generated.table))
