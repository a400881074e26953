"""Frozen functions are the same after loading, and states that do not fit are refused."""

import pytest
import torch
from torch import nn

import inducing
from inducing.saving.models import decode_functions, encode_functions

X = torch.linspace(-2, 2, 60).sin().reshape(20, 3)
kernels = inducing.kernels


def networks():
    yield inducing.models.mlp(3, 2, [5], inducing_points=X[:6])
    yield inducing.models.mlp(3, 2, [5], posterior=inducing.Factorised(local_reparameterisation=True)).double()
    yield inducing.models.deep_gp(3, 1, 3, width=2, inducing_points=X[:6])
    sums = kernels.Matern52() + kernels.Linear() * kernels.ArcCosine(2)
    yield inducing.Network(
        [inducing.Residual(inducing.GPLayer(3, 3, sums, num_features=8, mean="identity"))], inducing_points=X[:6]
    )
    layers = [nn.Unflatten(1, (3, 1, 1)), inducing.Conv2d(3, 4, 1), nn.ReLU(), nn.Flatten(), inducing.Linear(4, 2)]
    yield inducing.Network(layers, inducing_points=X[:6])


@pytest.mark.parametrize("number", range(5), ids=["mlp", "factorised", "deep_gp", "residual", "convolution"])
def test_frozen_functions(number, tmp_path):
    network = list(networks())[number]
    functions, x = network.sample_functions(4, seed=3), X.to(network.dtype)
    inducing.save(functions, tmp_path / "functions.safetensors")
    loaded = inducing.load(tmp_path / "functions.safetensors")
    assert all(map(torch.equal, functions.buffers(), loaded.buffers()))
    torch.testing.assert_close(functions(x), loaded(x))
    # the parts of Gaussian processes stay in float64
    torch.testing.assert_close(functions.double()(X.double()), loaded.double()(X.double()))


@pytest.fixture
def state():
    return encode_functions(inducing.models.mlp(3, 2, [5], inducing_points=X[:6]).sample_functions(4))


def test_wrong_shapes_and_dtypes_are_found_without_running_on_data(state):
    node, tensors = state
    name = "function.steps.2.weights"
    for wrong in (
        tensors[name][:, :-1],
        tensors[name][:3],
        tensors[name].double(),
        tensors[name][0],
        tensors[name].long(),
    ):
        with pytest.raises((RuntimeError, ValueError, TypeError)):
            decode_functions(node, tensors | {name: wrong})


def test_missing_and_extra_tensors(state):
    node, tensors = state
    with pytest.raises(ValueError, match="the tensor 'more' is not a part"):
        decode_functions(node, tensors | {"more": X})
    del tensors["function.steps.0.weights"]
    with pytest.raises(ValueError, match=r"the tensor function.steps.0.weights is missing"):
        decode_functions(node, tensors)


def test_only_listed_functions_can_be_made(state):
    node, tensors = state
    node["function"]["steps"] = None
    with pytest.raises(ValueError, match="must have the entries"):
        decode_functions(node, tensors)
    node["function"] = {"function": "Process", "fields": {}}
    with pytest.raises(ValueError, match="there is no function 'Process'"):
        decode_functions(node, tensors)
    node["function"] = {"module": "Linear", "arguments": {"in_features": 3, "out_features": 2}}
    with pytest.raises(ValueError, match="not a function"):
        decode_functions(node, tensors)
    node["function"] = {"function": "Folded", "fields": {"module": node["function"]}}
    with pytest.raises(ValueError, match="is not a part"):
        decode_functions(node, tensors)
    with pytest.raises(NotImplementedError):
        decode_functions(node, {})


def test_functions_that_are_not_finite_are_refused(state):
    node, tensors = state
    with pytest.raises(ValueError, match="weights' contains NaN"):
        decode_functions(node, tensors | {"function.steps.2.weights": tensors["function.steps.2.weights"] * torch.nan})
