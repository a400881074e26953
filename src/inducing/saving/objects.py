"""Everything that can be saved, as JSON and tensors: models, tuples and dictionaries of them, and plain values."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from torch import Tensor

from inducing.data.standardise import Standardiser
from inducing.inference.mixtures import Mixture
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.saving import models
from inducing.saving.registry import Composite, State, Tensors, find_class, is_registered, kind_of, known_names
from inducing.saving.values import hints_of, shorten, take


def encode_object(value: Any) -> State:
    """Turn anything that can be saved into JSON and tensors."""
    if _is_plain(value):
        return {"object": "value", "value": value}, {}
    if isinstance(value, Tensor):
        return {"object": "Tensor"}, {"values": value.detach()}
    if type(value) in models.ENCODERS:
        return models.ENCODERS[type(value)](value)
    if type(value) is Standardiser:
        return {"object": "Standardiser"}, value._asdict()
    if type(value) is Mixture:
        parts, tensors = _encode_parts({"networks": value.components, "log_weights": value.log_weights})
        return {"object": "Mixture", "parts": parts}, tensors
    if type(value) is tuple:
        nodes, tensors = _encode_parts({str(index): part for index, part in enumerate(value)})
        return {"object": "tuple", "items": list(nodes.values())}, tensors
    if type(value) is dict and all(isinstance(key, str) for key in value):
        nodes, tensors = _encode_parts(value)
        return {"object": "dict", "items": nodes}, tensors
    kind = kind_of(type(value)) if is_registered(value) else None
    if kind == "likelihood":
        return models.encode_likelihood(value)
    if kind == "object":
        if isinstance(value, Composite):
            state, members = value.to_parts()
            parts, tensors = _encode_parts(members)
            return {"object": type(value).__name__, "state": state, "parts": parts}, tensors
        state, own = value.to_state()
        parts, tensors = _encode_parts({"network": value.network_, "likelihood": value.likelihood_})
        tensors |= {f"state/{key}": tensor for key, tensor in own.items()}
        return {"object": type(value).__name__, "state": state, "parts": parts}, tensors
    name = type(value).__name__
    raise ValueError(
        f"a {name} cannot be saved. Known: {', '.join([*known_names('object'), *known_names('likelihood')])}. Numbers must "
        f"be finite and keys strings. Register your own likelihood or estimator with inducing.register({name})"
    )


def decode_object(node: Any, tensors: Tensors) -> Any:
    """The inverse of `encode_object`."""
    name = node.get("object") if isinstance(node, dict) else None
    if isinstance(name, str) and name in models.DECODERS:
        return models.DECODERS[name](node, tensors)
    if name == "tuple":
        _, items = take(node, name, object=str, items=list)
        owned = _split(tensors, map(str, range(len(items))))
        return tuple(map(decode_object, items, owned.values()))
    if name == "dict":
        _, items = take(node, name, object=str, items=dict)
        owned = _split(tensors, items)
        return {key: decode_object(part, owned[key]) for key, part in items.items()}
    if name == "value":
        take(tensors, "the tensors of a value")
        return take(node, name, object=str, value=object)[1]
    if name == "Tensor":
        take(node, name, object=str)
        return take(tensors, name, values=Tensor)[0]
    if name == "Standardiser":
        take(node, name, object=str)
        return decode_standardiser(tensors, "a Standardiser")
    if name == "Mixture":
        _, nodes = take(node, name, object=str, parts=dict)
        owned = _split(tensors, nodes)
        parts = {key: decode_object(part, owned[key]) for key, part in nodes.items()}
        networks, log_weights = take(parts, name, networks=tuple, log_weights=Tensor)
        return Mixture(networks, log_weights)
    estimator = find_class("object", name, "model")
    name, state, nodes = take(node, estimator.__name__, object=str, state=dict, parts=dict)
    is_composite = issubclass(estimator, Composite)
    owned = _split(tensors, [*nodes] if is_composite else ["state", *nodes])
    parts = {key: decode_object(part, owned[key]) for key, part in nodes.items()}
    if is_composite:
        return estimator.from_parts(state, parts)
    network, likelihood = take(parts, name, network=Network, likelihood=Likelihood)
    return estimator.from_state(state, owned["state"], network, likelihood)


def decode_standardiser(tensors: Tensors, what: str) -> Standardiser:
    """Make a standardiser from its mean and standard deviation. ``what`` names it in the error message."""
    mean, std = take(tensors, what, **hints_of(Standardiser))
    if mean.shape != std.shape or not (mean.isfinite().all() and std.isfinite().all() and (std > 0).all()):
        raise ValueError(f"{what} must have a finite mean and a positive standard deviation for each column")
    return Standardiser(mean, std)


def _encode_parts(parts: dict[str, Any]) -> State:
    nodes: dict[str, Any] = {}
    tensors: Tensors = {}
    for key, part in parts.items():
        if "/" in key:
            raise ValueError(f"the key {key!r} has a slash, which separates keys in the names of tensors")
        nodes[key], inner = encode_object(part)
        tensors |= {f"{key}/{name}": tensor for name, tensor in inner.items()}
    return nodes, tensors


def _split(tensors: Tensors, keys: Iterable[str]) -> dict[str, Tensors]:
    """The tensors of each part, whose names begin with its key."""
    owned: dict[str, Tensors] = {key: {} for key in keys}
    for full_name, tensor in tensors.items():
        key, _, name = full_name.partition("/")
        if key not in owned:
            raise ValueError(f"the tensor {shorten(full_name)} belongs to nothing")
        owned[key][name] = tensor
    return owned


def _is_plain(value: object) -> bool:
    """Whether JSON returns the same value."""
    if type(value) is list:
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(type(key) is str and _is_plain(item) for key, item in value.items())
    return value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value))
