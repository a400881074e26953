"""What all models share: which layer has which posterior, and what becomes of the inducing points."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Generator, Tensor, nn

from inducing.nn.layers import Layer, Shape
from inducing.nn.network import Network
from inducing.nn.posteriors import Posterior, as_posterior, posteriors_for_layers
from inducing.nn.structure import inducing_users

# one posterior for all layers, "A->B" with B for the last, or a list with one for each
Mixture = Posterior | str | Sequence[Posterior | str]


def posteriors_of(posterior: Mixture, num_layers: int) -> list[Posterior]:
    """The posterior of each layer."""
    if isinstance(posterior, Posterior | str | type):
        return posteriors_for_layers(posterior, num_layers)
    if len(posterior) != num_layers:
        raise ValueError(f"{len(posterior)} posteriors were given for {num_layers} layers")
    return [as_posterior(each) for each in posterior]


def assemble(
    layers: list[nn.Module],
    input_shape: int | Shape,
    inducing_points: Tensor | None,
    inducing_targets: Tensor | None,
    num_inducing: int | None,
    learn_inducing_locations: bool,
    generator: Generator | None,
) -> Network:
    """Put layers together; what is said about inducing points is used where something depends on them."""
    uses_inducing = bool(inducing_users(nn.ModuleList(layers)))
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
    # the same dtype and device whatever the posterior
    return network if inducing_points is None else network.to(inducing_points.device, inducing_points.dtype)
