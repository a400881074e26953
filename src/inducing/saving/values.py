"""Values as JSON: numbers, strings, tuples, and instances of registered classes with the arguments of their constructors.

    ScalePrior(shape=2.0, rate=2.0)   <->   {"prior": "ScalePrior", "arguments": {"shape": 2.0, "rate": 2.0}}
    nn.LeakyReLU(0.1)                 <->   {"module": "LeakyReLU", "arguments": {"negative_slope": 0.1}}

What is read may come from an untrusted file: arguments are compared with the annotations before a constructor is called.
"""

from __future__ import annotations

import math
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor, nn

from inducing.nn.layers import Residual
from inducing.saving import registry
from inducing.saving.registry import CLASSES, FROZEN, Tensors

# larger settings overflow in float32
LARGEST = torch.finfo(torch.float32).max
# kinds that are wholly described by arguments, and the entry that holds these
ENTRIES = dict.fromkeys(("prior", "posterior", "kernel", "module"), "arguments")
ENTRIES |= {"function": "fields", "class": "settings"}


def encode_value(value: Any, where: str, tensors: Tensors | None = None) -> Any:
    """Turn a value into JSON.

    Arguments:
        value: The value.
        where: Its place in the model, for messages and for the names of tensors.
        tensors: Where to put the tensors of drawn functions. Default: tensors are refused.
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, tuple | list | nn.ModuleList):
        return [encode_value(item, f"{where}.{index}", tensors) for index, item in enumerate(value)]
    if isinstance(value, Tensor) and tensors is not None:
        tensors[where] = value.detach()
        return {"tensor": True}
    cls, kind = type(value), registry.kind_of(type(value))
    if cls is nn.Sequential:
        return {"module": "Sequential", "layers": encode_value(tuple(value), where, tensors)}
    if cls is Residual:
        return {"module": "Residual", **encode_arguments(value, where, tensors)}
    if cls.__name__ in FROZEN and cls is FROZEN[cls.__name__][0]:
        return {"frozen": cls.__name__, "arguments": _encode_frozen(value, where)}
    if kind not in ENTRIES or not registry.is_registered(value):
        known = f" Known: {', '.join(CLASSES[kind])}." if kind in ENTRIES else ""
        raise ValueError(
            f"{where}: {shorten(value)} cannot be saved. Use finite numbers, strings, tuples or a registered class.{known} "
            f"Register your own class with inducing.register({cls.__name__})"
        )
    return {kind: cls.__name__, ENTRIES[kind]: encode_arguments(value, where, tensors)}


def encode_arguments(value: Any, where: str, tensors: Tensors | None = None) -> dict[str, Any]:
    """The arguments that make an instance of a registered class again, as JSON."""
    try:
        arguments = {name: attrgetter(attribute)(value) for name, attribute in registry.ATTRIBUTES[type(value)].items()}
    except AttributeError as error:
        raise ValueError(
            f"{where} cannot be saved: {error}. Keep each argument of the constructor as an attribute of the same name"
        ) from error
    return {name: encode_value(argument, f"{where}.{name}", tensors) for name, argument in arguments.items()}


def decode_value(node: Any, where: str, tensors: Tensors | None = None) -> Any:
    """The inverse of `encode_value`; lists become tuples. Tensors that are used are removed from ``tensors``."""
    if isinstance(node, list):
        return tuple(decode_value(item, f"{where}.{index}", tensors) for index, item in enumerate(node))
    if isinstance(node, int | float) and abs(node) > LARGEST:
        raise ValueError(f"{where}: the number {node:.3g} is too large")
    if not isinstance(node, dict):
        return node
    if "tensor" in node and tensors is not None:
        if where not in tensors:
            raise ValueError(f"the tensor {where} is missing")
        return tensors.pop(where)
    if "frozen" in node:
        return _decode_frozen(node, where)
    kind = next((kind for kind in ENTRIES if kind in node), None)
    if kind is None:
        raise ValueError(f"{where}: {shorten(node)} is not a saved value")
    cls = registry.find_class(kind, node[kind], where)
    if cls is nn.Sequential:
        _, layers = take(node, where, module=str, layers=list)
        return nn.Sequential(*decode_value(layers, where, tensors))
    if cls is Residual:
        _, *lists = take(node, where, module=str, layers=list, shortcut=list)
        layers, shortcut = decode_value(lists, where, tensors)
        return Residual(*layers, shortcut=shortcut)
    _, arguments = take(node, where, **{kind: str, ENTRIES[kind]: dict})
    return construct(cls, arguments, where, tensors)


def _encode_frozen(module: nn.Module, where: str) -> dict[str, Any]:
    """The arguments of a module of torch. Its bias is a parameter or None, but the argument is a bool."""
    _, names = FROZEN[type(module).__name__]
    arguments = {name: getattr(module, name) for name in names}
    if "bias" in arguments:
        arguments["bias"] = arguments["bias"] is not None
    return {name: encode_value(argument, f"{where}.{name}") for name, argument in arguments.items()}


def _decode_frozen(node: dict[str, Any], where: str) -> nn.Module:
    name, arguments = take(node, where, frozen=str, arguments=dict)
    if name not in FROZEN:
        raise ValueError(f"{where}: there is no module {shorten(name)} that can be frozen. Known: {', '.join(FROZEN)}")
    cls, names = FROZEN[name]
    values = dict(zip(names, take(arguments, where, **dict.fromkeys(names, Any)), strict=True))
    # without memory and random initial values, until the tensors of the file are put in place
    with torch.device("meta"):
        return cls(**{key: decode_value(value, f"{where}.{key}") for key, value in values.items()})


def construct(cls: Any, arguments: dict[str, Any], where: str, tensors: Tensors | None = None) -> Any:
    """Call a constructor with arguments from JSON, if they have its names and types.

    Missing arguments get their defaults, so that a class may gain an argument without a new format.
    """
    hints, values = hints_of(cls), {}
    for name, node in arguments.items():
        if name not in registry.ATTRIBUTES[cls]:
            raise ValueError(f"{where} {cls.__name__} has no argument {shorten(name)}")
        values[name] = decode_value(node, f"{where}.{name}", tensors)
        if name in hints and not fits(values[name], hints[name]):
            raise ValueError(f"{where} {cls.__name__}: {name} cannot be {shorten(values[name])}")
    return cls(**values)


@cache
def hints_of(cls: Any) -> dict[str, Any]:
    """The annotations of the arguments of a class. Those of torch are not exact, and are left to torch."""
    if cls.__module__.startswith("torch."):
        return {}
    return get_type_hints(cls.__init__ if issubclass(cls, nn.Module) else cls)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value has the annotated type; an integer is accepted as a float."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, part) for part in parts)
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if origin in (tuple, list) and isinstance(value, origin):
        wanted = parts[:1] * len(value) if origin is list or parts[1:] == (...,) else parts
        return len(value) == len(wanted) and all(map(fits, value, wanted))
    if origin is dict and isinstance(value, dict):
        return all(fits(key, parts[0]) and fits(item, parts[1]) for key, item in value.items())
    if hint in (int, float):
        # not isinstance: bool is a subclass of int
        return type(value) in (int, hint)
    return hint is Any or isinstance(value, origin or hint)


def take(node: Any, where: str, **hints: Any) -> tuple[Any, ...]:
    """The entries of a JSON object, if it has exactly these and they have these types."""
    if not isinstance(node, dict) or node.keys() != hints.keys():
        found = sorted(node) if isinstance(node, dict) else node
        raise ValueError(f"{where} must have the entries {sorted(hints)}, but has {shorten(found)}")
    for name, hint in hints.items():
        if not fits(node[name], hint):
            raise ValueError(f"{where}: {name} cannot be {shorten(node[name])}")
    return tuple(node[name] for name in hints)


def shorten(value: object) -> str:
    """The representation of a value for a message, at most 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
