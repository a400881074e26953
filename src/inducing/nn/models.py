"""Ready-made networks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from torch import Tensor, nn

from inducing.nn.fans import Prior
from inducing.nn.gp import GPLayer, MeanKind
from inducing.nn.kernels import Kernel
from inducing.nn.layers import Linear
from inducing.nn.network import Network
from inducing.nn.posteriors import LocalInducing, Posterior, as_posterior, posteriors_for_layers


def mlp(
    in_features: int,
    out_features: int,
    hidden: Sequence[int] = (50, 50),
    *,
    prior: Prior | str = "neal",
    posterior: Posterior | str | Sequence[Posterior | str] = "global",
    activation: Callable[[], nn.Module] = nn.ReLU,
    bias: bool = True,
    inducing_points: Tensor | None = None,
    inducing_targets: Tensor | None = None,
    num_inducing: int | None = None,
    learn_inducing_locations: bool = True,
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
    posteriors = _posteriors(posterior, len(widths) - 1)
    if num_inducing is None and inducing_points is not None:
        num_inducing = len(inducing_points)
    layers: list[nn.Module] = []
    for fan_in, fan_out, each in zip(widths, widths[1:], posteriors, strict=False):
        if isinstance(each, LocalInducing) and each.num_inducing is None:
            each = dataclasses.replace(each, num_inducing=num_inducing)
        layers += [Linear(fan_in, fan_out, bias, prior, each), activation()]
    needs_inducing = any(each.needs_inducing for each in posteriors)
    network = Network(
        layers[:-1],
        inducing_points if needs_inducing else None,
        inducing_targets if posteriors[-1].needs_inducing else None,
        num_inducing if needs_inducing else None,
        in_features,
        learn_inducing_locations,
    )
    # the same dtype and device whatever the posterior
    return network if inducing_points is None else network.to(inducing_points.device, inducing_points.dtype)


def deep_gp(
    in_features: int,
    out_features: int,
    num_layers: int = 2,
    *,
    width: int | None = None,
    kernel: Kernel | str = "squared-exponential",
    mean: MeanKind = "identity",
    posterior: Posterior | str | Sequence[Posterior | str] = "global",
    inducing_points: Tensor | None = None,
    inducing_targets: Tensor | None = None,
    num_inducing: int | None = None,
    learn_inducing_locations: bool = True,
) -> Network:
    """A deep Gaussian process, the same call for every posterior.

    The last layer has a mean function of zero.

    Arguments:
        in_features: Number of inputs.
        out_features: Number of outputs.
        num_layers: Number of Gaussian process layers, the last among them.
        width: Outputs of the hidden layers; None stands for the paper's, min(in_features, 30).
        kernel: A kernel or its name.
        mean: The mean function of the hidden layers: "identity" (Salimbeni & Deisenroth, 2017), or "zero".
        posterior: A posterior or its name for all layers: "global", "local", "dsvi", "coupled"; "A->B", with B for the
            last layer only; or a list, one for each layer.
        inducing_points: First values of the inducing points, e.g. ``x[:100]``. Layers with inducing inputs of their own
            begin there too.
        inducing_targets: The targets of those rows.
        num_inducing: Number of inducing points, drawn from N(0, 1), where none are given.
        learn_inducing_locations: Whether the inducing points are parameters.

    Example:
        >>> import torch, inducing
        >>> x, y = torch.randn(200, 3), torch.randn(200, 1)
        >>> network = inducing.models.deep_gp(3, 1, num_layers=3, inducing_points=x[:50], inducing_targets=y[:50])
    """
    if not isinstance(num_layers, int):
        raise TypeError(f"num_layers must be a whole number, got {num_layers!r}")
    if num_layers < 1:
        raise ValueError(f"num_layers must be at least 1, got {num_layers}")
    hidden = min(in_features, 30) if width is None else width
    widths = [in_features] + [hidden] * (num_layers - 1) + [out_features]
    posteriors = _posteriors(posterior, num_layers)
    layers = [
        GPLayer(fan_in, fan_out, kernel, "zero" if index == num_layers - 1 else mean, each)
        for index, (fan_in, fan_out, each) in enumerate(zip(widths, widths[1:], posteriors, strict=False))
    ]
    return Network(
        layers,
        inducing_points,
        inducing_targets if layers[-1].needs_inducing else None,
        num_inducing,
        in_features,
        learn_inducing_locations,
    )


def _posteriors(posterior: Posterior | str | Sequence[Posterior | str], num_layers: int) -> list[Posterior]:
    if isinstance(posterior, Posterior | str | type):
        return posteriors_for_layers(posterior, num_layers)
    if len(posterior) != num_layers:
        raise ValueError(f"{len(posterior)} posteriors were given for {num_layers} layers")
    return [as_posterior(each) for each in posterior]
