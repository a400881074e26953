"""Fully connected networks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Unpack

from torch import nn

from inducing.checks import check_whole
from inducing.nn.layers import Linear
from inducing.nn.models.assembly import InducingArguments, assemble, takes_inducing
from inducing.nn.network import Network
from inducing.nn.posteriors import LocalInducing, PosteriorOfLayers, posteriors_for_layers
from inducing.nn.priors import Prior


@takes_inducing
def mlp(
    in_features: int,
    out_features: int,
    hidden: Sequence[int] = (50, 50),
    *,
    prior: Prior | str = "neal",
    posterior: PosteriorOfLayers = "global",
    activation: Callable[[], nn.Module] = nn.ReLU,
    bias: bool = True,
    **inducing: Unpack[InducingArguments],
) -> Network:
    """A fully connected network with any posterior.

    Global layers share ``inducing_points``. A local layer learns the same number of inducing points of its own. A factorised
    network has none and ignores the arguments for inducing points.

    Arguments:
        in_features: Number of inputs.
        out_features: Number of outputs.
        hidden: Widths of the hidden layers.
        prior: A prior or its name.
        posterior: A posterior or its name for all layers; "A->B", with B for the last layer only; or a list, one for
            each layer.
        activation: Creates the module between two layers, e.g. `torch.nn.Tanh`.
        bias: Whether the layers have biases.
        inducing_points: Initial inducing points, e.g. ``x[:100]``.
        inducing_targets: Targets of these rows.
        num_inducing: Number of inducing points to draw from N(0, 1), if none are given.
        learn_inducing_locations: Whether the inducing points are parameters.
        generator: Source of random initial values. Default: torch's global generator.

    Example:
        >>> import inducing
        >>> posterior = "factorised->global"
        >>> network = inducing.models.mlp(3, 1, posterior=posterior, num_inducing=20)
    """
    if not callable(activation):
        raise TypeError(f"activation must be a module class, e.g. activation=torch.nn.Tanh, got {activation!r}")
    widths = [in_features, *check_hidden(hidden), out_features]
    posteriors = posteriors_for_layers(posterior, len(widths) - 1)
    points, num_inducing = inducing.get("inducing_points"), inducing.get("num_inducing")
    if num_inducing is None and points is not None:
        num_inducing = len(points)
    layers: list[nn.Module] = []
    for fan_in, fan_out, each in zip(widths, widths[1:], posteriors, strict=False):
        if isinstance(each, LocalInducing) and each.num_inducing is None:
            each = dataclasses.replace(each, num_inducing=num_inducing)
        layers += [Linear(fan_in, fan_out, bias, prior, each), activation()]
    return assemble(layers[:-1], in_features, inducing)


def check_hidden(hidden: object) -> list[int]:
    """Check that ``hidden`` lists the widths of the hidden layers."""
    if not isinstance(hidden, Iterable):
        example = f"hidden=[{hidden}, {hidden}]"
        raise TypeError(f"hidden must list the widths of the hidden layers, e.g. {example}, got {hidden!r}")
    return [check_whole("each width in hidden", width) for width in hidden]
