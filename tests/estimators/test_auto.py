"""The automatic choice of an estimator by held-out rows."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import inducing
from inducing.estimators import auto
from inducing.tables.schema import learn_schema

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(120, 2))
Y = np.sin(3 * X[:, 0]) + 0.1 * RANDOM.normal(size=120)
GOOD, POOR = inducing.BNNRegressor([20], max_steps=200), inducing.BNNRegressor([1], max_steps=1)


@pytest.mark.parametrize("order", [("good", "poor"), ("poor", "good")])
def test_the_better_one_is_chosen_and_fitted_to_all_rows(order, monkeypatch):
    fits = []
    fit = inducing.BNNRegressor.fit
    monkeypatch.setattr(
        inducing.BNNRegressor, "fit", lambda self, X, *rest: (fits.append(len(X)), fit(self, X, *rest))[1]
    )
    candidates = {"good": GOOD, "poor": POOR}
    model = inducing.AutoRegressor({name: candidates[name] for name in order}, random_state=0).fit(X, Y)
    assert model.chosen_ == "good"
    assert model.scores_["good"] > model.scores_["poor"] + 0.1
    assert fits == [96, 96, 120]
    assert model.estimator_.hidden == [20]
    assert not hasattr(GOOD, "network_"), "candidates are cloned"


def test_its_predictions_are_those_of_the_chosen_one():
    model = inducing.AutoRegressor({"good": GOOD}, random_state=0).fit(X, Y)
    alone = clone(model.estimator_).fit(X, Y)
    assert np.array_equal(model.predict(X), alone.predict(X))
    for ours, theirs in zip(model.predict(X, return_std=True), alone.predict(X, return_std=True), strict=True):
        assert np.array_equal(ours, theirs)
    assert np.array_equal(model.predict_interval(X), alone.predict_interval(X))
    assert np.array_equal(model.predict_quantiles(X, 0.3), alone.predict_quantiles(X, 0.3))
    assert np.array_equal(model.sample_y(X, 3), alone.sample_y(X, 3))
    assert np.array_equal(model.sample_functions(2)(X), alone.sample_functions(2)(X))
    assert np.array_equal(model.predict_distribution(X).mean, alone.predict_distribution(X).mean)
    assert model.score(X, Y) > 0.8


def test_few_held_out_rows_do_not_return(monkeypatch):
    monkeypatch.setattr(auto, "MOST_HELD_OUT", 5)
    model = inducing.AutoRegressor({"good": clone(GOOD).set_params(max_steps=2)}, random_state=0).fit(X, Y)
    assert len(model.estimator_.network_.inducing_points) == 115


def test_classes_of_a_table_one_of_them_rare():
    table = pd.DataFrame({"a": X[:, 0], "text": np.where(X[:, 1] > 0, "x", "y")})
    labels = np.where(X[:, 0] > 0, "yes", "no").astype(object)
    labels[7] = "once"
    candidates = {"bnn": inducing.BNNClassifier([5], max_steps=20), "dgp": inducing.DeepGPClassifier(max_steps=2)}
    for seed in range(3):
        model = inducing.AutoClassifier(candidates, random_state=seed).fit(table, labels)
        assert np.isfinite(list(model.scores_.values())).all()
        assert model.classes_.tolist() == ["no", "once", "yes"]
        assert model.predict_proba(table[:4]).shape == (4, 3)
    assert set(model.predict(table)) <= set(labels)


def test_weights_change_the_fit():
    candidates = {"good": clone(GOOD).set_params(max_steps=3)}
    models = (inducing.AutoRegressor(candidates, random_state=0).fit(X, Y, w) for w in (None, 1 + (X[:, 0] > 0)))
    first, second = (model.predict(X) for model in models)
    assert not np.array_equal(first, second)


def test_rows_of_weight_zero_do_not_choose():
    candidates = {"good": clone(GOOD).set_params(max_steps=3)}
    used = np.arange(len(X)) < 80
    scores = []
    for changed in (Y, np.where(used, Y, 1e3)):
        model = inducing.AutoRegressor(candidates, random_state=0).fit(X, changed, 3.0 * used)
        scores.append(model.scores_["good"])
    assert scores[0] == scores[1]
    with pytest.raises(ValueError, match="zero"):
        inducing.AutoRegressor(candidates, random_state=0).fit(X, Y, np.zeros(len(X)))
    chosen = inducing.AutoClassifier({"one": inducing.BNNClassifier([5], max_steps=2)}, random_state=0)
    assert np.isfinite(chosen.fit(X, np.where(used, Y > 0, 2), 3.0 * used).scores_["one"])


def test_the_default_candidates_and_errors():
    models = {"bnn": inducing.BNNRegressor, "dgp": inducing.DeepGPRegressor, "trees": inducing.TreeBNNRegressor}
    assert auto.AutoRegressor.defaults == models
    with pytest.raises(ValueError, match="candidates is empty"):
        inducing.AutoRegressor({}).fit(X, Y)
    with pytest.raises(TypeError, match="candidates must be estimators by name"):
        inducing.AutoRegressor([GOOD]).fit(X, Y)
    with pytest.raises(ValueError, match="at least 3 are required"):
        inducing.AutoRegressor().fit(X[:2], Y[:2])
    with pytest.raises(ValueError, match="use AutoRegressor"):
        inducing.AutoClassifier({"bnn": inducing.BNNClassifier([2], max_steps=1)}).fit(X[:20], np.arange(20))
    with pytest.raises(Exception, match="not fitted"):
        inducing.AutoRegressor().predict(X)


def test_new_rows_update_the_chosen_estimator():
    model = inducing.AutoRegressor({"poor": POOR}, random_state=0).fit(X, Y)
    before = model.predict(X)
    assert model.update(X[:5] + 1, Y[:5]) is model
    assert not np.array_equal(model.predict(X), before)
    assert np.array_equal(model.predict(X), model.estimator_.predict(X))
    with pytest.raises(ValueError, match=r"AutoRegressor cannot be saved. Save its estimator_"):
        inducing.save(model, "model.safetensors")


@pytest.mark.parametrize("seed", range(12, 16))
def test_each_class_keeps_a_row_to_learn_from(seed):
    """With 9 + 1 labels, a split at random would hold out the only row of a class for some seeds."""
    x, y = X[:10], np.arange(10) == 3
    candidates = {
        "bnn": inducing.BNNClassifier([3], max_steps=2),
        "trees": inducing.TreeBNNClassifier([3], max_steps=2),
    }
    model = inducing.AutoClassifier(candidates, random_state=seed).fit(x, y)
    assert model.classes_.tolist() == [False, True]
    assert all(score < 0 for score in model.scores_.values())


def test_held_out_rows_do_not_know_their_targets():
    """Effects of levels are learned without the held-out rows, so their score is that of new rows.

    With the effects of all rows it is 0.15 nats higher.
    """
    random = np.random.default_rng(1)
    effects = random.normal(size=300)

    def make_rows(number):
        levels = random.integers(0, 300, number)
        table = pd.DataFrame({"level": [f"level {k}" for k in levels], "x": random.normal(size=number)})
        return table, effects[levels] + random.normal(size=number)

    (table, y), (new_table, new_y) = make_rows(900), make_rows(2000)
    encoded = learn_schema(table, targets=pd.DataFrame({"y": (y - y.mean()) / y.std()}))
    settings = {"max_steps": 100, "likelihood": "gaussian", "num_inducing": 20}
    candidate = inducing.BNNRegressor([5], schema=encoded.schema, **settings)
    model = inducing.AutoRegressor({"bnn": candidate}, random_state=0).fit(encoded, y)
    with pytest.warns(inducing.TableWarning, match="level"):
        score = inducing.log_likelihood_score(model.estimator_, new_table, new_y)
    assert model.scores_["bnn"] < score + 0.07


def test_an_estimator_learns_the_effects_of_its_own_rows():
    """A schema may know the effects in other rows, and an encoded table may come from it."""
    random = np.random.default_rng(0)
    numbers = random.integers(0, 30, 300)
    table, y = pd.DataFrame({"level": [f"level {k}" for k in numbers]}), numbers.astype(float)
    encoded = learn_schema(table, targets=pd.DataFrame({"y": random.normal(size=300)}))
    model = inducing.BNNRegressor([5], schema=encoded.schema, max_steps=3, random_state=0).fit(encoded, y)
    (column,) = model.schema_.columns
    effects = np.array(column.effects)[:, 0]
    assert np.corrcoef(effects, [float(level.removeprefix("level ")) for level in column.categories])[0, 1] > 0.99
    assert np.array_equal(model.predict(encoded), model.predict(table))
