"""What else can be saved: pairs, dictionaries, plain values, and classes that say themselves how."""

import pytest
import torch

import inducing
from inducing.saving.objects import decode_object, encode_object
from inducing.saving.registry import CLASSES


class Ridge:
    """Stands for an estimator: parameters of its constructor, and what it has fitted."""

    def __init__(self, strength=1.0):
        self.strength = strength

    def fit(self):
        points = {"inducing_points": torch.randn(4, 3), "inducing_targets": torch.randn(4, 1)}
        self.network_ = inducing.models.mlp(
            3, 1, [5], posterior="global->optimal", learn_inducing_locations=False, **points
        )
        self.likelihood_ = inducing.Gaussian(0.4)
        self.elbo_ = torch.randn(7)
        return self

    def to_state(self):
        return {"parameters": {"strength": self.strength}}, {"elbo": self.elbo_}

    @classmethod
    def from_state(cls, values, tensors, network, likelihood):
        ridge = cls(**values["parameters"])
        ridge.network_, ridge.likelihood_ = network, likelihood
        ridge.elbo_ = tensors["elbo"]
        return ridge


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(CLASSES, "object", dict(CLASSES["object"]))
    return inducing.register(Ridge)


def test_a_registered_class(registered, tmp_path):
    ridge = registered(0.5).fit()
    inducing.save(ridge, tmp_path / "model")
    again = inducing.load(tmp_path / "model")
    assert type(again) is Ridge
    assert again.strength == 0.5
    assert torch.equal(again.elbo_, ridge.elbo_)
    assert again.likelihood_.noise_variance == ridge.likelihood_.noise_variance
    x = torch.zeros(2, 3)
    ours, theirs = (each.network_.sample_functions(2, likelihood=each.likelihood_)(x) for each in (ridge, again))
    assert torch.equal(ours, theirs)


def test_what_its_class_refuses_is_an_error_of_the_file(registered, tmp_path):
    ridge = registered().fit()
    inducing.save(ridge, tmp_path / "model")
    registered.__init__, before = lambda self, **_: 1 / 0, registered.__init__
    try:
        with pytest.raises(inducing.SavedModelError, match="cannot be loaded: division by zero"):
            inducing.load(tmp_path / "model")
    finally:
        registered.__init__ = before


def test_an_estimator_has_a_network_and_a_likelihood(registered):
    node, tensors = encode_object(registered().fit())
    node["parts"]["network"], node["parts"]["likelihood"] = node["parts"]["likelihood"], node["parts"]["network"]
    swapped = {
        name.replace("network/", "x/").replace("likelihood/", "network/").replace("x/", "likelihood/"): t
        for name, t in tensors.items()
    }
    with pytest.raises(ValueError, match=r"Ridge: network cannot be Gaussian"):
        decode_object(node, swapped)


def test_a_class_that_nobody_registered_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"a Ridge cannot be saved.*inducing.register\(Ridge\)"):
        inducing.save(Ridge().fit(), tmp_path / "model")
    with pytest.raises(ValueError, match="there is no object 'Ridge'"):
        decode_object({"object": "Ridge", "state": {}, "parts": {}}, {})


def test_a_subclass_of_a_network_is_refused(tmp_path):
    class Mine(inducing.Network):
        pass

    with pytest.raises(ValueError, match="a Mine cannot be saved"):
        inducing.save(Mine([inducing.Linear(3, 1)], num_inducing=2), tmp_path / "model")


def test_pairs_and_dictionaries_come_back_as_they_were_given(tmp_path):
    x = torch.randn(9, 3)
    model = {
        "network": inducing.models.mlp(3, 1, [5], inducing_points=x),
        "likelihood": inducing.Gaussian(0.3),
        "inputs": inducing.Standardiser.of(x),
        "schema": {"columns": ["a", "b", "c"], "version": 2, "nested": {"scale": 1.5, "none": None, "yes": True}},
        "pair": (torch.arange(3), 7),
        "empty": (torch.empty(0, 3), (), {}),
    }
    inducing.save(model, tmp_path / "model")
    again = inducing.load(tmp_path / "model")
    assert list(again) == list(model)
    assert again["schema"] == model["schema"]
    assert torch.equal(again["pair"][0], torch.arange(3))
    assert again["pair"][1] == 7
    assert again["empty"][0].shape == (0, 3)
    assert again["empty"][1:] == ((), {})
    assert torch.equal(again["inputs"].apply(x), model["inputs"].apply(x))
    ours, theirs = (inducing.predict(each["network"], each["likelihood"], x, 5).mean for each in (model, again))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("model", [{1, 2}, {"a": object()}, {1: 2}, float("nan"), torch.nn.Linear(2, 2), (b"bytes",)])
def test_what_cannot_be_saved(model, tmp_path):
    with pytest.raises(ValueError, match="cannot be saved"):
        inducing.save(model, tmp_path / "model")


def test_a_slash_in_a_key(tmp_path):
    with pytest.raises(ValueError, match="'a/b' has a slash"):
        inducing.save({"a/b": torch.zeros(2)}, tmp_path / "model")


@pytest.mark.parametrize(
    ("node", "tensors", "message"),
    [
        (None, {}, "there is no object None"),
        ({"object": "value", "value": 1}, {"more": torch.zeros(1)}, "must have the entries .*more"),
        ({"object": "Tensor"}, {}, r"must have the entries \['values'\]"),
        ({"object": "tuple", "items": []}, {"0/values": torch.zeros(1)}, "'0/values' belongs to nothing"),
        (
            {"object": "Standardiser"},
            {"mean": torch.zeros(2), "std": torch.ones(3)},
            "mean and a positive standard deviation",
        ),
        (
            {"object": "Standardiser"},
            {"mean": torch.zeros(2), "std": torch.tensor([1.0, 0.0])},
            "positive standard deviation",
        ),
        ({"object": "Standardiser"}, {"mean": torch.full((2,), torch.nan), "std": torch.ones(2)}, "finite"),
        ({"object": "Likelihood", "class": "Mine", "learned": [], "frozen": []}, {}, "there is no likelihood 'Mine'"),
        (
            {"object": "Likelihood", "class": "Poisson", "learned": [], "frozen": ["a"]},
            {},
            "no parameter 'a' to freeze",
        ),
        (
            {"object": "Likelihood", "class": "Gaussian", "learned": [], "frozen": []},
            {"scaled_log_variance": torch.zeros(2, 2)},
            r"is float32 \(2, 2\)",
        ),
    ],
)
def test_wrong_json_is_refused(node, tensors, message):
    with pytest.raises(ValueError, match=message):
        decode_object(node, tensors)


def test_the_tensors_of_many_parts_are_found_in_one_pass():
    """Names are looked at once, not once for each part."""

    class Names(dict):
        passes = 0

        def items(self):
            Names.passes += 1
            return super().items()

    model = {str(index): torch.tensor(index) for index in range(50)}
    node, tensors = encode_object(model)
    assert decode_object(node, Names(tensors)).keys() == model.keys()
    assert Names.passes == 1
