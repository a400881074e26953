"""Noise with heavy tails, for targets with outliers."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from scipy import special
from torch import Generator, Tensor

from inducing.linalg.noise import standard_gamma, standard_normal
from inducing.nn.likelihoods.base import Likelihood, Support
from inducing.nn.likelihoods.parameters import (
    FIRST_VARIANCE,
    LOG_VARIANCE_SCALE,
    Positive,
    check_number,
    register_log,
)
from inducing.nn.likelihoods.special import from_scipy, soft_limit, stirling_remainder
from inducing.nn.likelihoods.targets import check_like, check_real, check_shape

FIRST_SCALE = math.sqrt(FIRST_VARIANCE)
# at two and fewer the variance is infinite
LEAST_DEGREES_OF_FREEDOM = 2.0


class StudentT(Likelihood):
    """y = f + scale * t, t ~ Student's t.

    The degrees of freedom are 2 + exp(parameter), so that they stay above 2 and the variance exists. Where they grow large
    the noise is Gaussian with variance scale^2; log(degrees of freedom - 2) goes through `soft_limit`.

    Arguments:
        scale: First value of the scale; one number for all outputs, or one for each.
        degrees_of_freedom: Their first value, above 2; one number for all outputs, or one for each.
        learn_scale: Whether the scale is learned.
        learn_degrees_of_freedom: Whether the degrees of freedom are learned.

    Example:
        >>> import inducing
        >>> likelihood = inducing.StudentT(degrees_of_freedom=3.0, learn_degrees_of_freedom=False)
    """

    support: ClassVar[Support] = "real"
    scaled_log_scale: Tensor
    scaled_log_excess: Tensor

    def __init__(
        self,
        scale: Positive = FIRST_SCALE,
        degrees_of_freedom: Positive = 4.0,
        learn_scale: bool = True,
        learn_degrees_of_freedom: bool = True,
    ) -> None:
        super().__init__()
        register_log(self, "scaled_log_scale", "scale", scale, learn_scale, limited=False)
        register_log(
            self,
            "scaled_log_excess",
            "degrees_of_freedom",
            degrees_of_freedom,
            learn_degrees_of_freedom,
            above=LEAST_DEGREES_OF_FREEDOM,
        )

    @property
    def scale(self) -> Float[Tensor, ""] | Float[Tensor, " O"]:
        """The scale of the noise, a scalar or one for each output."""
        return (LOG_VARIANCE_SCALE * self.scaled_log_scale).exp()

    @property
    def degrees_of_freedom(self) -> Float[Tensor, ""] | Float[Tensor, " O"]:
        """The degrees of freedom, a scalar or one for each output."""
        return LEAST_DEGREES_OF_FREEDOM + self._excess()

    def check_targets(self, y: object, output_shape: tuple[int, ...]) -> Tensor:
        y = check_shape(y, output_shape)
        check_number(self.scaled_log_scale, "scales", y)
        check_number(self.scaled_log_excess, "degrees of freedom", y)
        return check_real(y)

    def log_prob(self, outputs: Float[Tensor, "S B *O"], y: Float[Tensor, "B *O"]) -> Float[Tensor, "S B"]:
        check_like(y, outputs.shape)
        # log p = log Gamma((n + 1) / 2) - log Gamma(n / 2) - log(pi n) / 2 - log s - (n + 1) / 2 log(1 + t^2 / n), with the
        # large terms of the Gamma functions cancelled by hand
        freedom = self.degrees_of_freedom
        constant = (
            stirling_remainder((freedom + 1) / 2)
            - stirling_remainder(freedom / 2)
            + (freedom - 1) / 2 * freedom.reciprocal().log1p()
            - 0.5 * (1 + math.log(2 * math.pi))
            - LOG_VARIANCE_SCALE * self.scaled_log_scale
        )
        square = ((y - outputs) / self.scale).square()
        return (constant - (freedom + 1) / 2 * (square / freedom).log1p()).flatten(2).sum(-1)

    def expected_log_prob(self, mean: Tensor, variance: Tensor, y: Tensor) -> None:
        return None

    def mean(self, outputs: Float[Tensor, "S B *O"]) -> Float[Tensor, "S B *O"]:
        return outputs

    def variance(self, outputs: Float[Tensor, "S B *O"]) -> Float[Tensor, "S B *O"]:
        # s^2 n / (n - 2)
        return (self.scale.square() * (1 + LEAST_DEGREES_OF_FREEDOM / self._excess())).expand(outputs.shape)

    def sample(self, outputs: Float[Tensor, "S B *O"], generator: Generator | None = None) -> Float[Tensor, "S B *O"]:
        # t = z / sqrt(chi^2_n / n)
        half = (self.degrees_of_freedom / 2).to(outputs.dtype).expand(outputs.shape)
        noise = standard_normal(tuple(outputs.shape), outputs, generator)
        return outputs + self.scale * noise * (half / standard_gamma(half, generator)).sqrt()

    def log_cdf(self, outputs: Float[Tensor, "S B *O"], y: Float[Tensor, "B *O"]) -> Float[Tensor, "S B *O"]:
        return self._log_below((y - outputs) / self.scale)

    def log_survival(self, outputs: Float[Tensor, "S B *O"], y: Float[Tensor, "B *O"]) -> Float[Tensor, "S B *O"]:
        return self._log_below((outputs - y) / self.scale)

    def icdf(self, outputs: Float[Tensor, "S B *O"], probability: float) -> Float[Tensor, "S B *O"]:
        freedom = self.degrees_of_freedom
        # by symmetry, in the lower tail
        lower = torch.tensor(min(probability, 1 - probability), dtype=torch.float64, device=freedom.device)
        level = from_scipy(special.stdtrit, freedom, lower)
        return outputs + self.scale * (level if probability < 0.5 else -level).to(outputs.dtype)

    def extra_repr(self) -> str:
        return (
            f"scale={self.scale.tolist()}, degrees_of_freedom={self.degrees_of_freedom.tolist()}, "
            f"learn_scale={self.scaled_log_scale.requires_grad}, "
            f"learn_degrees_of_freedom={self.scaled_log_excess.requires_grad}"
        )

    def _excess(self) -> Tensor:
        return soft_limit(LOG_VARIANCE_SCALE * self.scaled_log_excess).exp()

    def _log_below(self, t: Tensor) -> Tensor:
        """log P(T <= t), from the smaller tail."""
        tail = from_scipy(special.stdtr, self.degrees_of_freedom, -t.abs())
        return torch.where(t < 0, tail.log(), (-tail).log1p()).to(t.dtype)
