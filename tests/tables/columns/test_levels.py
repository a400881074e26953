"""Text with many levels: effects on the target, without leaks."""

import json

import numpy as np
import pandas as pd
import pytest

import inducing
from inducing.estimators.targets import label_effect_targets, numeric_effect_targets
from inducing.tables.columns import column_from_json, column_to_json
from inducing.tables.columns.levels import LevelColumn, are_many, estimate_effects
from inducing.tables.errors import TableWarning
from inducing.tables.schema import Schema, learn_schema


def make(rows=2000, levels=100, seed=0):
    """A number and a text with a true effect on the target."""
    random = np.random.default_rng(seed)
    level, effects = random.integers(levels, size=rows), random.normal(size=levels)
    table = pd.DataFrame({"size": random.normal(size=rows), "city": [f"city {each:03d}" for each in level]})
    return table, 3 * table["size"].to_numpy() + effects[level] + 0.3 * random.normal(size=rows), effects


def encode(table, y):
    return learn_schema(table, targets=numeric_effect_targets(y, (False,), ["price"]))


def test_effects_are_the_true_ones():
    """They are not those of the other columns: the plain means of the levels are much further away."""
    table, y, effects = make()
    column = encode(table, y).schema.columns[1]
    assert isinstance(column, LevelColumn)
    assert column.encoded_names == ["effect of city on price"]
    found = np.array(column.effects)[:, 0] * y.std()
    error = found - effects + effects.mean()
    assert np.sqrt(np.mean(error**2)) < 0.15
    means = pd.Series(y).groupby(table["city"]).mean().to_numpy()
    assert np.sqrt(np.mean((means - effects) ** 2)) > 0.5


def test_effects_without_meaning_are_shrunk_to_nothing():
    table, y, _ = make()
    noise = np.random.default_rng(1).normal(size=len(y))
    effects = np.array(encode(table, noise).schema.columns[1].effects)
    # the means themselves have a standard deviation of 1 / sqrt(20)
    assert effects.std() < 0.1


def test_the_target_does_not_leak():
    """With noise as the target, effects at training rows are not correlated with their own noise."""
    table, _, _ = make(rows=1000, levels=300)
    correlations = []
    for seed in range(10):
        noise = np.random.default_rng(seed).normal(size=1000)
        targets = numeric_effect_targets(noise, (False,))
        held_out = learn_schema(table, targets=targets).to_training_numpy(targets)[:, 1]
        correlations.append(np.corrcoef(held_out, noise)[0, 1] if held_out.std() > 0 else 0.0)
    assert np.mean(correlations) < 0.05


def test_missing_targets_are_left_out():
    table, y, _ = make()
    plain, codes = table[["size"]].to_numpy(), np.unique(table["city"], return_inverse=True)[1]
    # the last level has no observed target
    missing = (np.arange(2000) % 4 > 0) | (codes == codes.max())
    (found,) = estimate_effects(plain, [codes], np.stack([y, np.where(missing, np.nan, y)], 1))
    (complete,) = estimate_effects(plain, [codes], y[:, None])
    (observed,) = estimate_effects(plain[~missing], [codes[~missing]], y[~missing, None])
    np.testing.assert_allclose(found.levels, np.column_stack([complete.levels, [*observed.levels[:, 0], 0.0]]))
    np.testing.assert_allclose(found.rows[:, :1], complete.rows)
    np.testing.assert_allclose(found.rows[~missing, 1:], observed.rows)
    np.testing.assert_array_equal(found.rows[missing, 1], found.levels[codes[missing], 1])


def test_rows_of_weight_zero_have_no_influence():
    table, y, _ = make(rows=200, levels=30)
    used = np.arange(200) < 150
    settings = {"max_steps": 2, "n_samples": 2, "random_state": 0}
    for change in (0.0, 1000.0):
        changed = np.where(used, y, change * (np.arange(200) % 2))
        model = inducing.BNNRegressor([3], **settings).fit(table, changed, used.astype(float))
        # the inputs of the others have none either, except for the medians of missing values
        dropped = inducing.BNNRegressor([3], **settings).fit(table[used], y[used])
        np.testing.assert_allclose(model.predict(table[used]), dropped.predict(table[used]), rtol=1e-6)
    labels = np.where(used, y > 0, 2)
    model = inducing.BNNClassifier([3], **settings).fit(table, labels, used.astype(float))
    assert list(model.classes_) == [0, 1]


