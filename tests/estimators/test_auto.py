"""The automatic blend of estimators by held-out rows."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.utils import get_tags

import inducing
from inducing.estimators import division
from inducing.tables.schema import learn_schema
from tests.estimators.examples import NeverFitted

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(120, 2))
Y = np.sin(3 * X[:, 0]) + 0.1 * RANDOM.normal(size=120)
GOOD, POOR = inducing.BNNRegressor([20], max_steps=100), inducing.BNNRegressor([1], max_steps=1)


@pytest.mark.parametrize("order", [("good", "poor"), ("poor", "good")])
def test_the_better_one_has_most_of_the_weight_and_all_rows_return(order, monkeypatch):
    fits = []
    fit = inducing.BNNRegressor.fit
    monkeypatch.setattr(
        inducing.BNNRegressor, "fit", lambda self, X, *rest: (fits.append(len(X)), fit(self, X, *rest))[1]
    )
    candidates = {"good": GOOD, "poor": POOR}
    model = inducing.AutoRegressor({name: candidates[name] for name in order}, random_state=0).fit(X, Y)
    assert list(model.weights_) == list(order)
    assert model.weights_["good"] > 0.8
    assert model.scores_["good"] > model.scores_["poor"] + 0.1
    assert fits == [96, 96, 120, 120]
    assert model.members_["good"].hidden == [20]
    assert not hasattr(GOOD, "network_"), "candidates are cloned"


def test_predictions_of_one_model_are_its_own():
    model = inducing.AutoRegressor({"good": GOOD}, random_state=0).fit(X, Y)
    alone = clone(model.members_["good"]).fit(X, Y)
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
    monkeypatch.setattr(division, "MOST_HELD_OUT", 5)
    model = inducing.AutoRegressor({"good": clone(GOOD).set_params(max_steps=2)}, random_state=0).fit(X, Y)
    assert len(model.members_["good"].network_.inducing_points) == 115


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
    assert inducing.AutoRegressor.default_candidates(1000) == models
    assert list(inducing.AutoRegressor.default_candidates(1001)) == ["bnn", "second bnn", "third bnn", "trees"]
    both = inducing.AutoRegressor(weights={"second bnn": 1, "dgp": 1}, max_steps=1).fit(X, Y)
    assert list(both.members_) == ["second bnn", "dgp"], "weights may name the candidates of any number of rows"
    assert inducing.AutoClassifier.default_candidates(1001)["third bnn"] is inducing.BNNClassifier
    with pytest.raises(ValueError, match="candidates is empty"):
        inducing.AutoRegressor({}).fit(X, Y)
    with pytest.raises(TypeError, match="candidates must be estimators by name"):
        inducing.AutoRegressor([GOOD]).fit(X, Y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        inducing.AutoRegressor({"good": GOOD}).fit(X, Y[:50])
    with pytest.raises(ValueError, match="at least 3 are required"):
        inducing.AutoRegressor().fit(X[:2], Y[:2])
    with pytest.raises(ValueError, match="use AutoRegressor"):
        inducing.AutoClassifier({"bnn": inducing.BNNClassifier([2], max_steps=1)}).fit(X[:20], np.arange(20))
    with pytest.raises(Exception, match="not fitted"):
        inducing.AutoRegressor().predict(X)


def test_candidates_are_checked():
    for candidates, error, message in (
        ({"a": inducing.BNNClassifier()}, TypeError, r"candidates\['a'\] must be a regressor of inducing"),
        ({"a": inducing.BNNRegressor}, TypeError, "pass an instance"),
        ({"a": 5}, TypeError, "got a int"),
        ({"a/b": GOOD}, ValueError, "without a slash"),
        ({1: GOOD}, ValueError, "names of candidates must be texts"),
    ):
        with pytest.raises(error, match=message):
            inducing.AutoRegressor(candidates).fit(X, Y)


def test_a_table_and_its_schema():
    table = pd.DataFrame({"a": X[:, 0], "text": np.where(X[:, 1] > 0, "x", "y")})
    table.loc[3, "a"] = np.nan
    candidates = {"one": clone(POOR)}
    model = inducing.AutoRegressor(candidates, schema=inducing.Schema.of(table), random_state=0).fit(table, Y)
    assert model.feature_names_in_.tolist() == ["a", "text"]
    assert np.isfinite(model.predict(table)).all()
    assert not hasattr(inducing.AutoRegressor(candidates, random_state=0).fit(X, Y), "feature_names_in_")


def test_an_update_that_one_model_refuses_changes_none():
    candidates = {"steps": inducing.BNNRegressor([2], max_steps=1, num_inducing=5), "exact": POOR}
    model = inducing.AutoRegressor(candidates, weights={"steps": 1, "exact": 1}, random_state=0).fit(X, Y)
    before = model.predict(X)
    with pytest.raises(ValueError, match=r"^exact: this model has an exact last layer"):
        model.update(X[:5], Y[:5], num_steps=3)
    assert np.array_equal(model.predict(X), before)
    members = dict(model.members_)
    model.update(X[:5] + 1, Y[:5])
    assert not np.array_equal(model.predict(X), before)
    assert not hasattr(members["exact"], "updated_"), "models that were taken out of the blend stay as they were"


def test_new_rows_update_the_only_model():
    model = inducing.AutoRegressor({"poor": POOR}, random_state=0).fit(X, Y)
    before = model.predict(X)
    assert model.update(X[:5] + 1, Y[:5]) is model
    assert not np.array_equal(model.predict(X), before)
    assert np.array_equal(model.predict(X), model.members_["poor"].predict(X))


def small_blend(**settings):
    """A blend with known weights, fitted in a moment."""
    candidates = {"wide": inducing.BNNRegressor([8], max_steps=30, n_samples=20), "deep": inducing.BNNRegressor([3, 3])}
    candidates["deep"].set_params(max_steps=10, likelihood="heteroscedastic", n_samples=10)
    return inducing.AutoRegressor(candidates, weights={"wide": 3, "deep": 1}, random_state=0, **settings).fit(X, Y)


def test_a_blend_is_the_mixture_of_its_members():
    """The density, the moments and the distribution function are the weighted means of those of the members."""
    model = small_blend()
    assert model.weights_ == {"wide": 0.75, "deep": 0.25}
    assert model.scores_ == {}
    assert not hasattr(model.candidates["wide"], "network_"), "candidates are cloned"
    functions = model.sample_functions(20, 3)
    values = functions(X)
    parts = [model.members_[name].sample_functions(count, 3) for name, count in (("wide", 15), ("deep", 5))]
    assert np.array_equal(values, np.concatenate([part(X) for part in parts]))
    blended, (wide, deep) = functions.predict(X), [part.predict(X) for part in parts]
    y = torch.as_tensor(Y)[:, None]
    density = 0.75 * wide.log_prob(y).exp() + 0.25 * deep.log_prob(y).exp()
    torch.testing.assert_close(blended.log_prob(y).exp(), density)
    torch.testing.assert_close(blended.mean, 0.75 * wide.mean + 0.25 * deep.mean)
    torch.testing.assert_close(blended.aleatoric, 0.75 * wide.aleatoric + 0.25 * deep.aleatoric)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == Y.shape
    low, high = model.predict_interval(X)
    assert (low < mean).all()
    assert (mean < high).all()
    assert model.sample_y(X, 4).shape == (120, 4)
    x = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    functions(x).sum().backward()
    assert x.grad.abs().min() > 0
    assert functions(x).shape == (20, 3)


def test_rows_in_batches_are_the_same(monkeypatch):
    model = small_blend()
    whole = model.predict_quantiles(X, [0.1, 0.9])
    monkeypatch.setattr("inducing.estimators.functions.BATCH_NUMBERS", 2**11)
    assert np.allclose(model.predict_quantiles(X, [0.1, 0.9]), whole, rtol=1e-10)


class OfPositiveTargets(inducing.BNNRegressor):
    """A regressor that learns from rows with positive targets alone."""

    def fit(self, X, y, sample_weight=None):
        return super().fit(X[y > 0], y[y > 0])


class OfNegativeTargets(inducing.BNNRegressor):
    def fit(self, X, y, sample_weight=None):
        return super().fit(X[y < 0], y[y < 0])


def test_models_that_know_different_rows_are_blended():
    random = np.random.default_rng(2)
    x = random.normal(size=(400, 2))
    y = np.where(random.random(400) < 0.5, -1.0, 1.0) + 0.3 * random.normal(size=400)
    settings = {"hidden": [3], "max_steps": 30, "likelihood": "gaussian"}
    candidates = {"positive": OfPositiveTargets(**settings), "negative": OfNegativeTargets(**settings)}
    model = inducing.AutoRegressor(candidates, random_state=0).fit(x, y)
    assert set(model.weights_) == set(candidates)
    assert 0.35 < model.weights_["positive"] < 0.65
    assert inducing.log_likelihood_score(model, x, y) > max(model.scores_.values()) + 0.2


def test_a_blend_is_saved(tmp_path):
    model = small_blend()
    inducing.save(model, tmp_path / "model.safetensors")
    loaded = inducing.load(tmp_path / "model.safetensors")
    assert type(loaded) is inducing.AutoRegressor
    assert loaded.weights_ == model.weights_
    assert np.array_equal(loaded.predict(X), model.predict(X))
    assert np.array_equal(loaded.predict_interval(X), model.predict_interval(X))
    again = clone(loaded).fit(X, Y)
    assert np.array_equal(again.predict(X), model.predict(X)), "the same candidates, weights and seed"


def test_a_blend_for_two_targets():
    targets = np.stack([Y, X[:, 0] + Y], 1)
    candidates = {"wide": inducing.BNNRegressor([8], max_steps=5), "deep": inducing.BNNRegressor([3, 3], max_steps=5)}
    model = inducing.AutoRegressor(candidates, weights={"wide": 1, "deep": 1}, random_state=0).fit(X, targets)
    mean = model.predict(X)
    assert mean.shape == targets.shape
    assert model.predict_interval(X)[0].shape == targets.shape
    # normalised over both targets: the mean of importance weights is 1
    y = torch.as_tensor(mean[:1] + 3 * np.random.default_rng(0).standard_t(3, (20_000, 2)))
    proposal = torch.distributions.StudentT(3.0, torch.as_tensor(mean[0]), 3.0).log_prob(y).sum(1)
    log_prob = model.predict_distribution(np.repeat(X[:1], len(y), 0)).log_prob(y)
    assert (log_prob - proposal).exp().mean().item() == pytest.approx(1, abs=0.05)


def test_a_blend_of_classifiers_is_saved(tmp_path):
    candidates = {"wide": inducing.BNNClassifier([8], max_steps=5), "deep": inducing.BNNClassifier([3, 3], max_steps=5)}
    model = inducing.AutoClassifier(candidates, weights={"wide": 3, "deep": 1}, random_state=0).fit(X, Y > 0)
    inducing.save(model, tmp_path / "model.safetensors")
    loaded = inducing.load(tmp_path / "model.safetensors")
    assert type(loaded) is inducing.AutoClassifier
    assert np.array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_parts_that_do_not_fit_each_other_are_refused():
    model = small_blend()
    state, parts = model.to_parts()
    other = inducing.BNNRegressor([2], max_steps=1).fit(X[:, :1], Y)
    classes = inducing.BNNClassifier([2], max_steps=1).fit(X, Y > 0)
    for values, members, message in (
        (state | {"class": "AutoClassifier"}, parts, "not that of AutoRegressor"),
        (state, {}, "must each be a Regressor"),
        (state, parts | {"deep": classes}, "must each be a Regressor"),
        (state, parts | {"deep": model}, "must each be a Regressor"),
        (state, parts | {"deep": other}, "wide and deep cannot be blended"),
        (state, {"wide": parts["wide"]}, "weights"),
        (state | {"weights": {"wide": 1.0}}, parts, "weights of"),
        (state | {"weights": {"wide": -1.0, "deep": 2.0}}, parts, "positive"),
        (state | {"weights": {"wide": float("nan"), "deep": 2.0}}, parts, "positive"),
        (state | {"weights": {"wide": 5.0, "deep": 1.0}}, parts, "sum 1"),
        (state | {"weights": {"wide": 1.0, "deep": 0.0}}, parts, "positive"),
        (state | {"weights": {"wide": 10**400, "deep": 1.0}}, parts, "positive"),
        (state | {"weights": {"wide": "much", "deep": 1.0}}, parts, "weights cannot be"),
        (state | {"scores": {"wide": "high"}}, parts, "scores cannot be"),
        (state | {"noise_factor": 0.0}, parts, "noise_factor must be"),
        (state | {"noise_factor": float("inf")}, parts, "noise_factor must be"),
        (state | {"noise_factor": -(10**400)}, parts, "noise_factor must be"),
        (state | {"noise_factor": float("nan")}, parts, "noise_factor must be"),
        (state | {"noise_factor": "large"}, parts, "noise_factor cannot be"),
        ({"class": "AutoRegressor"}, parts, "weights"),
    ):
        with pytest.raises(ValueError, match=message):
            inducing.AutoRegressor.from_parts(values, members)


def test_weights_are_of_models_by_name_in_any_order():
    model = small_blend()
    state, parts = model.to_parts()
    turned = state | {"weights": dict(reversed(state["weights"].items()))}
    loaded = inducing.AutoRegressor.from_parts(turned, parts)
    assert loaded.weights_ == model.weights_
    np.testing.assert_array_equal(loaded.predict(X[:5]), model.predict(X[:5]))


@pytest.mark.parametrize(
    ("weights", "message"), [(np.where(np.arange(len(X)) < 3, -1.0, 1.0), "egative"), (0 * Y, "zero")]
)
def test_weights_of_rows_are_checked_before_any_fit(weights, message):
    with pytest.raises(ValueError, match=message):
        inducing.AutoRegressor({"one": NeverFitted(), "two": NeverFitted()}).fit(X, Y, weights)


def test_rows_without_targets_are_not_held_out():
    targets = np.column_stack([Y, Y])
    targets[10:] = np.nan
    only, some = ({"bnn": inducing.BNNRegressor([2], max_steps=2)} for _ in range(2))
    without = inducing.AutoRegressor(only, random_state=0).fit(X[:10], targets[:10])
    model = inducing.AutoRegressor(some, random_state=0).fit(X, targets)
    assert model.scores_ == pytest.approx(without.scores_)


def test_regressors_take_several_targets():
    assert get_tags(inducing.AutoRegressor()).target_tags.multi_output


def test_weights_that_make_no_sense_are_refused():
    for weights, error, message in (
        ({"other": 1.0}, ValueError, "other"),
        ({}, ValueError, "positive"),
        ({"good": -1.0}, ValueError, "positive"),
        ({"good": "much"}, TypeError, "number"),
        ([1.0], TypeError, "numbers by name"),
    ):
        with pytest.raises(error, match=message):
            inducing.AutoRegressor({"good": GOOD}, weights=weights).fit(X, Y)


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
        score = inducing.log_likelihood_score(model, new_table, new_y)
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


def tiny(**settings):
    return inducing.BNNRegressor([2], **{"max_steps": 1, **settings})


def test_common_settings_replace_those_of_the_candidates():
    candidates = {"one": tiny(max_steps=7, n_samples=5), "two": tiny(n_samples=5)}
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
    model = inducing.AutoRegressor({"one": tiny(), "two": tiny()}, weights=weights, time_budget=8.0, random_state=0)
    assert {member.time_budget for member in model.fit(X, Y).members_.values()} == {share}


def test_copies_of_a_model_have_different_seeds():
    candidates = {"one": tiny(max_steps=3), "two": tiny(max_steps=3, random_state=1), "other": tiny()}
    weights = {"one": 1.0, "two": 1.0, "other": 1.0}
    members = inducing.AutoRegressor(candidates, weights=weights, random_state=0).fit(X, Y).members_
    assert members["two"].random_state == members["one"].random_state + 1
    assert members["other"].random_state == members["one"].random_state
    assert not np.array_equal(members["one"].predict(X), members["two"].predict(X))
    # settings of the blend may make candidates equal
    model = inducing.AutoRegressor(candidates, weights=weights, max_steps=2, random_state=0).fit(X, Y)
    assert len({member.random_state for member in model.members_.values()}) == 3


def test_a_candidate_without_weight_has_no_share_of_the_time_and_is_no_copy():
    candidates = {"never": NeverFitted([2], max_steps=1), "one": tiny()}
    alone = inducing.AutoRegressor({"one": tiny()}, weights={"one": 1.0}, random_state=0).fit(X, Y).members_["one"]
    model = inducing.AutoRegressor(candidates, weights={"one": 1.0, "never": 0.0}, time_budget=8.0, random_state=0)
    member = model.fit(X, Y).members_["one"]
    assert (member.time_budget, member.random_state) == (8.0, alone.random_state)


def test_without_a_second_fit_the_whole_time_is_used(monkeypatch):
    monkeypatch.setattr(division, "MOST_HELD_OUT", 5)
    model = inducing.AutoRegressor({"one": tiny(), "two": tiny()}, time_budget=8.0, random_state=0).fit(X, Y)
    assert {member.time_budget for member in model.members_.values()} == {4.0}


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), "1", True])
def test_a_budget_is_positive(seconds):
    with pytest.raises(ValueError, match="time_budget must be a positive number of seconds"):
        inducing.AutoRegressor({"one": NeverFitted()}, time_budget=seconds).fit(X, Y)
