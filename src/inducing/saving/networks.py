"""Networks and likelihoods as JSON and tensors.

A network is made again from its specification on torch's meta device, where tensors have shapes and no memory. What the file
holds is compared with it, name by name, and only then put in place: sizes that a file merely claims cost nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from inducing.nn.layers import Layer
from inducing.nn.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    HeteroscedasticGaussian,
    HeteroscedasticStudentT,
    Likelihood,
    NegativeBinomial,
    Poisson,
    StudentT,
)
from inducing.nn.network import Network
from inducing.saving.modules import decode_module, encode_module
from inducing.saving.specifications import choose, shown, take

Tensors = dict[str, Tensor]
DTYPES = {
    str(dtype).removeprefix("torch."): dtype for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
}
LIKELIHOODS: dict[str, type[Likelihood]] = {
    cls.__name__: cls
    for cls in (
        *(Gaussian, HeteroscedasticGaussian, StudentT, HeteroscedasticStudentT),
        *(Categorical, Bernoulli, Poisson, NegativeBinomial),
    )
}


def encode_network(network: Network) -> tuple[dict[str, Any], Tensors]:
    """The specification of a network, and its tensors by name; those that are constant are among them."""
    node = {
        "object": "Network",
        "layers": [encode_module(layer, f"layers.{i}") for i, layer in enumerate(network.layers)],
        "num_inducing": network.num_first_points,
        "inducing_targets": network.has_inducing_targets,
        "input_shape": list(network.input_shape),
        "learn_inducing_locations": network.learn_inducing_locations,
        "dtype": dtype_name(network.dtype),
        "frozen": _frozen(network),
    }
    tensors = _tensors(network)
    problem = _difference(_tensors(_skeleton(node)), tensors)
    if problem:
        raise ValueError(f"the network is not as it was built, so it could not be loaded again: {problem}")
    refuse_non_finite(tensors)
    return node, {name: tensor.detach() for name, tensor in tensors.items()}


def decode_network(node: dict[str, Any], tensors: Tensors) -> Network:
    """The inverse of `encode_network`."""
    network = _skeleton(node)
    slots = _tensors(network)
    problem = _difference(slots, tensors)
    if problem:
        raise ValueError(problem)
    refuse_non_finite(tensors)
    for name, slot in slots.items():
        owner, _, attribute = name.rpartition(".")
        value = nn.Parameter(tensors[name]) if isinstance(slot, nn.Parameter) else tensors[name]
        setattr(network.get_submodule(owner), attribute, value)
    _freeze(network, node["frozen"])
    return network


def encode_likelihood(likelihood: Likelihood) -> tuple[dict[str, Any], Tensors]:
    """The class of a likelihood, which of its values are learned, and the values."""
    node = {
        "object": "Likelihood",
        "class": type(likelihood).__name__,
        "learned": [name for name, _ in likelihood.named_parameters()],
        "frozen": _frozen(likelihood),
    }
    tensors = _tensors(likelihood)
    refuse_non_finite(tensors)
    return node, {name: tensor.detach() for name, tensor in tensors.items()}


def decode_likelihood(node: dict[str, Any], tensors: Tensors) -> Likelihood:
    """The inverse of `encode_likelihood`."""
    _, name, learned, _ = take(node, "likelihood", object=str, **{"class": str, "learned": list, "frozen": list})
    likelihood: Likelihood = choose(LIKELIHOODS, name, "likelihood", "likelihood")()
    slots = _tensors(likelihood)
    if tensors.keys() != slots.keys() or not all(each in list(slots) for each in learned):
        raise ValueError(f"a {name} has the tensors {sorted(slots)}, the file has {shown(sorted(tensors))}")
    refuse_non_finite(tensors)
    # in the order of the parameters, which optimisers go by
    for slot in slots:
        tensor = tensors[slot]
        if tensor.dtype not in DTYPES.values() or tensor.ndim > 1 or not tensor.numel():
            raise ValueError(
                f"{slot} must be a floating point number, or one for each output, got {tensor.dtype} of shape "
                f"{tuple(tensor.shape)}"
            )
        delattr(likelihood, slot)
        if slot in learned:
            likelihood.register_parameter(slot, nn.Parameter(tensor))
        else:
            likelihood.register_buffer(slot, tensor)
    _freeze(likelihood, node["frozen"])
    return likelihood


def dtype_name(dtype: torch.dtype) -> str:
    """The name of a dtype in a file."""
    return str(dtype).removeprefix("torch.")


def refuse_non_finite(tensors: Tensors) -> None:
    """Refuse NaN and inf, with which nothing could be predicted."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise ValueError(f"the tensor {shown(name)} contains NaN or inf")