def test_training_rows_differ_from_later_ones():
    table, y, _ = make()
    targets = numeric_effect_targets(y, (False,))
    encoded = learn_schema(table, targets=targets)
    later, training = encoded.to_numpy(), encoded.to_training_numpy(targets)
    assert np.array_equal(later[:, 0], training[:, 0])
    assert not np.array_equal(later[:, 1], training[:, 1])
    assert np.corrcoef(later[:, 1], training[:, 1])[0, 1] > 0.9
    assert np.array_equal(encoded.schema.encode(table), later)


def test_the_fewer_the_rows_the_smaller_the_effect():
    table, y, _ = make()
    table.loc[:20, "city"] = ["village"] + ["town"] * 20
    column = encode(table, y + 5 * (np.arange(2000) < 21)).schema.columns[1]
    effects = dict(zip(column.categories, column.effects, strict=True))
    assert 0 < effects["village"][0] < effects["town"][0]


def test_unseen_levels_have_no_effect_and_are_told():
    table, y, _ = make()
    schema = encode(table, y).schema
    with pytest.warns(TableWarning, match="'city': 2 rows .*'nowhere'"):
        encoded = schema.encode(pd.DataFrame({"size": [0.0] * 3, "city": ["city 007", "nowhere", None]}))
    assert encoded[0, 1] != 0
    assert encoded[1:, 1].tolist() == [0, 0]


def test_a_schema_may_be_trained_with_other_rows():
    """Their unseen levels are one."""
    table, y, _ = make()
    schema = encode(table[:50].assign(city=[f"city {row % 25:03d}" for row in range(50)]), y[:50]).schema
    with pytest.warns(TableWarning, match="'city'"):
        encoded = schema.encode_table(table)
    assert np.isfinite(encoded.to_training_numpy(numeric_effect_targets(y, (False,)))).all()


def test_missing_values_are_a_level():
    table, y, _ = make()
    table.loc[:99, "city"] = None
    column = encode(table, y).schema.columns[1]
    assert column.missing == 100
    assert "(missing)" in column.categories
    assert column.describe() == ("text, 100 levels", "effects on the target; 100 missing values: a level")


def test_classes_but_one_have_effects():
    table, y, _ = make()
    labels = np.array(["low", "mid", "top"])[np.digitize(y, [-1, 1])]
    column = learn_schema(table, targets=label_effect_targets(labels)).schema.columns[1]
    assert column.targets == ("mid", "top")
    assert len(column.encoded_names) == 2


def test_two_columns_share_what_they_explain():
    random = np.random.default_rng(0)
    codes = [random.integers(40, size=3000) for _ in range(2)]
    effects = [random.normal(size=40) for _ in range(2)]
    y = sum(effect[code] for effect, code in zip(effects, codes, strict=True))[:, None]
    for effect, found in zip(effects, estimate_effects(np.zeros((3000, 1)), codes, y), strict=True):
        assert np.corrcoef(found.levels[:, 0], effect)[0, 1] > 0.995


def test_estimators_encode_levels_and_save_them(tmp_path):
    table, y, _ = make(rows=600, levels=40)
    small = {"max_steps": 100, "num_inducing": 30, "n_samples": 20, "random_state": 0}
    model = inducing.BNNRegressor(**small).fit(table[:500], y[:500])
    assert model.schema_.encoded_names == ("size", "effect of city on y")
    assert model.score(table[500:], y[500:]) > 0.8
    inducing.save(model, tmp_path / "m.safetensors")
    assert (inducing.load(tmp_path / "m.safetensors").predict(table) == model.predict(table)).all()
    labels = np.where(y > 0, "high", "low")
    classifier = inducing.BNNClassifier(**small).fit(table[:500], labels[:500])
    assert classifier.schema_.encoded_names == ("size", "effect of city on low")
    assert classifier.score(table[500:], labels[500:]) > 0.8


