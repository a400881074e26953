"""Deep Gaussian processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from inducing.checks import check_whole
from inducing.nn.kernels import Kernel
from inducing.nn.layers.gp import ConditionalKind, GPLayer, MeanKind
from inducing.nn.models.assembly import InducingArguments, takes_inducing
from inducing.nn.network import Network
from inducing.nn.posteriors import PosteriorOfLayers, posteriors_for_layers


@takes_inducing
def deep_gp(
    in_features: int,
    out_features: int,
    num_layers: int = 2,
    *,
    width: int | None = None,
    kernel: Kernel | str | Sequence[Kernel | str] = "squared-exponential",
    mean: MeanKind = "identity",
    posterior: PosteriorOfLayers = "global",
    conditional: ConditionalKind = "prior",
    **inducing: Unpack[InducingArguments],
) -> Network:
    """A deep Gaussian process with any posterior.

    The mean function of the last layer is zero. The arguments for inducing points are those of `inducing.models.mlp`. The
    points are also the initial inducing inputs of layers that have their own.

    Arguments:
        in_features: Number of inputs.
        out_features: Number of outputs.
        num_layers: Number of Gaussian process layers, including the last.
        width: Number of outputs of the hidden layers. Default: the paper's choice, min(in_features, 30).
        kernel: A kernel or its name; or a list, one for each layer.
        mean: The mean function of the hidden layers: "identity" (Salimbeni & Deisenroth, 2017), or "zero".
        posterior: A posterior or its name for all layers: "global", "local", "dsvi", "coupled"; "A->B", with B for the
            last layer only; or a list, one for each layer.
        conditional: The conditional of the last layer in the bound: "prior", or "tight" for Gaussian noise (`GPLayer`).

    Example:
        >>> import inducing, torch
        >>> x, y = torch.randn(200, 3), torch.randn(200, 1)
        >>> points = {"inducing_points": x[:50], "inducing_targets": y[:50]}
        >>> network = inducing.models.deep_gp(3, 1, num_layers=3, **points)
    """
    num_layers = check_whole("num_layers", num_layers)
    hidden = min(in_features, 30) if width is None else width
    widths = [in_features] + [hidden] * (num_layers - 1) + [out_features]
    posteriors = posteriors_for_layers(posterior, num_layers)
    if isinstance(kernel, str) or not isinstance(kernel, Sequence):
        kernel = [kernel] * num_layers
    if len(kernel) != num_layers:
        raise ValueError(f"got {len(kernel)} kernels for {num_layers} layers. Pass one kernel, or one for each layer")
    last = num_layers - 1
    layers = [
        GPLayer(
            widths[index],
            widths[index + 1],
            kernel[index],
            "zero" if index == last else mean,
            posteriors[index],
            conditional=conditional if index == last else "prior",
        )
        for index in range(num_layers)
    ]
    if not layers[-1].needs_inducing:
        inducing |= {"inducing_targets": None}
    return Network(layers, input_shape=in_features, **inducing)
