"""Networks with the predictions of boosted trees as inputs."""

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch

import inducing

RANDOM = np.random.default_rng(0)
X, NEW = RANDOM.uniform(-1, 1, size=(200, 4)), RANDOM.uniform(-1, 1, size=(500, 4))


def steps(x):
    return np.where(x[:, 0] > 0, 1.0, -1.0) * np.where(x[:, 1] > 0.3, 2.0, 1.0) + 0.5 * np.sin(3 * x[:, 2])


Y = steps(X) + 0.1 * RANDOM.normal(size=200)
LABELS = np.select([Y > 1, Y > -1], ["high", "middle"], "low")


@pytest.fixture(scope="module")
def regressor():
    return inducing.TreeBNNRegressor([20], max_steps=100, random_state=0).fit(X, Y)


@pytest.fixture(scope="module")
def classifier():
    return inducing.TreeBNNClassifier([20], max_steps=100, random_state=0).fit(X, LABELS)


def test_steps_are_learned_from_fewer_rows_than_without_trees(regressor):
    alone = inducing.BNNRegressor([20], max_steps=100, random_state=0).fit(X, Y)
    errors = [np.sqrt(np.mean((model.predict(NEW) - steps(NEW)) ** 2)) for model in (regressor, alone)]
    assert errors[0] < 0.8 * errors[1]
    low, high = regressor.predict_interval(NEW)
    assert 0.8 < np.mean((low < steps(NEW)) & (steps(NEW) < high)) <= 1


def test_the_last_input_is_the_prediction_of_the_trees(regressor):
    encoded = regressor._encode(NEW, reset=False)
    np.testing.assert_array_equal(encoded[:, :4], NEW)
    np.testing.assert_array_equal(encoded[:, 4:], regressor.trees_.predict(NEW))
    assert regressor.network_.input_shape == (5,)
    assert regressor.n_features_in_ == 4


def test_classes(classifier):
    wanted = np.select([steps(NEW) > 1, steps(NEW) > -1], ["high", "middle"], "low")
    assert (classifier.predict(NEW) == wanted).mean() > 0.8
    # whether a row has each class but the first
    assert classifier.trees_.num_outputs == 2


@pytest.mark.parametrize("name", ["regressor", "classifier"])
def test_a_saved_model_predicts_the_same(name, request, tmp_path):
    model = request.getfixturevalue(name)
    inducing.save(model, tmp_path / "model.safetensors")
    loaded = inducing.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(NEW), model.predict(NEW))


def test_a_file_without_trees_is_refused(regressor):
    state, tensors = regressor.to_state()
    del tensors["trees.left"]
    with pytest.raises(ValueError, match="boosted trees"):
        type(regressor).from_state(state, tensors, regressor.network_, regressor.likelihood_)


@pytest.mark.slow
def test_an_exported_model_has_the_trees(regressor, tmp_path):
    regressor.export(tmp_path / "model.onnx", quantiles=())
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    mean = session.run(["mean"], {"x": NEW})[0]
    np.testing.assert_allclose(mean, regressor.predict(NEW), rtol=1e-5, atol=1e-5)


def test_a_table_with_text():
    table = pd.DataFrame({"size": X[:, 0], "colour": np.where(X[:, 1] > 0.3, "red", "blue")})
    model = inducing.TreeBNNRegressor([10], max_steps=50, random_state=0).fit(table, Y)
    assert np.corrcoef(model.predict(table), Y)[0, 1] > 0.8


def test_a_weight_is_a_number_of_rows():
    settings = {"hidden": [5], "max_steps": 20, "random_state": 0}
    repeated = inducing.TreeBNNRegressor(**settings).fit(np.r_[X, X[:50]], np.r_[Y, Y[:50]])
    weighted = inducing.TreeBNNRegressor(**settings).fit(X, Y, np.where(np.arange(200) < 50, 2.0, 1.0))
    np.testing.assert_array_equal(repeated.trees_.predict(NEW), weighted.trees_.predict(NEW))
    # only a row that occurs twice is predicted by trees that saw its other copy
    assert not np.array_equal(repeated.predict(NEW), weighted.predict(NEW))


def test_functions_of_tensors(regressor):
    functions, x = regressor.sample_functions(3), torch.tensor(NEW[:10], requires_grad=True)
    np.testing.assert_allclose(functions(x).detach().numpy(), functions(NEW[:10]), rtol=1e-10, atol=1e-10)
    functions(x).sum().backward()
    assert x.grad.shape == x.shape


def test_an_updated_model_is_saved_with_its_trees(tmp_path):
    model = inducing.TreeBNNRegressor([5], max_steps=20, random_state=0).fit(X[:150], Y[:150]).update(X[150:], Y[150:])
    inducing.save(model, tmp_path / "model.safetensors")
    np.testing.assert_array_equal(inducing.load(tmp_path / "model.safetensors").predict(NEW), model.predict(NEW))


def test_trees_learn_from_observed_targets():
    random = np.random.default_rng(0)
    x = random.normal(size=(80, 3))
    # a target that is missing in most rows is still predicted on its own scale
    y = np.stack([np.where(x[:, 0] > 0, 15.0, 5.0), x[:, 1]], 1)
    y[40:, 0] = np.nan
    model = inducing.TreeBNNRegressor([5], max_steps=2, random_state=0).fit(x, y)
    standardised = (y[:40, 0] - y[:40, 0].mean()) / y[:40, 0].std()
    assert np.abs(model.trees_.predict(x[:40])[:, 0] - standardised).mean() < 0.2


def test_a_warm_start_keeps_the_trees():
    x = np.random.default_rng(0).normal(size=(40, 2))
    model = inducing.TreeBNNRegressor([5], max_steps=3, num_inducing=10, warm_start=True, random_state=0)
    model.fit(x, x[:, 0])
    trees = model.trees_
    model.fit(x, -x[:, 0])
    assert model.trees_ is trees


def test_one_class():
    x = np.random.default_rng(0).normal(size=(20, 2))
    model = inducing.TreeBNNClassifier([5], max_steps=3, random_state=0).fit(x, np.full(20, "yes"))
    assert (model.predict_proba(x) == 1).all()