def test_a_given_schema_does_not_leak_either():
    """A table that is encoded by the estimator gets the effects of training rows."""
    table, _, _ = make(rows=300, levels=90)
    noise = np.random.default_rng(1).normal(size=300)
    targets = numeric_effect_targets(noise, (False,))
    schema = Schema.of(table, targets=targets)
    model = inducing.BNNRegressor(schema=schema, max_steps=1, num_inducing=5)
    rows = model._encode(table, reset=True, y=noise)
    assert np.array_equal(rows, schema.encode_columns(table).to_training_numpy(targets))


@pytest.mark.parametrize(
    ("levels", "rows", "many"), [(5, 10, False), (6, 29, True), (6, 30, False), (20, 100, False), (21, 1000, True)]
)
def test_few_rows_for_each_level_are_many_levels(levels, rows, many):
    assert are_many(levels, rows) == many
    table = pd.DataFrame({"city": [f"city {row % levels}" for row in range(rows)]})
    column = encode(table, np.arange(rows) * 1.0).schema.columns[0]
    assert isinstance(column, LevelColumn) == many


def test_other_targets_than_those_of_the_schema():
    table, y, _ = make()
    targets = numeric_effect_targets(np.stack([y, y], 1), (False, False))
    with pytest.raises(ValueError, match="effects on 1 targets, but 2 are given"):
        encode(table, y).to_training_numpy(targets)


def test_without_targets_all_categories_are_one_hot():
    table, _, _ = make()
    assert len(Schema.of(table).encoded_names) == 101


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"effects": [[1.0]]}, "effects"),
        ({"effects": [[float("nan")]] * 100}, "effects"),
        ({"effects": "none"}, "effects"),
        ({"targets": []}, "effects"),
        ({"categories": ["city"] * 100}, "categories"),
        ({"categories": []}, "categories"),
        ({"new": 1}, "new"),
    ],
)
def test_a_file_that_is_wrong_is_refused(change, message):
    table, y, _ = make()
    entry = json.loads(json.dumps(column_to_json(encode(table, y).schema.columns[1])))
    assert column_from_json(entry) == encode(table, y).schema.columns[1]
    with pytest.raises(ValueError, match=message):
        column_from_json(entry | change)


def test_weighted_rows_are_repeated_rows():
    """Also in the effects of levels, and in any order."""
    random = np.random.default_rng(0)
    table = pd.DataFrame({"level": [f"level {k}" for k in random.integers(0, 25, 120)], "x": random.normal(size=120)})
    targets = pd.DataFrame({"y": random.normal(size=120)})
    weights = random.integers(1, 4, 120)
    encoded = learn_schema(table, targets=targets)
    schema, rows = encoded.learn_effects(targets, weights.astype(float))
    order = random.permutation(np.repeat(np.arange(120), weights))
    repeated, repeated_rows = encoded.take(order).learn_effects(targets.iloc[order])
    for ours, theirs in zip(schema.columns, repeated.columns, strict=True):
        np.testing.assert_allclose(getattr(ours, "effects", ()), getattr(theirs, "effects", ()), rtol=1e-10)
    np.testing.assert_allclose(repeated_rows, rows[order], rtol=1e-10)


def test_the_shrinkage_is_the_ratio_of_variances_with_weights():
    """Unit weights are no weights."""
    random = np.random.default_rng(0)
    plain, codes, y = random.normal(size=(60, 2)), [random.integers(0, 9, 60)], random.normal(size=(60, 1))
    (plain_effects,), (weighted,) = estimate_effects(plain, codes, y), estimate_effects(plain, codes, y, np.ones(60))
    np.testing.assert_array_equal(plain_effects.rows, weighted.rows)
