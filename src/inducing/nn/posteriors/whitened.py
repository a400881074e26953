"""DSVI: independent Gaussian posteriors over the whitened values of each Gaussian process layer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from inducing.linalg.density import standard_log_density
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
        root = lower_triangular((LOG_PRECISION_SCALE * self.scaled_log_scale).exp(), self.root_lower)
        # a copy, since a draw must not change with the parameters
        return self.whitened_mean.clone(), root

    def closed_form_kl(self) -> Float[Tensor, ""]:
        """Return KL = (|mean|^2 + |T|^2 - log|TT'| - count) / 2."""
        return self._closed_form_kl(*self.moments())

    def forward(self, prior: ValuePrior, context: DrawContext, integrate: bool = False) -> ValueSample:
        mean, root = self.moments()
        noise = standard_normal((context.num_samples, *mean.shape), prior.root, context.generator)
        wide = mean.double()
        whitened = wide + multiply_by_output(root, noise.to(root.dtype))
        sample = ValueSample(whitened, self._closed_form_kl(mean, root).expand(context.num_samples))
        return sample._replace(mean=wide[None], spread=root[None]) if integrate else sample

    def log_density(
        self, whitened: Float[Tensor, "S M O"], prior: ValuePrior, context: DrawContext
    ) -> Float[Tensor, " S"]:
        mean, root = (moment.double() for moment in self.moments())
        # z = T^-1 (a - mean)
        noise = solve_by_output(root, whitened - mean)
        return standard_log_density(noise) - LOG_PRECISION_SCALE * self.scaled_log_scale.double().sum()

    def _closed_form_kl(self, mean: Float[Tensor, "M O"], root: Float[Tensor, "O M M"]) -> Float[Tensor, ""]:
        log_volume = 2 * LOG_PRECISION_SCALE * self.scaled_log_scale.sum(dtype=torch.float64)
        return (_SquaredNorm.apply(mean) + _SquaredNorm.apply(root) - log_volume - mean.numel()) / 2


class _SquaredNorm(torch.autograd.Function):
    """|v|^2, summed over rows in float64, in one pass over v and one pass backward."""

    @staticmethod
    def forward(ctx: Any, values: Float[Tensor, "*rows M"]) -> Float[Tensor, ""]:
        ctx.save_for_backward(values)
        return torch.linalg.vector_norm(values, dim=-1).double().square_().sum()

    @staticmethod
    def backward(ctx: Any, slope: Float[Tensor, ""]) -> Float[Tensor, "*rows M"]:
        (values,) = ctx.saved_tensors
        return (2 * slope).to(values.dtype) * values


def multiply_by_output(root: Float[Tensor, "O M M"], noise: Float[Tensor, "S M O"]) -> Float[Tensor, "S M O"]:
    """Return T z, with one T for each output."""
    return (root @ noise.permute(2, 1, 0)).permute(2, 1, 0)


def solve_by_output(root: Float[Tensor, "O M M"], values: Float[Tensor, "S M O"]) -> Float[Tensor, "S M O"]:
    """Return T^-1 a, with one T for each output."""
    return torch.linalg.solve_triangular(root, values.permute(2, 1, 0), upper=False).permute(2, 1, 0)
