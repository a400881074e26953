"""What all models share: the arguments for inducing points, and the creation of the network."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypedDict, TypeVar, get_type_hints

from torch import Generator, Tensor, nn

from inducing.nn.context import Shape
from inducing.nn.layers import Layer, Parts
from inducing.nn.network import Network

Model = TypeVar("Model", bound=Callable[..., Network])


class InducingArguments(TypedDict, total=False):
    """Keyword arguments of all models. They mean the same as in `Network`, with the same defaults."""

    inducing_points: Tensor | None
    inducing_targets: Tensor | None
    num_inducing: int | None
    learn_inducing_locations: bool
    generator: Generator | None


def takes_inducing(model: Model) -> Model:
    """Decorator of a model with ``**inducing: Unpack[InducingArguments]``: show each of these in its signature."""
    signature, defaults = inspect.signature(model), inspect.signature(Network).parameters
    *named, _ = signature.parameters.values()
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name].default, annotation=hint)
        for name, hint in get_type_hints(InducingArguments).items()
    ]
    model.__signature__ = signature.replace(parameters=[*named, *shared])  # type: ignore[attr-defined]
    return model


def assemble(layers: list[nn.Module], input_shape: int | Shape, inducing: InducingArguments) -> Network:
    """Create a network. Arguments for inducing points are ignored if no layer uses them."""
    points, last = inducing.get("inducing_points"), layers[-1]
    if not Parts(layers).inducing_users():
        inducing |= {"inducing_points": None, "num_inducing": None}
    if not (isinstance(last, Layer) and last.needs_inducing):
        inducing |= {"inducing_targets": None}
    network = Network(layers, input_shape=input_shape, **inducing)
    # the same dtype and device for every posterior
    return network if points is None else network.to(points.device, points.dtype)
