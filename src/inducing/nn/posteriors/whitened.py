"""DSVI: independent Gaussian posteriors over the whitened values of each Gaussian process layer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from inducing.linalg.noise import standard_normal
from inducing.nn.context import DrawContext
from inducing.nn.parameterisation import LOG_PRECISION_SCALE, lower_triangular
from inducing.nn.posteriors.base import (
    ValueContext,
    ValueModule,
    ValuePosterior,
    ValuePrior,
    ValueSample,
    check_number,
    check_scale,
)


@dataclass(frozen=True)
class DSVI(ValuePosterior):
    """Doubly stochastic variational inference for Gaussian processes (Salimbeni & Deisenroth, 2017).

    Each layer has its own inducing inputs and a whitened q(u) = N(m, S). The KL is computed in closed form. There is no
    correlation between layers. In training the values u are integrated out of the marginal of each row.

    Arguments:
        num_inducing: Number of the layer's inducing inputs. Default: the number of the network's inducing points, else 100.
        initial_scale: Initial standard deviation of the whitened values. Default: 1 in the last layer and 1e-5 elsewhere, so
            that hidden layers start close to their mean functions.
    """

    num_inducing: int | None = None
    initial_scale: float | None = None

    def __post_init__(self) -> None:
        check_scale(self.initial_scale)
        check_number(self.num_inducing)

    def build_values(self, context: ValueContext) -> WhitenedValues:
        scale = context.initial_scale(self.initial_scale)
        return WhitenedValues(context.initial_inputs(self.num_inducing), context.out_features, scale)


class WhitenedValues(ValueModule):
    """a ~ N(whitened_mean, TT') for each output.

    Arguments:
        inducing_inputs: Initial inducing inputs of the layer.
        outputs: Number of outputs.
        scale: The initial T is this multiple of the identity.
    """

    def __init__(self, inducing_inputs: Float[Tensor, "M D"], outputs: int, scale: float) -> None:
        super().__init__()
        rows = len(inducing_inputs)
        self.inducing_inputs = nn.Parameter(inducing_inputs)
        self.whitened_mean = nn.Parameter(torch.zeros(rows, outputs))
        self.scaled_log_scale = nn.Parameter(torch.full((outputs, rows), math.log(scale) / LOG_PRECISION_SCALE))
        self.root_lower = nn.Parameter(torch.zeros(outputs, rows, rows))

    def moments(self) -> tuple[Float[Tensor, "M O"], Float[Tensor, "O M M"]]:
        """Return the mean of a, and the root T of its covariance for each output."""
        scale = (LOG_PRECISION_SCALE * self.scaled_log_scale.double()).exp()
        # a copy, since a draw must not change with the parameters
        return self.whitened_mean.to(torch.float64, copy=True), lower_triangular(scale, self.root_lower.double())

    def closed_form_kl(self) -> Float[Tensor, ""]:
        """Return KL = (|mean|^2 + |T|^2 - log|TT'| - count) / 2."""
        mean, root = self.moments()
        log_volume = 2 * LOG_PRECISION_SCALE * self.scaled_log_scale.double().sum()
        return (mean.square().sum() + root.square().sum() - log_volume - mean.numel()) / 2

    def forward(self, prior: ValuePrior, context: DrawContext, integrate: bool = False) -> ValueSample:
        centre, spread = self.moments()
        noise = standard_normal((context.num_samples, *centre.shape), centre, context.generator)
        kl = self.closed_form_kl().expand(context.num_samples)
        sample = ValueSample(centre + multiply_by_output(spread, noise), kl)
        return sample._replace(mean=centre[None], spread=spread[None]) if integrate else sample


def multiply_by_output(root: Float[Tensor, "O M M"], noise: Float[Tensor, "S M O"]) -> Float[Tensor, "S M O"]:
    """Return T z, with one T for each output."""
    return (root @ noise.permute(2, 1, 0)).permute(2, 1, 0)
