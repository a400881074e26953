import numpy as np
import pandas as pd
import pytest
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


def test_states_that_do_not_fit():
    state, tensors = inducing.BNNClassifier(**{**SMALL, "max_steps": 1}).fit(X, Y).to_state()
    with pytest.raises(ValueError, match="the state is that of a BNNClassifier, not of a DeepGPClassifier"):
        inducing.DeepGPClassifier.from_state(state, tensors)
    spoilt = state | {"parameters": state["parameters"] | {"prior": {"prior": "Popen", "arguments": {}}}}
    with pytest.raises(ValueError, match="prior: there is no prior 'Popen' that can be loaded; there are"):
        inducing.BNNClassifier.from_state(spoilt, tensors)
    recipe = {"class": "Recipe", "settings": {"whole_last_kl": "no"}}
    spoilt = state | {"parameters": state["parameters"] | {"recipe": recipe}}
    with pytest.raises(ValueError, match="recipe: whole_last_kl cannot be 'no'"):
        inducing.BNNClassifier.from_state(spoilt, tensors)
    spoilt = state | {"targets": {"classes": {"dtype": "M8[s]", "values": [1]}}}
    with pytest.raises(ValueError, match="labels of the dtype datetime64"):
        inducing.BNNClassifier.from_state(spoilt, tensors)
    with pytest.raises(ValueError, match="the moments of the inputs must be 4 finite numbers in float64"):
        inducing.BNNClassifier.from_state(state, tensors | {"inputs.mean": tensors["inputs.mean"][:2]})
    with pytest.raises(ValueError, match="the standard deviations of the inputs must be positive"):
        inducing.BNNClassifier.from_state(state, tensors | {"inputs.std": -tensors["inputs.std"]})
    model = inducing.BNNClassifier(**{**SMALL, "max_steps": 1, "random_state": np.random.RandomState(0)}).fit(X, Y)
    with pytest.raises(ValueError, match=r"random_state: RandomState.* cannot be saved"):
        model.to_state()


def test_classes_without_weight_are_not_there():
    model = inducing.BNNClassifier(**{**SMALL, "max_steps": 2}).fit(X, Y, sample_weight=(NUMBERS > 0).astype(float))
    assert model.classes_.tolist() == ["versicolor", "virginica"]


def test_a_warm_start_has_the_same_classes():
    model = inducing.BNNClassifier(**{**SMALL, "max_steps": 2, "warm_start": True}).fit(X, Y)
    some = NUMBERS != 1
    assert model.fit(X[some], Y[some]).predict_proba(X).shape == (150, 3)
    with pytest.raises(
        ValueError, match="y holds the label 'rosa', but the fit that warm_start continues had the classes"
    ):
        model.fit(X, np.where(NUMBERS == 0, "rosa", Y))


@pytest.mark.parametrize(
    ("settings", "y", "message"),
    [
        ({"likelihood": "gaussian"}, Y, 'unknown likelihood \'gaussian\'; known are the names "auto", "categorical"'),
        ({}, X[:, 0] + 0.123, "Unknown label type: continuous"),
        ({}, None, "requires y to be passed"),
        ({}, np.where(X[:, 0] > 5, "a", None), "y contains NaN or None in .* rows, the first of them row"),
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
