"""Layers and plain modules as JSON, from a list."""

import inspect
import json

import pytest
import torch
from torch import nn

import inducing
from inducing.nn.layers import Layer
from inducing.saving.modules import LAYERS, MODULES, PLAIN, decode_module, encode_module

CHANGED = [
    nn.LeakyReLU(0.2),
    nn.ELU(0.5),
    nn.CELU(0.5),
    nn.GELU("tanh"),
    nn.Hardtanh(-0.5, 0.7),
    nn.Softplus(2.0, 1.0),
    nn.Flatten(2, 3),
    nn.Unflatten(1, (2, 1)),
    nn.MaxPool2d(3, 1, 1, 2, ceil_mode=True),
    nn.AvgPool2d((2, 3), 2, (1, 0), True, False, 3),
    nn.AdaptiveAvgPool2d((None, 2)),
    nn.AdaptiveMaxPool2d(2),
    nn.ZeroPad2d((1, 0, 2, 1)),
    nn.Upsample(scale_factor=1.5, mode="bilinear", align_corners=True),
    nn.Upsample(size=(3, 5)),
]
UNCHANGED = [cls() for cls, attributes in PLAIN.items() if not attributes]


def test_every_plain_module_is_in_these_tests():
    assert {type(module) for module in CHANGED + UNCHANGED} == set(PLAIN)


@pytest.mark.parametrize("module", CHANGED + UNCHANGED, ids=str)
def test_plain_modules(module):
    again = decode_module(json.loads(json.dumps(encode_module(module, "layers.0"))), "layers.0")
    assert repr(again) == repr(module)
    x = torch.linspace(-3, 3, 3 * 2 * 64).sin().reshape(3, 2, 8, 8) * 3
    assert torch.equal(again(x), module(x))


def test_every_layer_is_listed_with_all_its_arguments():
    assert {*Layer.__subclasses__(), inducing.InducingNorm} == set(LAYERS)
    for cls, attributes in LAYERS.items():
        assert list(inspect.signature(cls).parameters.keys() - attributes.keys()) == []


def test_names_are_unique():
    assert len({cls.__name__ for cls in MODULES}) == len(MODULES)


def test_a_module_that_is_not_listed_is_refused_when_it_is_saved(tmp_path):
    class Swish(nn.Module):
        def forward(self, x):
            return x * torch.sigmoid(x)

    network = inducing.Network(
        [inducing.Linear(3, 5), inducing.Residual(Swish()), inducing.Linear(5, 1)], num_inducing=6
    )
    with pytest.raises(
        ValueError, match=r"layers.1.layers.0 is a Swish, which cannot be saved.*Linear, Conv2d.*ReLU, "
    ) as e:
        inducing.save(network, tmp_path / "model.safetensors")
    assert all(cls.__name__ in str(e.value) for cls in PLAIN)
    assert not list(tmp_path.iterdir())


def test_a_subclass_is_not_the_class(tmp_path):
    impostor = type("ReLU", (nn.ReLU,), {"forward": lambda self, x: x})
    with pytest.raises(
        ValueError, match=r"layers.0 is a ReLU, which cannot be saved.*as torch.nn and inducing define them"
    ):
        encode_module(impostor(), "layers.0")


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"module": "Swish", "arguments": {}}, "there is no module 'Swish' that can be loaded; there are Linear"),
        ({"module": None}, "there is no module None"),
        (3, "there is no module None"),
        ({"module": "ReLU", "arguments": {"inplace": True}}, "has no argument 'inplace'"),
        ({"module": "ReLU"}, "must have the entries"),
        ({"module": "Linear", "arguments": {"in_features": "3"}}, "in_features cannot be '3'"),
        ({"module": "Linear", "arguments": {"in_features": 0, "out_features": 1}}, "must be at least 1"),
        ({"module": "Conv2d", "arguments": {"kernel_size": [3, 3, 3]}}, r"kernel_size cannot be \(3, 3, 3\)"),
        ({"module": "GPLayer", "arguments": {"mean": "linear"}}, "mean cannot be 'linear'"),
        ({"module": "Residual", "layers": [], "shortcut": [1, 2]}, "one shortcut, not 2"),
        ({"module": "Residual", "layers": {}, "shortcut": []}, "layers cannot be {}"),
    ],
)
def test_wrong_json_is_refused(node, message):
    with pytest.raises(ValueError, match=message):
        decode_module(node, "layers.0")
