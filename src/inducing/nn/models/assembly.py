"""Creation of a model's network."""

from __future__ import annotations

from torch import Generator, Tensor, nn

from inducing.nn.context import Shape
from inducing.nn.layers import Layer, Parts
from inducing.nn.network import Network


def assemble(
    layers: list[nn.Module],
    input_shape: int | Shape,
    inducing_points: Tensor | None,
    inducing_targets: Tensor | None,
    num_inducing: int | None,
    learn_inducing_locations: bool,
    generator: Generator | None,
) -> Network:
    """Create a network. Arguments for inducing points are ignored if no layer uses them."""
    uses_inducing = bool(Parts(layers).inducing_users())
    last = layers[-1]
    network = Network(
        layers,
        inducing_points if uses_inducing else None,
        inducing_targets if isinstance(last, Layer) and last.needs_inducing else None,
        num_inducing if uses_inducing else None,
        input_shape,
        learn_inducing_locations,
        generator,
    )
    # the same dtype and device for every posterior
    return network if inducing_points is None else network.to(inducing_points.device, inducing_points.dtype)
