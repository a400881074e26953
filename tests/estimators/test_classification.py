import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_iris

import inducing

X, NUMBERS = load_iris(return_X_y=True)
Y = np.array(["setosa", "versicolor", "virginica"])[NUMBERS]
CLASSIFIERS = [inducing.BNNClassifier, inducing.DeepGPClassifier]
SMALL = {"num_inducing": 20, "n_samples": 20, "max_steps": 60, "random_state": 0}


@pytest.fixture(scope="module", params=CLASSIFIERS)
def model(request):
    small = {"hidden": (10,)} if request.param is inducing.BNNClassifier else {}
    return request.param(**SMALL, **small).fit(X, Y)


def test_labels_of_any_type(model):
    assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert model.score(X, Y) > 0.9
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (150, 3)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert np.array_equal(model.predict(X), model.classes_[probabilities.argmax(1)])
    assert np.array_equal(model.predict_distribution(X).mean.numpy(), probabilities)


def test_samples_are_labels_and_functions_are_probabilities(model):
    samples = model.sample_y(X[:60], 500)
    assert samples.shape == (60, 500)
    assert set(np.unique(samples)) <= set(model.classes_)
    shares = (samples == "setosa").mean(1)
    assert np.abs(shares - model.predict_proba(X[:60])[:, 0]).max() < 0.2
    values = model.sample_functions(4)(X)
    assert values.shape == (4, 150, 3)
    np.testing.assert_allclose(values.sum(-1), 1)


@pytest.mark.parametrize(
    "labels", [NUMBERS > 0, NUMBERS.astype(float), Y.astype(object)], ids=["bool", "float", "object"]
)
def test_a_saved_model_gives_the_same_predictions(labels, tmp_path):
    model = inducing.BNNClassifier(**{**SMALL, "max_steps": 3}).fit(X, labels)
    inducing.save(model, tmp_path / "model.safetensors")
    again = inducing.load(tmp_path / "model.safetensors")
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.classes_.dtype == model.classes_.dtype


def test_settings_are_saved_whatever_they_are(tmp_path):
    kernels, recipe = inducing.kernels, inducing.Recipe(num_steps=2, num_samples=1, whole_last_kl=np.bool_(True))
    settings = {"kernel": kernels.Matern32() + kernels.Linear(), "recipe": recipe, "posterior": ("global",)}
    # numbers of NumPy, as GridSearchCV has them from np.arange
    whole = {"num_layers": 1, "num_inducing": 5, "max_steps": 2, "batch_size": 20, "patience": 2, "n_samples": 3}
    settings |= {name: np.int16(value) for name, value in whole.items()}
    model = inducing.DeepGPClassifier(**settings).fit(X, Y)
    inducing.save(model, tmp_path / "model.safetensors")
    again = inducing.load(tmp_path / "model.safetensors")
    assert again.get_params() == model.get_params()
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.fixture(scope="module")
def fitted():
    return inducing.BNNClassifier(**{**SMALL, "max_steps": 1}).fit(X, Y)


def restore(model, changes=None, tensor_changes=None, cls=inducing.BNNClassifier, likelihood=None):
    state, tensors = model.to_state()
    parts = model.network_, model.likelihood_ if likelihood is None else likelihood
    return cls.from_state(state | (changes or {}), tensors | (tensor_changes or {}), *parts)


