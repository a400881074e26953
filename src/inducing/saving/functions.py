"""Frozen functions as JSON and tensors: a tree of drawn functions, each by its class name and its fields.

No specification says which shapes the tensors of a drawn function have, so a loaded one is run once on torch's meta device,
which compares all shapes and dtypes without memory.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from inducing.nn.convolution import Convolution
from inducing.nn.draw import Chain, Function, FunctionSamples, Sum
from inducing.nn.features import Cosines, Hadamard, NetworkFeatures, Rectified, SignedSum
from inducing.nn.layers import Affine
from inducing.nn.normalisation import Rescaled
from inducing.nn.plain import Folded
from inducing.nn.processes import Identity, Path, Projection, Zero
from inducing.saving.modules import LAYERS, decode_module, encode_module
from inducing.saving.networks import DTYPES, Tensors, dtype_name, refuse_non_finite
from inducing.saving.specifications import choose, decode_value, encode_value, fits, hints_of, shown, take

FUNCTIONS: dict[str, type[Function]] = {
    cls.__name__: cls
    for cls in (
        *(Chain, Sum, Folded, Affine, Convolution, Rescaled),
        *(Path, Zero, Identity, Projection, Cosines, NetworkFeatures, Rectified, SignedSum, Hadamard),
    )
}


def encode_functions(samples: FunctionSamples) -> tuple[dict[str, Any], Tensors]:
    """The tree of a frozen function, and its tensors by their place in it."""
    tensors: Tensors = {}
    node = {
        "object": "FunctionSamples",
        "function": _encode(samples.function, "function", tensors),
        "input_shape": list(samples.input_shape),
        "dtype": dtype_name(samples.dtype),
    }
    refuse_non_finite(tensors)
    return node, tensors


def decode_functions(node: dict[str, Any], tensors: Tensors) -> FunctionSamples:
    """The inverse of `encode_functions`."""
    _, tree, shape, dtype_text = take(node, "functions", object=str, function=dict, input_shape=list, dtype=str)
    dtype = choose(DTYPES, dtype_text, "dtype", "functions")
    if not all(type(size) is int and size > 0 for size in shape):
        raise ValueError(f"functions: input_shape cannot be {shown(shape)}")
    used: set[str] = set()
    function = _decode(tree, "function", tensors, used)
    if not isinstance(function, Function):
        raise ValueError(f"functions: {shown(tree)} is not a function")
    if used != tensors.keys():
        raise ValueError(f"the tensor {sorted(tensors.keys() - used)[0]} is not a part of its specification")
    refuse_non_finite(tensors)
    rows = torch.empty(1, 2, *shape, dtype=dtype, device="meta")
    outputs = function.map(lambda tensor: tensor.to("meta"))(rows)
    if outputs.ndim < 2 or outputs.shape[1] != 2 or outputs.dtype != dtype:
        raise ValueError("functions: it does not turn a batch of rows into as many")
    return FunctionSamples(function, tuple(shape), dtype)


def _encode(value: Any, where: str, tensors: Tensors) -> Any:
    if isinstance(value, Tensor):
        tensors[where] = value.detach()
        return {"tensor": True}
    if isinstance(value, Function):
        if FUNCTIONS.get(type(value).__name__) is not type(value):
            raise ValueError(
                f"{where} is a {type(value).__name__}, which cannot be saved; use one of {', '.join(FUNCTIONS)}"
            )
        fields = {
            field.name: _encode(getattr(value, field.name), f"{where}.{field.name}", tensors)
            for field in dataclasses.fields(value)
        }
        return {"function": type(value).__name__, "fields": fields}
    if isinstance(value, nn.Module):
        return encode_module(value, where)
    if isinstance(value, tuple):
        return [_encode(item, f"{where}.{index}", tensors) for index, item in enumerate(value)]
    return encode_value(value, where)


def _decode(node: Any, where: str, tensors: Tensors, used: set[str]) -> Any:
    if isinstance(node, list):
        return tuple(_decode(item, f"{where}.{index}", tensors, used) for index, item in enumerate(node))
    if not isinstance(node, dict) or "kernel" in node:
        return decode_value(node, where)
    if "tensor" in node:
        if where not in tensors:
            raise ValueError(f"the tensor {where} is missing")
        used.add(where)
        return tensors[where]
    if "module" in node:
        module = decode_module(node, where)
        if any(type(part) in LAYERS for part in module.modules()):
            raise ValueError(f"{where}: a drawn function has no layers that are still to be drawn")
        return module
    name, fields = take(node, where, function=str, fields=dict)
    cls = choose(FUNCTIONS, name, "function", where)
    values = {key: _decode(item, f"{where}.{key}", tensors, used) for key, item in fields.items()}
    if values.keys() != {field.name for field in dataclasses.fields(cls)}:
        raise ValueError(f"{where}: a {name} has other fields than {sorted(values)}")
    for key, value in values.items():
        if not fits(value, hints_of(cls)[key]):
            raise ValueError(f"{where}: {key} of a {name} cannot be {_kind(value)}")
    return cls(**values)


def _kind(value: Any) -> str:
    return f"{dtype_name(value.dtype)} {tuple(value.shape)}" if isinstance(value, Tensor) else shown(value)
