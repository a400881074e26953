"""Values as JSON: all specifications and modules of the library, and only with arguments of the right types."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn

import inducing
from inducing.nn.layers import Layer
from inducing.nn.priors import NealPrior
from inducing.nn.priors.base import Prior
from inducing.saving.registry import ATTRIBUTES, CLASSES
from inducing.saving.values import decode_value, encode_value, fits

kernels = inducing.kernels


@pytest.mark.parametrize(
    "specification",
    [cls() for kind in ("prior", "posterior") for cls in CLASSES[kind].values()]
    + [cls() for cls in CLASSES["kernel"].values() if cls not in (kernels.Sum, kernels.Product)]
    + [
        inducing.ScalePrior(3, 0.5),
        inducing.GlobalInducing("full", -2.5, "closed_form"),
        inducing.LocalInducing(np.int64(7), log_precision=np.float32(0.5)),
        kernels.Matern52(0.3) * (kernels.Linear() + kernels.ArcCosine(3)),
    ],
    ids=str,
)
def test_round_trip_through_json(specification):
    assert decode_value(json.loads(json.dumps(encode_value(specification, "here"))), "here") == specification


def test_a_class_of_someone_else_is_refused_when_it_is_saved():
    @dataclasses.dataclass(frozen=True)
    class NealPrior2(NealPrior):
        pass

    # a subclass by the same name is another class all the same
    impostor = dataclasses.make_dataclass("NealPrior", [], bases=(NealPrior,), frozen=True)
    for prior in (NealPrior2(), impostor()):
        with pytest.raises(ValueError, match=r"layers.0.prior: .*cannot be saved.*StandardPrior.*register"):
            encode_value(prior, "layers.0.prior")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {"a": 1}, lambda: None])
def test_values_that_json_does_not_hold_are_refused(value):
    with pytest.raises(ValueError, match=r"here.* cannot be saved"):
        encode_value(value, "here")


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (
            {"prior": "os.system", "arguments": {}},
            "there is no prior 'os.system'.*inducing.register.*NealPrior",
        ),
        ({"prior": "Prior", "arguments": {}}, "there is no prior 'Prior'"),
        ({"prior": ["NealPrior"], "arguments": {}}, "there is no prior .*NealPrior"),
        ({"prior": "NealPrior"}, "must have the entries"),
        ({"prior": "NealPrior", "arguments": {}, "more": 1}, "must have the entries"),
        ({"kind": "NealPrior"}, "not a saved value"),
        ({"class": "NealPrior", "settings": {}}, "there is no class 'NealPrior'"),
        ({"prior": "ScalePrior", "arguments": {"size": 1.0}}, "has no argument 'size'"),
        ({"prior": "ScalePrior", "arguments": {"shape": "2"}}, "ScalePrior: shape cannot be '2'"),
        ({"prior": "ScalePrior", "arguments": {"shape": True}}, "cannot be True"),
        ({"prior": "ScalePrior", "arguments": {"shape": -1.0}}, "shape > 0"),
        ({"posterior": "GlobalInducing", "arguments": {"precision": "exact"}}, "cannot be 'exact'"),
        ({"posterior": "GlobalInducing", "arguments": {"needs_inducing": False}}, "no argument 'needs_inducing'"),
        ({"posterior": "DSVI", "arguments": {"num_inducing": 2.5}}, "cannot be 2.5"),
        ({"kernel": "Sum", "arguments": {"kernels": [1, 2]}}, r"cannot be \(1, 2\)"),
        ({"kernel": "ArcCosine", "arguments": {"depth": 10**9}}, "from 1 to 1000"),
    ],
)
def test_wrong_json_is_refused(node, message):
    with pytest.raises(ValueError, match=message):
        decode_value(node, "here")


def test_fits():
    assert fits("a", Any)
    assert fits((1.0,), Sequence[float])
    assert fits(abs, Literal["a"] | Callable[[float], float])
    assert fits([1, 2], list[int])
    assert fits(1, float | None)
    assert fits("a", Literal["a", "b"])
    assert fits((1, 2), tuple[int, int])
    assert fits((), tuple[Prior, ...])
    assert fits((NealPrior(),), tuple[Prior, ...])
    for value, hint in (
        *((True, int), (1.0, int), ("1", float), (None, float), ("c", Literal["a"]), (["a"], Literal["a"])),
        *(([1, "a"], list[int]), ({}, list[int]), (None, Sequence[float])),
        *(((1,), tuple[int, int]), ([1, 2], tuple[int, int]), ((1, "a"), tuple[int, ...]), (1, Prior)),
    ):
        assert not fits(value, hint), (value, hint)


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
PLAIN = {cls for cls in CLASSES["module"].values() if cls.__module__.startswith("torch.") and cls is not nn.Sequential}
UNCHANGED = [cls() for cls in sorted(PLAIN, key=str) if not ATTRIBUTES[cls]]


def test_every_plain_module_is_in_these_tests():
    assert {type(module) for module in CHANGED + UNCHANGED} == PLAIN


@pytest.mark.parametrize("module", CHANGED + UNCHANGED, ids=str)
def test_plain_modules(module):
    again = decode_value(json.loads(json.dumps(encode_value(module, "layers.0"))), "layers.0")
    assert repr(again) == repr(module)
    x = torch.linspace(-3, 3, 3 * 2 * 64).sin().reshape(3, 2, 8, 8) * 3
    assert torch.equal(again(x), module(x))


def test_every_layer_is_listed():
    assert {*Layer.__subclasses__(), inducing.InducingNorm} <= set(CLASSES["module"].values())


def test_a_module_that_is_not_listed_is_refused_when_it_is_saved(tmp_path):
    class Swish(nn.Module):
        def forward(self, x):
            return x * torch.sigmoid(x)

    network = inducing.Network(
        [inducing.Linear(3, 5), inducing.Residual(Swish()), inducing.Linear(5, 1)], num_inducing=6
    )
    with pytest.raises(ValueError, match=r"layers.1.layers.0: Swish.* cannot be saved.*register\(Swish\)") as e:
        inducing.save(network, tmp_path / "model.safetensors")
    assert all(cls.__name__ in str(e.value) for cls in PLAIN)
    assert not list(tmp_path.iterdir())


def test_a_subclass_is_not_the_class():
    impostor = type("ReLU", (nn.ReLU,), {"forward": lambda self, x: x})
    with pytest.raises(ValueError, match=r"layers.0: ReLU.* cannot be saved"):
        encode_value(impostor(), "layers.0")


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"module": "Swish", "arguments": {}}, "there is no module 'Swish'.*register"),
        ({"module": None}, "there is no module None"),
        ({"module": "ReLU", "arguments": {"inplace": True}}, "has no argument 'inplace'"),
        ({"module": "ReLU"}, "must have the entries"),
        ({"module": "Linear", "arguments": {"in_features": "3"}}, "Linear: in_features cannot be '3'"),
        ({"module": "Linear", "arguments": {"in_features": 0, "out_features": 1}}, "must be at least 1"),
        ({"module": "Conv2d", "arguments": {"kernel_size": [3, 3, 3]}}, r"Conv2d: kernel_size cannot be \(3, 3, 3\)"),
        ({"module": "GPLayer", "arguments": {"mean": "linear"}}, "GPLayer: mean cannot be"),
        ({"module": "Residual", "layers": []}, "must have the entries"),
        ({"module": "Residual", "layers": {}, "shortcut": []}, "layers cannot be {}"),
    ],
)
def test_wrong_modules_are_refused(node, message):
    with pytest.raises(ValueError, match=message):
        decode_value(node, "layers.0")