def labels(dtype, *values):
    return {"targets": {"classes": {"dtype": dtype, "values": list(values)}}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class": "Popen"}, "the state is that of a 'Popen', not of a BNNClassifier"),
        ({"num_features": "4"}, "num_features cannot be '4'"),
        ({"num_features": 0}, "num_features"),
        ({"num_features": True}, "num_features"),
        ({"feature_names": ["a"]}, "num_features"),
        ({"feature_names": [1, 2, 3, 4]}, "feature_names cannot be"),
        ({"seed": -1}, "seed"),
        ({"elbo": None}, "elbo"),
        ({"schema": [{"name": "a"}]}, "column of the schema"),
        ({"schema": [{"name": "a", "kind": "numeric", "categories": [], "fill": "b"}]}, "'fill' cannot be 'b'"),
        ({"schema": [{"name": "a", "kind": "categorical", "categories": [1], "fill": None}]}, "categories"),
        ({"schema": [{"name": "a", "kind": "numeric", "categories": [], "fill": None}]}, "the schema has"),
        ({"schema": []}, "different names"),
        ({"targets": {}}, "targets must have the entries"),
        (labels("M8[s]", 1), "labels of the dtype 'M8"),
        (labels("i4,f4", 1), "labels of the dtype"),
        (labels("<i8", 1, 2), "2 targets"),
        (labels("<i8", 1, 2, 3, 4), "4 targets"),
        (labels("<i8", 1, 2, 2), "different"),
        (labels("<i8", 3, 2, 1), "in order"),
        (labels("|i1", 1, 2, 2**40), "labels of the dtype .* too large"),
        (labels("|u1", -1, 2, 3), "labels of the dtype .* too small"),
        (labels("<i8", "1", "2", "3"), "labels of the dtype"),
        (labels("<U3", 1, 2, 3), "labels of the dtype"),
        (labels("object", "a", 2, None), "labels of the dtype"),
    ],
)  # fmt: skip
def test_states_that_do_not_fit(fitted, changes, message):
    with pytest.raises(ValueError, match=message):
        restore(fitted, changes)


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ({"prior": {"prior": "Popen", "arguments": {}}}, "prior: there is no prior 'Popen' that can be loaded"),
        ({"recipe": {"class": "Recipe", "settings": {"whole_last_kl": "no"}}}, "whole_last_kl cannot be 'no'"),
        ({"n_samples": 0}, "n_samples"),
        ({"n_samples": "5"}, "n_samples"),
        ({"hidden": ["a"]}, "hidden"),
        ({"hidden": 4}, "hidden"),
    ],
)
def test_parameters_that_do_not_fit(fitted, parameter, message):
    with pytest.raises(ValueError, match=message):
        restore(fitted, {"parameters": fitted.to_state()[0]["parameters"] | parameter})


def test_parameters_of_other_classes(fitted):
    with pytest.raises(TypeError, match="'popen'"):
        restore(fitted, {"parameters": fitted.to_state()[0]["parameters"] | {"popen": 1}})


def test_tensors_that_do_not_fit(fitted):
    tensors = fitted.to_state()[1]
    wrong = {
        "inputs must be 4 numbers in float64": {
            f"inputs.{moment}": torch.ones(2).double() for moment in ("mean", "std")
        },
        "4 numbers in float64": {"inputs.mean": tensors["inputs.mean"].float()},
        "inputs must have .* for each column": {"inputs.mean": tensors["inputs.mean"][:2]},
        "finite mean": {"inputs.mean": tensors["inputs.mean"] * torch.nan},
        "positive standard deviation": {"inputs.std": 0 * tensors["inputs.std"]},
        "history": {"history": tensors["history"][:, :-2]},
        "must have the entries .*'more'": {"more": torch.zeros(1)},
    }
    for message, change in wrong.items():
        with pytest.raises(ValueError, match=message):
            restore(fitted, tensor_changes=change)


def test_a_network_or_likelihood_of_another_estimator_is_refused(fitted):
    with pytest.raises(ValueError, match="Categorical, not Gaussian"):
        restore(fitted, likelihood=inducing.Gaussian().double())
    with pytest.raises(ValueError, match="the state is that of a 'BNNClassifier', not of a DeepGPClassifier"):
        restore(fitted, cls=inducing.DeepGPClassifier)
    state, tensors = fitted.to_state()
    for network in (
        inducing.models.mlp(4, 3, [5], posterior="prior"),
        inducing.models.mlp(3, 3, [5], posterior="prior").double(),
    ):
        with pytest.raises(ValueError, match="the network maps"):
            inducing.BNNClassifier.from_state(
                state, tensors | {"history": torch.zeros(0, 9).double()}, network, fitted.likelihood_
            )


def test_text_labels_take_the_memory_of_their_letters_and_not_what_the_file_declares(fitted):
    again = restore(fitted, labels("<U200000000", "a", "b", "c"))
    assert again.classes_.dtype == np.dtype("<U1")
    assert again.classes_.tolist() == ["a", "b", "c"]


def test_a_random_state_with_a_state_of_its_own_cannot_be_saved():
    model = inducing.BNNClassifier(**{**SMALL, "max_steps": 1, "random_state": np.random.RandomState(0)}).fit(X, Y)
    with pytest.raises(ValueError, match=r"random_state is a RandomState, which a file cannot hold\. Set an integer"):
        model.to_state()


def test_classes_without_weight_are_not_there():
    model = inducing.BNNClassifier(**{**SMALL, "max_steps": 2}).fit(X, Y, sample_weight=(NUMBERS > 0).astype(float))
    assert model.classes_.tolist() == ["versicolor", "virginica"]


def test_a_warm_start_has_the_same_classes():
    model = inducing.BNNClassifier(**{**SMALL, "max_steps": 2, "warm_start": True}).fit(X, Y)
    some = NUMBERS != 1
    assert model.fit(X[some], Y[some]).predict_proba(X).shape == (150, 3)
    with pytest.raises(ValueError, match="label 'rosa'"):
        model.fit(X, np.where(NUMBERS == 0, "rosa", Y))