def _skeleton(node: dict[str, Any]) -> Network:
    """The network of a specification, with shapes and no memory."""
    _, layers, number, has_targets, input_shape, learn, dtype, _ = take(
        node,
        "network",
        object=str,
        layers=list,
        num_inducing=int | None,
        inducing_targets=bool,
        input_shape=list,
        learn_inducing_locations=bool,
        dtype=str,
        frozen=list,
    )
    if not input_shape or not all(type(size) is int and size > 0 for size in input_shape):
        raise ValueError(f"network: input_shape cannot be {shown(input_shape)}")
    kind = choose(DTYPES, dtype, "dtype", "network")
    _refuse_numbers_beyond(kind, layers)
    with torch.device("meta"):
        modules = [decode_module(layer, f"layers.{i}") for i, layer in enumerate(layers)]
        points = None if number is None else torch.empty(number, *input_shape)
        targets = None
        if has_targets:
            last = modules[-1] if modules else None
            if number is None or not isinstance(last, Layer):
                raise ValueError("network: inducing_targets need inducing points and a last layer")
            targets = torch.empty(number, last.out_features)
        network = Network(modules, points, targets, None, tuple(input_shape), learn)
    return network.to(kind)


def _refuse_numbers_beyond(dtype: torch.dtype, node: Any) -> None:
    """Refuse settings that the network could not compute with in its dtype."""
    if isinstance(node, dict | list):
        for part in node.values() if isinstance(node, dict) else node:
            _refuse_numbers_beyond(dtype, part)
    elif isinstance(node, int | float) and abs(node) > torch.finfo(dtype).max:
        raise ValueError(f"network: the number {node:.3g} is too large for {dtype_name(dtype)}")


def _tensors(module: nn.Module) -> Tensors:
    return dict(module.named_parameters()) | dict(module.named_buffers())


def _difference(slots: Tensors, tensors: Tensors) -> str | None:
    """What keeps tensors from taking the places that a specification has, in words."""
    missing, extra = sorted(slots.keys() - tensors.keys()), sorted(tensors.keys() - slots.keys())
    if missing or extra:
        name, state = (missing[0], "missing") if missing else (extra[0], "not a part of its specification")
        return f"the tensor {shown(name)} is {state}"
    for name, slot in slots.items():
        if slot.shape != tensors[name].shape or slot.dtype != tensors[name].dtype:
            wanted, found = (f"{dtype_name(t.dtype)} {tuple(t.shape)}" for t in (slot, tensors[name]))
            return f"the tensor {name} is {found}, by the specification it is {wanted}"
    return None


def _frozen(module: nn.Module) -> list[str]:
    """Parameters that do not learn, by the constructor or because a user says so."""
    return [name for name, parameter in module.named_parameters() if not parameter.requires_grad]


def _freeze(module: nn.Module, frozen: list[Any]) -> None:
    parameters = dict(module.named_parameters())
    unknown = [name for name in frozen if not isinstance(name, str) or name not in parameters]
    if unknown:
        raise ValueError(f"there is no parameter {shown(unknown[0])} to freeze")
    names = set(frozen)
    for name, parameter in parameters.items():
        parameter.requires_grad_(name not in names)
