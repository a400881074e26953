"""Networks, likelihoods and frozen functions as JSON and tensors.

A network is made again from its specification on torch's meta device, where tensors have shapes and no memory. The tensors
of the file are compared with these, name by name, and then put in place: sizes that a file merely claims cost nothing. The
tensors of a frozen function have no specification, so it is run once on the meta device, which compares shapes and dtypes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal

import torch
from torch import Tensor, nn

from inducing.nn.draw import Function, FunctionSamples
from inducing.nn.layers import Layer
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.nn.posteriors.optimal import OptimalModule
from inducing.saving.registry import State, Tensors, find_class
from inducing.saving.values import construct, decode_value, encode_arguments, encode_value, shorten, take

Float = Literal["float16", "bfloat16", "float32", "float64"]
NETWORK: dict[str, Any] = {"object": str, "layers": list, "num_inducing": int | None, "inducing_targets": bool}
NETWORK |= {"dtype": Float, "input_shape": list[int], "learn_inducing_locations": bool, "frozen": list[str]}
NETWORK |= {"inducing_shape": list[int]}
LIKELIHOOD = {"object": str, "class": str, "arguments": dict, "learned": list[str], "frozen": list[str]}
FUNCTIONS = {"object": str, "function": dict, "input_shape": list[int], "dtype": Float}


def encode_network(network: Network) -> State:
    """The specification of a network, and its parameters and buffers by name."""
    node = {
        "object": "Network",
        "layers": encode_value(network.layers, "layers"),
        "num_inducing": network.num_initial_points,
        "inducing_targets": network.has_inducing_targets,
        "input_shape": list(network.input_shape),
        "learn_inducing_locations": network.learn_inducing_locations,
        "dtype": _dtype_name(network),
        "frozen": _frozen(network),
    }
    points = network.inducing_points
    if points is not None and points.shape[1:] != network.input_shape:
        # images of another size
        node["inducing_shape"] = list(points.shape[1:])
    tensors = _tensors_of(network)
    _check_same(_tensors_of(_build_network(node)), tensors)
    return node, _finite(tensors, _with_missing(network))


def decode_network(node: dict[str, Any], tensors: Tensors) -> Network:
    """The inverse of `encode_network`."""
    network = _build_network(node)
    _check_same(_tensors_of(network), tensors)
    _restore(network, tensors, [name for name, _ in network.named_parameters()], node["frozen"])
    return network


def encode_likelihood(likelihood: Likelihood) -> State:
    """The class and the arguments of a likelihood, the names of its parameters, and its tensors."""
    name, tensors = type(likelihood).__name__, _tensors_of(likelihood)
    arguments = encode_arguments(likelihood, name)
    node: dict[str, Any] = {"object": "Likelihood", "class": name} | ({"arguments": arguments} if arguments else {})
    node |= {"learned": [name for name, _ in likelihood.named_parameters()], "frozen": _frozen(likelihood)}
    _build_likelihood(node, tensors)
    return node, _finite(tensors)


def decode_likelihood(node: dict[str, Any], tensors: Tensors) -> Likelihood:
    """The inverse of `encode_likelihood`."""
    likelihood = _build_likelihood(node, tensors)
    _restore(likelihood, tensors, node["learned"], node["frozen"])
    return likelihood


def encode_functions(samples: FunctionSamples) -> State:
    """The tree of a frozen function, its tensors by their place in it, and the tensors of its modules."""
    tensors: Tensors = {}
    node = {
        "object": "FunctionSamples",
        "function": encode_value(samples.function, "function", tensors),
        "input_shape": list(samples.input_shape),
        "dtype": _dtype_name(samples),
    }
    return node, _finite(tensors | _tensors_of_modules(samples))


def decode_functions(node: dict[str, Any], tensors: Tensors) -> FunctionSamples:
    """The inverse of `encode_functions`."""
    _, tree, sizes, dtype_name = take(node, "functions", **FUNCTIONS)
    shape, dtype = tuple(sizes), getattr(torch, dtype_name)
    left = dict(_finite(tensors))
    function = decode_value(tree, "function", left)
    if not isinstance(function, Function):
        raise ValueError(f"functions: {shorten(tree)} is not a function")
    samples = FunctionSamples(function, shape, dtype)
    for module in samples.children():
        module.to(dtype)
    _check_same(_tensors_of_modules(samples), left)
    frozen = _frozen(samples)
    _restore(samples, left, frozen, frozen)
    on_meta = FunctionSamples(function.map(lambda tensor: tensor.to("meta")), shape, dtype).to("meta")
    outputs = on_meta(torch.empty(2, *shape, dtype=dtype, device="meta"))
    if outputs.ndim < 2 or outputs.shape[1] != 2 or outputs.dtype != dtype:
        raise ValueError("functions: inputs and outputs must have the same number of rows and the same dtype")
    return samples


def _build_network(node: dict[str, Any]) -> Network:
    """The network of a specification, on the meta device."""
    node = {"inducing_shape": node.get("input_shape"), **node}
    _, layers, number, has_targets, dtype_name, sizes, learn, _, inducing_sizes = take(node, "network", **NETWORK)
    shape, dtype = tuple(sizes), getattr(torch, dtype_name)
    with torch.device("meta"):
        modules = decode_value(layers, "layers")
        points = None if number is None else torch.empty(number, *inducing_sizes)
        targets = None
        if has_targets:
            if points is None or not (modules and isinstance(modules[-1], Layer)):
                raise ValueError("network: inducing_targets need inducing points and a last layer")
            targets = torch.empty(len(points), modules[-1].out_features)
        network = Network(modules, points, targets, None, shape, learn)
    for name, module in network.named_modules():
        if any(isinstance(value, Tensor) for value in vars(module).values()):
            raise ValueError(f"{name} keeps a tensor in an attribute, which is not saved. Use register_buffer")
    return network.to(dtype)


def _build_likelihood(node: dict[str, Any], tensors: Tensors) -> Likelihood:
    """The likelihood of a specification, with initial values that are to be replaced by the tensors."""
    _, name, arguments, _, _ = take({"arguments": {}, **node}, "likelihood", **LIKELIHOOD)
    likelihood: Likelihood = construct(find_class("likelihood", name, "likelihood"), arguments, "likelihood")
    initial = _tensors_of(likelihood)
    for slot in initial.keys() & tensors.keys():
        # one number for all outputs may also be one for each, in any floating point dtype
        found, first = tensors[slot], initial[slot]
        shape = found.shape if first.ndim == 0 and found.ndim == 1 and len(found) else first.shape
        is_float = found.is_floating_point() and first.is_floating_point()
        initial[slot] = torch.empty(shape, dtype=found.dtype if is_float else first.dtype, device="meta")
    _check_same(initial, tensors, f" of a {name}")
    return likelihood


def _tensors_of(module: nn.Module) -> Tensors:
    return dict(module.named_parameters()) | dict(module.named_buffers())


def _tensors_of_modules(samples: FunctionSamples) -> Tensors:
    # its own buffers are the tensors of the function
    return {name: tensor for name, tensor in _tensors_of(samples).items() if "." in name}


def _finite(tensors: Tensors, with_missing: Collection[str] = ()) -> Tensors:
    """The tensors without their history, if they contain neither NaN nor inf. Some may have NaN for missing values."""
    for name, tensor in tensors.items():
        bad = torch.isinf if name in with_missing else lambda values: ~torch.isfinite(values)
        if tensor.is_floating_point() and bad(tensor).any():
            raise ValueError(f"the tensor {shorten(name)} contains NaN or inf")
    return {name: tensor.detach() for name, tensor in tensors.items()}


def _check_same(slots: Tensors, tensors: Tensors, owner: str = "") -> None:
    """Refuse tensors whose names, shapes or dtypes are not those of a specification."""
    for name in sorted(slots.keys() ^ tensors.keys()):
        state = "missing" if name in slots else "not a part of its specification"
        raise ValueError(f"the tensor {shorten(name)}{owner} is {state}")
    for name, slot in slots.items():
        found, wanted = _described(tensors[name]), _described(slot)
        if found != wanted:
            advice = ". Give the constructor an argument for its size" if owner else ""
            raise ValueError(f"the tensor {name}{owner} is {found}, by the specification it is {wanted}{advice}")


def _restore(module: nn.Module, tensors: Tensors, learned: list[str], frozen: list[str]) -> None:
    """Put tensors in the places of a module's own: as parameters if they are learned, as buffers otherwise."""
    for name in {*frozen} - {*learned} | {*learned} - tensors.keys():
        raise ValueError(f"there is no parameter {shorten(name)} to freeze or to learn")
    own, learned_names = _tensors_of(module), set(learned)
    for name, tensor in _finite(tensors, _with_missing(module)).items():
        path, _, attribute = name.rpartition(".")
        owner = module.get_submodule(path)
        if name in learned_names:
            setattr(owner, attribute, nn.Parameter(tensor, requires_grad=name not in frozen))
        elif isinstance(own[name], nn.Parameter):
            delattr(owner, attribute)
            owner.register_buffer(attribute, tensor)
        else:
            setattr(owner, attribute, tensor)


def _with_missing(module: nn.Module) -> list[str]:
    """The names of training targets, of which some may be missing."""
    return [f"{name}.targets" for name, part in module.named_modules() if isinstance(part, OptimalModule)]


def _frozen(module: nn.Module) -> list[str]:
    return [name for name, parameter in module.named_parameters() if not parameter.requires_grad]


def _dtype_name(value: Tensor | Network | FunctionSamples) -> str:
    return str(value.dtype).removeprefix("torch.")


def _described(tensor: Tensor) -> str:
    return f"{_dtype_name(tensor)} {tuple(tensor.shape)}"


ENCODERS: dict[type, Callable[[Any], State]] = {Network: encode_network, FunctionSamples: encode_functions}
DECODERS = {"Network": decode_network, "Likelihood": decode_likelihood, "FunctionSamples": decode_functions}