@pytest.mark.parametrize(
    ("settings", "y", "message"),
    [
        ({"likelihood": "gaussian"}, Y, "unknown likelihood 'gaussian'"),
        ({}, X[:, 0] + 0.123, "Unknown label type: continuous"),
        ({}, None, "requires y to be passed"),
        ({}, np.where(X[:, 0] > 5, "a", None), "y contains NaN or None in .* rows"),
        ({}, np.where(X[:, 0] > 5, 1.0, np.nan), "y contains NaN or None in .* rows"),
    ],
)
def test_bad_arguments(settings, y, message):
    with pytest.raises(ValueError, match=message):
        inducing.BNNClassifier(max_steps=1, **settings).fit(X, y)


LARGE = [2**53, 2**53 + 1]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (np.array(LARGE * 5), LARGE),
        (pd.Series(LARGE * 5, dtype="Int64"), LARGE),
        (pd.Series(pd.Categorical(LARGE * 5)), LARGE),
        (pd.Categorical([True, False] * 5), [False, True]),
        (pd.Series(pd.Categorical([True, False] * 5)), [False, True]),
        (pd.Series([True, False] * 5, dtype="boolean"), [False, True]),
        (np.array([True, False] * 5, dtype=object), [False, True]),
        (pd.Series(["no", "yes"] * 5, dtype="string"), ["no", "yes"]),
    ],
)
def test_labels_of_pandas_keep_their_values(labels, classes, tmp_path):
    model = inducing.BNNClassifier(**{**SMALL, "max_steps": 2, "hidden": (4,)}).fit(X[:10], labels)
    assert model.classes_.tolist() == classes
    assert all(type(found) is type(wanted) for found, wanted in zip(model.classes_.tolist(), classes, strict=True))
    inducing.save(model, tmp_path / "model.safetensors")
    assert inducing.load(tmp_path / "model.safetensors").classes_.tolist() == classes


def test_class_weights_are_weights_of_rows(tmp_path):
    rows = np.random.default_rng(0).normal(size=(40, 2))
    labels = np.where(rows[:, 0] > 1, "rare", "common")
    weights = np.where(labels == "rare", 3.0, 1.0)
    settings = {"max_steps": 5, "random_state": 0, "hidden": [4]}
    by_rows = inducing.BNNClassifier(**settings).fit(rows, labels, weights)
    by_class = inducing.BNNClassifier(class_weight={"rare": 3.0, "common": 1.0}, **settings).fit(rows, labels)
    assert np.array_equal(by_rows.predict_proba(rows), by_class.predict_proba(rows))
    both = inducing.BNNClassifier(class_weight={"rare": 1.5}, **settings).fit(rows, labels, np.sqrt(weights * 4 / 3))
    assert both.elbo_ != by_class.elbo_
    balanced = inducing.BNNClassifier(class_weight="balanced", **settings).fit(rows, labels)
    share = (labels == "rare").mean()
    equal = inducing.BNNClassifier(**settings).fit(
        rows, labels, np.where(labels == "rare", 0.5 / share, 0.5 / (1 - share))
    )
    np.testing.assert_allclose(balanced.predict_proba(rows), equal.predict_proba(rows), rtol=1e-6)
    inducing.save(by_class, tmp_path / "model")
    loaded = inducing.load(tmp_path / "model")
    again = loaded.fit(rows, labels)
    assert np.array_equal(again.predict_proba(rows), by_class.predict_proba(rows))
    with pytest.raises(ValueError, match="class_weight"):
        inducing.BNNClassifier(class_weight="equal", **settings).fit(rows, labels)


def test_held_out_rows_have_the_weights_of_their_classes(monkeypatch):
    seen = []
    run = inducing.BNNClassifier._run
    monkeypatch.setattr(
        inducing.BNNClassifier,
        "_run",
        lambda self, data, num_data, held_out, *rest: (
            seen.append(held_out),
            run(self, data, num_data, held_out, *rest),
        )[1],
    )
    x = np.random.default_rng(0).normal(size=(40, 2))
    y = np.array(["a"] * 30 + ["b"] * 10)
    model = inducing.BNNClassifier([3], max_steps=2, class_weight="balanced", random_state=0)
    model.fit(x, y, eval_set=(x[28:32], y[28:32]))
    model.fit(x, y, eval_set=(x[28:32], y[28:32], [1.0, 2.0, 3.0, 4.0]))
    expected = np.array([2 / 3, 2 / 3, 2, 2])
    np.testing.assert_allclose(seen[0][2], expected)
    np.testing.assert_allclose(seen[1][2], expected * [1, 2, 3, 4])
    with pytest.raises(TypeError, match="eval_set must be a pair"):
        model.fit(x, y, eval_set=(x,))
