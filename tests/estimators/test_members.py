"""The models of a blend: their fits, their common settings, and what they must have in common."""

import numpy as np
import pandas as pd
import pytest

import inducing
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


def test_common_settings_replace_those_of_the_candidates():
    candidates = {"one": small(max_steps=7, n_samples=5), "two": small(n_samples=5)}
    own = inducing.AutoRegressor(candidates, weights={"one": 1, "two": 1}, random_state=0).fit(X, Y)
    assert [len(member.history_) for member in own.members_.values()] == [7, 1]
    common = inducing.AutoRegressor(
        candidates, weights={"one": 1, "two": 1}, max_steps=2, device="cpu", time_budget=1000.0, random_state=0
    ).fit(X, Y)
    for member in common.members_.values():
        assert len(member.history_) == 2
        assert (member.max_steps, member.device, member.time_budget) == (2, "cpu", 500.0)
    assert candidates["one"].max_steps == 7, "candidates are cloned"


@pytest.mark.parametrize(("weights", "share"), [(None, 2.0), ({"one": 1.0}, 8.0), ({"one": 1.0, "two": 3.0}, 4.0)])
def test_fits_share_the_time(weights, share):
    """Without weights each of two candidates may be fitted twice."""
    model = inducing.AutoRegressor({"one": small(), "two": small()}, weights=weights, time_budget=8.0, random_state=0)
    assert {member.time_budget for member in model.fit(X, Y).members_.values()} == {share}


def test_copies_of_a_model_have_different_seeds():
    candidates = {"one": small(max_steps=3), "two": small(max_steps=3, random_state=1), "other": small()}
    weights = {"one": 1.0, "two": 1.0, "other": 1.0}
    members = inducing.AutoRegressor(candidates, weights=weights, random_state=0).fit(X, Y).members_
    assert members["two"].random_state == members["one"].random_state + 1
    assert members["other"].random_state == members["one"].random_state
    assert not np.array_equal(members["one"].predict(X), members["two"].predict(X))


def test_a_candidate_without_weight_has_no_share_of_the_time():
    candidates = {"one": small(), "never": NeverFitted()}
    model = inducing.AutoRegressor(candidates, weights={"one": 1.0, "never": 0.0}, time_budget=8.0, random_state=0)
    assert model.fit(X, Y).members_["one"].time_budget == 8.0


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), "1", True])
def test_a_budget_is_positive(seconds):
    with pytest.raises(ValueError, match="time_budget must be a positive number of seconds"):
        inducing.AutoRegressor({"one": NeverFitted()}, time_budget=seconds).fit(X, Y)
