"""New rows without a new fit."""

import numpy as np
import pytest
import torch

import inducing

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(3.0, 2.0, (60, 2))
Y = 100 + 20 * X[:, 0] + RANDOM.normal(size=60)
SMALL = {"max_steps": 50, "random_state": 0}


@pytest.mark.parametrize(
    "make",
    [lambda: inducing.BNNRegressor(hidden=[10], **SMALL), lambda: inducing.DeepGPRegressor(num_layers=1, **SMALL)],
)
def test_an_update_helps_where_the_new_rows_are(make):
    low = X[:, 0] < 3
    model = make().fit(X[low], Y[low])
    before, spread = model.predict(X[~low], return_std=True)
    model.update(X[~low][::2], Y[~low][::2]).update(X[~low][1::4], Y[~low][1::4])
    after, narrower = model.predict(X[~low], return_std=True)
    errors = [np.abs(found - Y[~low]).mean() for found in (before, after)]
    assert errors[1] < 0.7 * errors[0]
    assert narrower.mean() < spread.mean()
    assert model.fit(X, Y).predictor is model.network_


@pytest.mark.parametrize(
    "estimator",
    [
        inducing.BNNRegressor([5], max_steps=2, random_state=0),
        inducing.BNNRegressor([5], max_steps=2, random_state=0, num_inducing=9, likelihood="gaussian"),
        inducing.DeepGPRegressor(max_steps=2, random_state=0, num_inducing=9),
    ],
)
def test_an_updated_estimator_is_saved_with_its_update(estimator, tmp_path):
    targets = np.column_stack([Y, np.where(X[:, 1] > 4, np.nan, -Y)])
    model = estimator.fit(X[:30], targets[:30])
    before = model.predict(X)
    model.update(X[30:40], targets[30:40]).update(X[40:50], targets[40:50])
    inducing.save(model, tmp_path / "model.safetensors")
    loaded = inducing.load(tmp_path / "model.safetensors")
    assert not np.array_equal(model.predict(X), before)
    assert np.array_equal(loaded.predict(X), model.predict(X))
    # it can be updated again, and saved again
    for each in (model, loaded):
        each.update(X[50:], targets[50:])
    assert np.array_equal(loaded.predict(X), model.predict(X))
    inducing.save(loaded, tmp_path / "again.safetensors")
    # a new fit forgets the rows
    loaded.fit(X[:30], targets[:30])
    assert np.array_equal(loaded.predict(X), before)
    inducing.save(loaded, tmp_path / "fitted.safetensors")
    assert np.array_equal(inducing.load(tmp_path / "fitted.safetensors").predict(X), before)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"update.x": None}, "update.x"),
        ({"update.y": torch.zeros(3, 1).double()}, "same number of rows"),
        ({"update.x": torch.zeros(2, 5).double()}, "shape"),
        ({"update.x": torch.full((2, 2), torch.nan).double()}, "NaN"),
        ({"update.y": torch.zeros(2, 1)}, "update do not fit the model"),
    ],
)
def test_wrong_updates_in_a_file_are_refused(changes, message):
    model = inducing.BNNRegressor([5], max_steps=2, random_state=0).fit(X, Y).update(X[:2], Y[:2])
    state, tensors = model.to_state()
    changed = {name: tensor for name, tensor in (tensors | changes).items() if tensor is not None}
    with pytest.raises(ValueError, match=message):
        inducing.BNNRegressor.from_state(state, changed, model.network_, model.likelihood_)


def test_labels_in_a_file_have_no_update():
    model = inducing.BNNClassifier([5], max_steps=2, random_state=0).fit(X, Y > 100)
    state, tensors = model.to_state()
    tensors |= {"update.x": torch.zeros(2, 2).double(), "update.y": torch.zeros(2).long()}
    with pytest.raises(ValueError, match="Categorical"):
        inducing.BNNClassifier.from_state(state, tensors, model.network_, model.likelihood_)


def test_what_cannot_be_updated():
    model = inducing.BNNRegressor(hidden=[5], max_steps=2, random_state=0).fit(X, Y).update(X[:2], Y[:2])
    with pytest.raises(ValueError, match="inconsistent"):
        model.update(X[:2], Y[:3])
    with pytest.raises(ValueError, match="num_inducing=100"):
        model.update(X[:2], Y[:2], num_steps=3)
    classifier = inducing.BNNClassifier(hidden=[5], max_steps=2, random_state=0).fit(X, Y > 100)
    with pytest.raises(TypeError, match="Categorical"):
        classifier.update(X[:2], Y[:2] > 100)


@pytest.mark.parametrize(
    "make",
    [
        lambda: inducing.BNNRegressor(hidden=[10], num_inducing=9, **SMALL),
        lambda: inducing.DeepGPRegressor(num_layers=1, num_inducing=9, **SMALL),
    ],
)
def test_gradient_steps_learn_from_all_new_rows_and_keep_none(make, tmp_path):
    low = X[:, 0] < 3
    model = make().fit(X[low], Y[low])
    old, new = np.abs(model.predict(X[low]) - Y[low]).mean(), np.abs(model.predict(X[~low]) - Y[~low]).mean()
    model.update(X[~low][::2], Y[~low][::2]).update(X[~low][1::2], Y[~low][1::2], num_steps=100)
    assert model.predictor is model.network_
    assert np.abs(model.predict(X[~low]) - Y[~low]).mean() < 0.7 * new
    # the earlier rows are not forgotten; the standard deviation of the targets is 40
    assert np.abs(model.predict(X[low]) - Y[low]).mean() < old + 5
    inducing.save(model, tmp_path / "model.safetensors")
    assert np.array_equal(inducing.load(tmp_path / "model.safetensors").predict(X), model.predict(X))


def test_classifiers_learn_by_gradient_steps():
    # a rule that holds only for the rows of the fit
    low = X[:, 0] < 4
    labels = np.where((X[:, 1] > 3) | ~low, "high", "low")
    model = inducing.BNNClassifier(hidden=[10], **SMALL).fit(X[low], labels[low])

    def scores():
        return np.log(model.predict_proba(X)[np.arange(60), (labels == "low").astype(int)])

    before = scores()
    model.update(X[~low], labels[~low], num_steps=100)
    assert scores()[~low].mean() > before[~low].mean() + 0.1
    assert scores()[low].mean() > before[low].mean() - 0.1
