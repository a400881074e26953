"""Boosted trees as tensors, against scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingRegressor

from inducing.estimators.trees import FOLDS, BoostedTrees, fit_trees, join_trees
from inducing.exporting import trace

RANDOM, ONCE = np.random.default_rng(0), np.ones(200, dtype=int)
X, NEW = RANDOM.normal(size=(200, 3)), RANDOM.normal(size=(1000, 3))
Y = np.stack([np.sign(X[:, 0]) * X[:, 1], X[:, 2] ** 2], 1)


def make_models(**settings):
    return [HistGradientBoostingRegressor(random_state=0, **settings).fit(X, y) for y in Y.T]


@pytest.fixture
def tensors():
    return join_trees(make_models(max_iter=5)).to_tensors()


@pytest.mark.parametrize("settings", [{}, {"max_iter": 7}, {"max_leaf_nodes": 3}, {"max_depth": 1}])
def test_they_predict_what_scikit_learn_predicts(settings):
    models = make_models(**settings)
    wanted = np.stack([model.predict(NEW) for model in models], 1)
    np.testing.assert_allclose(join_trees(models).predict(NEW), wanted, rtol=1e-12, atol=1e-12)


def test_inputs_at_a_threshold_go_left():
    models = make_models(max_iter=3)
    rows = np.repeat(models[0]._predictors[0][0].nodes["num_threshold"][:1], 3)[None]
    wanted = np.stack([model.predict(rows) for model in models], 1)
    np.testing.assert_allclose(join_trees(models).predict(rows), wanted, rtol=1e-12)


def test_models_with_different_numbers_of_trees_and_a_constant():
    models = [
        HistGradientBoostingRegressor(max_iter=steps).fit(X, y) for steps, y in ((2, Y[:, 0]), (5, np.full(200, 3.0)))
    ]
    wanted = np.stack([model.predict(NEW) for model in models], 1)
    np.testing.assert_allclose(join_trees(models).predict(NEW), wanted, rtol=1e-12)


def test_each_training_row_is_predicted_by_trees_that_did_not_see_it():
    noise = RANDOM.normal(size=(200, 1))
    trees, held_out = fit_trees(X, noise, np.ones(200), ONCE)
    # targets that nothing explains: trees that saw them seem to explain most of them
    assert np.corrcoef(trees.predict(X)[:, 0], noise[:, 0])[0, 1] > 0.7
    assert abs(np.corrcoef(held_out[:, 0], noise[:, 0])[0, 1]) < 0.3
    changed = noise.copy()
    changed[17] += 100
    assert fit_trees(X, changed, np.ones(200), ONCE)[1][17] == held_out[17]


def test_one_copy_of_a_row_is_left_out_at_a_time():
    noise, copies = RANDOM.normal(size=(200, 1)), np.where(np.arange(200) < 100, 4, 1)
    _, held_out = fit_trees(X, noise, copies.astype(float), copies)
    # a new row that equals a training row is predicted as well as the other copies are
    repeated, alone = (
        np.corrcoef(held_out[rows, 0], noise[rows, 0])[0, 1] for rows in (slice(0, 100), slice(100, 200))
    )
    assert repeated > 0.6
    assert abs(alone) < 0.3
    weighted = fit_trees(X, noise, copies.astype(float), ONCE)[1]
    assert abs(np.corrcoef(weighted[:100, 0], noise[:100, 0])[0, 1]) < 0.3, "a weight is not a copy"


def test_a_table_that_is_repeated_as_a_whole_is_the_table_itself():
    noise, weights = RANDOM.normal(size=(200, 1)), np.ones(200)
    once = fit_trees(X, noise, 3 * weights, ONCE)[1]
    np.testing.assert_array_equal(fit_trees(X, noise, 3 * weights, 3 * ONCE)[1], once)
    copies = np.where(np.arange(200) < 100, 2, 3)
    some = fit_trees(X, noise, 1.0 * copies, copies)[1]
    np.testing.assert_array_equal(fit_trees(X, noise, 1.0 * copies, 4 * copies)[1], some)


def test_a_weight_is_a_number_of_rows():
    weights = np.where(np.arange(200) < 100, 3.0, 1.0)
    once, _ = fit_trees(X, Y, weights, ONCE)
    model = HistGradientBoostingRegressor(random_state=0).fit(X, Y[:, 0], weights)
    np.testing.assert_allclose(once.predict(NEW)[:, 0], model.predict(NEW), rtol=1e-12, atol=1e-12)


def test_missing_targets_are_left_out():
    missing = np.arange(200) % 3 == 0
    one, seen = np.where(missing, np.nan, Y[:, 0]), ~missing
    trees, held_out = fit_trees(X, np.stack([one, Y[:, 1]], 1), np.ones(200), ONCE)
    alone, held_out_alone = fit_trees(X[seen], Y[seen, :1], np.ones(seen.sum()), ONCE[seen])
    np.testing.assert_allclose(trees.predict(NEW)[:, 0], alone.predict(NEW)[:, 0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(held_out[seen, 0], held_out_alone[:, 0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(held_out[missing, 0], alone.predict(X[missing])[:, 0], rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(held_out[:, 1:], fit_trees(X, Y[:, 1:], np.ones(200), ONCE)[1])


@pytest.mark.parametrize("count", [1, 2, FOLDS])
def test_few_rows(count):
    trees, held_out = fit_trees(X[:count], Y[:count], np.ones(count), ONCE[:count])
    assert held_out.shape == (count, 2)
    assert np.isfinite(held_out).all()
    assert np.isfinite(trees.predict(NEW)).all()


def test_they_are_restored_from_their_tensors(tensors):
    trees = BoostedTrees.from_tensors(tensors, 3)
    np.testing.assert_array_equal(trees.predict(NEW), join_trees(make_models(max_iter=5)).predict(NEW))


def test_they_are_exported_for_any_number_of_rows():
    trees = join_trees(make_models(max_iter=5, max_depth=3))
    program = trace(trees, torch.as_tensor(NEW[:8])).module()
    np.testing.assert_array_equal(program(torch.as_tensor(NEW)).numpy(), trees.predict(NEW))


def changed(name, change):
    return lambda tensors: tensors.update({f"trees.{name}": change(tensors[f"trees.{name}"])})


DAMAGES = {
    "an input that does not exist": changed("feature", lambda t: t + 3),
    "a negative input": changed("feature", lambda t: t - 1),
    "a node that does not exist": changed("left", lambda t: t + 1000),
    "an output that does not exist": changed("output", lambda t: t + 2),
    "other sizes": changed("right", lambda t: t[:, :-1]),
    "another number of trees": changed("output", lambda t: t[:-1]),
    "another dtype": changed("value", lambda t: t.float()),
    "a NaN": changed("threshold", lambda t: t * torch.nan),
    "no trees": changed("value", lambda t: t[:0]),
    "one axis": changed("value", lambda t: t[0]),
    "no predictions": changed("start", lambda t: t[:0]),
    "a depth that takes forever": changed("depth", lambda t: torch.tensor(10**9)),
    "a depth with axes": changed("depth", lambda t: t[None]),
    "a missing tensor": lambda tensors: tensors.pop("trees.left"),
    "a surplus tensor": lambda tensors: tensors.update({"trees.more": torch.zeros(1)}),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_tensors_that_do_not_fit_are_refused(damage, tensors):
    damage(tensors)
    with pytest.raises(ValueError, match="trees"):
        BoostedTrees.from_tensors(tensors, 3)
