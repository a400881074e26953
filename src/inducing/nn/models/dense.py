"""Fully connected networks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from torch import Generator, Tensor, nn

from inducing.nn.fans import Prior
from inducing.nn.layers import Linear
from inducing.nn.models.assembly import Mixture, assemble, posteriors_of
from inducing.nn.network import Network
from inducing.nn.posteriors import LocalInducing


def mlp(
    in_features: int,
    out_features: int,
    hidden: Sequence[int] = (50, 50),
    *,
    prior: Prior | str = "neal",
    posterior: Mixture = "global",
    activation: Callable[[], nn.Module] = nn.ReLU,
    bias: bool = True,
    inducing_points: Tensor | None = None,
    inducing_targets: Tensor | None = None,
    num_inducing: int | None = None,
    learn_inducing_locations: bool = True,
    generator: Generator | None = None,
) -> Network:
    """A fully connected network, the same call for every posterior.

    What is said about inducing points is used by those layers that have any: global layers share ``inducing_points``, a
    local layer learns as many of its own, and a factorised network has none.

    Arguments:
        in_features: Number of inputs.
        out_features: Number of outputs.
        hidden: Widths of the hidden layers.
        prior: A prior or its name.
        posterior: A posterior or its name for all layers; "A->B", with B for the last layer only; or a list, one for
            each layer.
        activation: Makes the module between the layers, e.g. `torch.nn.Tanh`.
        bias: Whether the layers have biases.
        inducing_points: First values of the inducing points, e.g. ``x[:100]``.
        inducing_targets: The targets of those rows.
        num_inducing: Number of inducing points, drawn from N(0, 1), where none are given.
        learn_inducing_locations: Whether the inducing points are parameters.
        generator: Source of random initial values; the default is torch's global one.

    Example:
        >>> import inducing
        >>> network = inducing.models.mlp(3, 1, hidden=[50, 50], posterior="factorised->global", num_inducing=20)
    """
    if isinstance(hidden, int):
        raise TypeError(
            f"hidden must list the widths of the hidden layers, e.g. hidden=[{hidden}, {hidden}], got {hidden}"
        )
    if not callable(activation):
        raise TypeError(f"activation must make a module, e.g. activation=torch.nn.Tanh, got {activation!r}")
    widths = [in_features, *hidden, out_features]
    posteriors = posteriors_of(posterior, len(widths) - 1)
    if num_inducing is None and inducing_points is not None:
        num_inducing = len(inducing_points)
    layers: list[nn.Module] = []
    for fan_in, fan_out, each in zip(widths, widths[1:], posteriors, strict=False):
        if isinstance(each, LocalInducing) and each.num_inducing is None:
            each = dataclasses.replace(each, num_inducing=num_inducing)
        layers += [Linear(fan_in, fan_out, bias, prior, each), activation()]
    return assemble(
        layers[:-1], in_features, inducing_points, inducing_targets, num_inducing, learn_inducing_locations, generator
    )
