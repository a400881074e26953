"""The models of a blend: their fits, and what they must have in common."""

import numpy as np
import pandas as pd
import pytest

import inducing
from inducing.estimators.members import count_copies
from tests.estimators.examples import NeverFitted

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(120, 2))
Y = np.sin(3 * X[:, 0]) + 0.1 * RANDOM.normal(size=120)


def small(**settings):
    return inducing.BNNRegressor([2], **{"max_steps": 1, **settings})


def test_a_warning_about_the_table_is_given_once():
    values = {"a": np.where(np.arange(120) == 3, np.nan, X[:, 0]), "b": np.where(X[:, 1] > 0, "yes", "no")}
    with pytest.warns(inducing.TableWarning, match="imputed") as found:
        inducing.AutoRegressor({"one": small(), "two": small()}, random_state=0).fit(pd.DataFrame(values), Y)
    assert len(found) == 1


def test_counts_and_numbers_are_not_compared():
    """The probability of a count and the density of a number have different units."""
    candidates = {"counts": small(likelihood="poisson"), "numbers": small()}
    counts = np.floor(np.exp(Y))
    for weights in (None, {"counts": 0.5, "numbers": 0.5}):
        with pytest.raises(ValueError, match="counts and numbers cannot be blended"):
            inducing.AutoRegressor(candidates, weights=weights, random_state=0).fit(X, counts)


def test_models_that_cannot_be_blended_are_refused_before_the_third_fit():
    candidates = {"numbers": small(), "counts": small(likelihood="poisson"), "never": NeverFitted()}
    with pytest.raises(ValueError, match="numbers and counts cannot be blended"):
        inducing.AutoRegressor(candidates).fit(X, np.abs(Y).round())


def test_copies_are_models_with_the_same_settings_apart_from_seed_and_verbosity():
    models = [small(), small(random_state=1), small(max_steps=2), inducing.DeepGPRegressor(), small(verbose=True)]
    assert count_copies(models) == [0, 1, 0, 0, 2]
