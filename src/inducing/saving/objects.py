"""What can be saved, as JSON and tensors: networks, likelihoods, frozen functions, standardisers, and registered estimators.

Tuples and dictionaries of those, of tensors and of plain values can be saved too. An estimator says with `to_state` and
`from_state` what it is besides its network and its likelihood.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from torch import Tensor

from inducing.data.standardise import Standardiser
from inducing.nn.draw import FunctionSamples
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.saving.functions import decode_functions, encode_functions
from inducing.saving.networks import (
    LIKELIHOODS,
    Tensors,
    decode_likelihood,
    decode_network,
    encode_likelihood,
    encode_network,
    refuse_non_finite,
)
from inducing.saving.specifications import choose, shown, take

State = tuple[dict[str, Any], Tensors]


@runtime_checkable
class Savable(Protocol):
    """An estimator that can be saved, together with its network and its likelihood."""

    network_: Network
    likelihood_: Likelihood

    def to_state(self) -> State:
        """All else that it is: plain values for JSON, and tensors by name."""

    @classmethod
    def from_state(cls, values: dict[str, Any], tensors: Tensors, network: Network, likelihood: Likelihood) -> Savable:
        """Make it again from what `to_state` gave, with its network and its likelihood.

        All of it comes from a file that may be wrong: raise a ValueError where the parts do not fit each other.
        """


# classes by name, and the only ones that a file can name besides those below
SAVABLE: dict[str, type[Savable]] = {}
# modules that register classes when they are imported, which waits until a model is none of those below
REGISTERING: list[str] = []
S = TypeVar("S", bound=type)


def register(cls: S) -> S:
    """Let estimators of a class be saved and loaded, as `Savable` says; a decorator."""
    if cls.__name__ in DECODERS:
        raise ValueError(f"{cls.__name__} is taken")
    SAVABLE[cls.__name__] = cast(type[Savable], cls)
    return cls


def register_by(module: str) -> None:
    """Let the classes that a module registers be saved and loaded, without importing it yet."""
    REGISTERING.append(module)


def _savable() -> dict[str, type[Savable]]:
    for module in REGISTERING:
        import_module(module)
    return SAVABLE


def encode(model: object) -> State:
    """Turn a model into JSON and tensors."""
    if _is_plain(model):
        return {"object": "value", "value": model}, {}
    if isinstance(model, Tensor):
        return {"object": "Tensor"}, {"values": model.detach()}
    if type(model) is Network:
        return encode_network(model)
    if isinstance(model, Likelihood) and LIKELIHOODS.get(type(model).__name__) is type(model):
        return encode_likelihood(model)
    if type(model) is FunctionSamples:
        return encode_functions(model)
    if type(model) is Standardiser:
        return {"object": "Standardiser"}, {"mean": model.mean, "std": model.std}
    if type(model) is tuple:
        nodes, tensors = _encode_parts({str(index): part for index, part in enumerate(model)})
        return {"object": "tuple", "items": list(nodes.values())}, tensors
    if type(model) is dict and all(isinstance(key, str) for key in model):
        nodes, tensors = _encode_parts(model)
        return {"object": "dict", "items": nodes}, tensors
    if _savable().get(type(model).__name__) is type(model):
        return _encode_estimator(model)
    known = ", ".join(["Network", *LIKELIHOODS, "FunctionSamples", "Standardiser", *SAVABLE])
    raise ValueError(
        f"a {type(model).__name__} cannot be saved. What can: {known}; tensors, finite numbers, strings, and tuples, lists "
        "and dictionaries of these, with strings as keys"
    )


def decode(node: object, tensors: Tensors) -> Any:
    """Make a model again from what `encode` gave."""
    name = node.get("object") if isinstance(node, dict) else None
    known = DECODERS if isinstance(name, str) and name in DECODERS else DECODERS | _savable()
    cls = choose(known, name, "object", "model")
    assert isinstance(node, dict)
    if name in DECODERS:
        return cls(node, tensors)
    return _decode_estimator(cls, node, tensors)


def _encode_estimator(estimator: Savable) -> State:
    state, own = estimator.to_state()
    parts, tensors = _encode_parts({"network": estimator.network_, "likelihood": estimator.likelihood_})
    tensors |= {f"state/{name}": tensor for name, tensor in own.items()}
    return {"object": type(estimator).__name__, "state": state, "parts": parts}, tensors


def _decode_estimator(cls: Any, node: dict[str, Any], tensors: Tensors) -> Savable:
    name, state, parts = take(node, cls.__name__, object=str, state=dict, parts=dict)
    own = {key.removeprefix("state/"): tensor for key, tensor in tensors.items() if key.startswith("state/")}
    others = _decode_parts(parts, {key: tensor for key, tensor in tensors.items() if not key.startswith("state/")})
    network, likelihood = take(others, name, network=Network, likelihood=Likelihood)
    return cls.from_state(state, own, network, likelihood)


def _encode_parts(parts: dict[str, Any]) -> State:
    nodes: dict[str, Any] = {}
    tensors: Tensors = {}
    for key, part in parts.items():
        if "/" in key:
            raise ValueError(f"the key {key!r} has a slash, which stands between keys in the names of tensors")
        nodes[key], inner = encode(part)
        tensors |= {f"{key}/{name}": tensor for name, tensor in inner.items()}
    return nodes, tensors


def _decode_parts(nodes: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
    owned: dict[str, Tensors] = {key: {} for key in nodes}
    for full_name, tensor in tensors.items():
        key, _, name = full_name.partition("/")
        if key not in owned:
            raise ValueError(f"the tensor {shown(full_name)} belongs to nothing")
        owned[key][name] = tensor
    parts = {key: decode(node, owned[key]) for key, node in nodes.items()}
    for part in parts.values():
        if isinstance(part, Network) and part.optimal_last is not None:
            # it takes its precision from the noise
            likelihoods = [each for each in parts.values() if isinstance(each, part.optimal_last.noise)]
            if len(likelihoods) == 1:
                part.tie(likelihoods[0])
    return parts


def _decode_tuple(node: dict[str, Any], tensors: Tensors) -> tuple[Any, ...]:
    _, items = take(node, "tuple", object=str, items=list)
    return tuple(_decode_parts({str(index): item for index, item in enumerate(items)}, tensors).values())


def _decode_dict(node: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
    _, items = take(node, "dict", object=str, items=dict)
    return _decode_parts(items, tensors)


def _decode_tensor(node: dict[str, Any], tensors: Tensors) -> Tensor:
    take(node, "tensor", object=str)
    _names(tensors, "values")
    return tensors["values"]


def _decode_value(node: dict[str, Any], tensors: Tensors) -> Any:
    _, value = take(node, "value", object=str, value=object)
    _names(tensors)
    return value


def _decode_standardiser(node: dict[str, Any], tensors: Tensors) -> Standardiser:
    take(node, "standardiser", object=str)
    _names(tensors, "mean", "std")
    mean, std = tensors["mean"], tensors["std"]
    if mean.ndim != 1 or mean.shape != std.shape or not (mean.is_floating_point() and std.is_floating_point()):
        raise ValueError(f"a Standardiser has a mean and a std for each column, got {mean.shape} and {std.shape}")
    refuse_non_finite(tensors)
    if not (std > 0).all():
        raise ValueError(f"a Standardiser has positive standard deviations, but one is {std.min().item():g}")
    return Standardiser(mean, std)


DECODERS: dict[str, Callable[[dict[str, Any], Tensors], Any]] = {
    "Network": decode_network,
    "Likelihood": decode_likelihood,
    "FunctionSamples": decode_functions,
    "Standardiser": _decode_standardiser,
    "Tensor": _decode_tensor,
    "tuple": _decode_tuple,
    "dict": _decode_dict,
    "value": _decode_value,
}


def _names(tensors: Tensors, *wanted: str) -> None:
    if tensors.keys() != set(wanted):
        raise ValueError(f"it has the tensors {shown(sorted(tensors))} instead of {sorted(wanted)}")


def _is_plain(value: object) -> bool:
    """Whether JSON gives the very same value back."""
    if type(value) is list:
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(type(key) is str and _is_plain(item) for key, item in value.items())
    return value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value))
