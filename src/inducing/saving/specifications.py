"""Specifications as JSON: priors, posteriors and kernels, each by its class name and its fields.

    ScalePrior(shape=2.0, rate=2.0)   <->   {"prior": "ScalePrior", "arguments": {"shape": 2.0, "rate": 2.0}}

What can be made is what the tables of the library list (PRIORS, POSTERIORS, KERNELS). A class is made by its constructor,
after its arguments were compared with the annotations.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterable
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from inducing.nn.kernels import KERNELS, Product, Sum
from inducing.nn.posteriors import POSTERIORS
from inducing.nn.priors import PRIORS


def _by_name(classes: Iterable[type]) -> dict[str, type]:
    return {cls.__name__: cls for cls in classes}


SPECIFICATIONS: dict[str, dict[str, type]] = {
    "prior": _by_name(PRIORS.values()),
    "posterior": _by_name(POSTERIORS.values()),
    "kernel": _by_name([*KERNELS.values(), Sum, Product]),
}


def encode_value(value: Any, where: str) -> Any:
    """Turn an argument of a layer or a field of a specification into JSON; ``where`` names it in errors."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real) and math.isfinite(value):
        return float(value)
    if isinstance(value, tuple | list):
        return [encode_value(item, where) for item in value]
    for kind, known in SPECIFICATIONS.items():
        if type(value) in known.values():
            names = [field.name for field in dataclasses.fields(value)]
            arguments = {name: encode_value(getattr(value, name), f"{where}.{name}") for name in names}
            return {kind: type(value).__name__, "arguments": arguments}
    listed = "; ".join(f"{kind}s {', '.join(known)}" for kind, known in SPECIFICATIONS.items())
    raise ValueError(f"{where}: {value!r} cannot be saved. What can: finite numbers, strings, tuples; {listed}")


def decode_value(node: Any, where: str) -> Any:
    """The inverse of `encode_value`; lists become tuples."""
    if isinstance(node, list):
        return tuple(decode_value(item, where) for item in node)
    if isinstance(node, dict):
        for kind, known in SPECIFICATIONS.items():
            if kind in node:
                name, arguments = take(node, where, **{kind: str, "arguments": dict})
                cls = choose(known, name, kind, where)
                return construct(cls, hints_of(cls), arguments, f"{where}.{name}")
        raise ValueError(f"{where}: {shown(node)} is not a specification")
    return node


def construct(cls: Callable[..., Any], hints: dict[str, Any], arguments: dict[str, Any], where: str) -> Any:
    """Call a class with arguments from JSON, if they have the names and types that it asks for.

    Those that are left out get their defaults, so that a class may gain an argument without a new format.
    """
    known = inspect.signature(cls).parameters
    values = {}
    for name, node in arguments.items():
        if name not in known:
            raise ValueError(f"{where} has no argument {name!r}")
        values[name] = decode_value(node, f"{where}.{name}")
        if name in hints and not fits(values[name], hints[name]):
            raise ValueError(f"{where}: {name} cannot be {shown(values[name])}")
    return cls(**values)


@cache
def hints_of(cls: Any) -> dict[str, Any]:
    """The annotations of a class or of its constructor."""
    return get_type_hints(cls)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is what an annotation says; whole numbers may stand for floating point ones."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is None or hint is NoneType:
        return value is None
    if origin in (Union, UnionType):
        return any(fits(value, part) for part in parts)
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if origin is tuple:
        wanted = parts[:1] * len(value) if isinstance(value, tuple) and parts[1:] == (...,) else parts
        return isinstance(value, tuple) and len(value) == len(wanted) and all(map(fits, value, wanted))
    if origin in (list, dict):
        return isinstance(value, origin)
    if hint is float:
        return type(value) in (int, float)
    if hint is int:
        # a bool is no number here
        return type(value) is int
    return isinstance(value, hint)


def take(node: Any, where: str, **hints: Any) -> tuple[Any, ...]:
    """The entries of a JSON object, if it has exactly these and they have these types."""
    if not isinstance(node, dict) or node.keys() != hints.keys():
        found = sorted(node) if isinstance(node, dict) else node
        raise ValueError(f"{where} must have the entries {sorted(hints)}, but has {shown(found)}")
    for name, hint in hints.items():
        if not fits(node[name], hint):
            raise ValueError(f"{where}: {name} cannot be {shown(node[name])}")
    return tuple(node[name] for name in hints)


def choose(known: dict[str, Any], name: object, kind: str, where: str) -> Any:
    """Look a class up by name; only what is listed can be made."""
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"{where}: there is no {kind} {shown(name)} that can be loaded; there are {', '.join(known)}")
    return known[name]


def shown(value: object) -> str:
    """A value for a message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
