"""Noise with heavy tails, for targets with outliers: with a constant scale, or with a scale that depends on the inputs."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from inducing.linalg.noise import standard_gamma, standard_normal
from inducing.nn.likelihoods.base import Likelihood, Support
from inducing.nn.likelihoods.heteroscedastic import Heteroscedastic
from inducing.nn.likelihoods.parameters import (
    FIRST_VARIANCE,
    LOG_VARIANCE_SCALE,
    Positive,
    check_number,
    register_log,
)
from inducing.nn.likelihoods.special import from_scipy, soft_limit, stirling_remainder
from inducing.nn.likelihoods.targets import check_like, check_real, check_shape, fill_missing, sum_observed

INITIAL_SCALE = math.sqrt(FIRST_VARIANCE)
# at two and below the variance is infinite
MIN_DEGREES_OF_FREEDOM = 2.0


class _DegreesOfFreedom(nn.Module):
    """Learned degrees of freedom, one for all targets or one for each: 2 + exp(parameter)."""

    scaled_log_excess: Tensor

    @property
    def degrees_of_freedom(self) -> Float[Tensor, ""] | Float[Tensor, " O"]:
        """The degrees of freedom, a scalar or one for each target."""
        return MIN_DEGREES_OF_FREEDOM + self._excess()

    def _register_degrees_of_freedom(self, first: Positive, learn: bool) -> None:
        register_log(self, "scaled_log_excess", "degrees_of_freedom", first, learn, above=MIN_DEGREES_OF_FREEDOM)

    def _excess(self) -> Tensor:
        return soft_limit(LOG_VARIANCE_SCALE * self.scaled_log_excess).exp()


class StudentT(_DegreesOfFreedom, Likelihood):
    """y = f + scale * t, t ~ Student's t.

    The degrees of freedom are 2 + exp(parameter), so that they stay above 2 and the variance is finite. In the limit of
    many degrees of freedom the noise is Gaussian with variance scale^2. `soft_limit` is applied to
    log(degrees of freedom - 2).

    Arguments:
        scale: Initial scale, one number for all outputs or one for each. Default: exp(-1.5).
        degrees_of_freedom: Initial degrees of freedom, above 2; one number for all outputs or one for each.
        learn_scale: Whether the scale is learned.
        learn_degrees_of_freedom: Whether the degrees of freedom are learned.

    Example:
        >>> import inducing
        >>> likelihood = inducing.StudentT(scale=0.1, degrees_of_freedom=3.0)
    """

    support: ClassVar[Support] = "real"
    scaled_log_scale: Tensor

    def __init__(
        self,
        scale: Positive = INITIAL_SCALE,
        degrees_of_freedom: Positive = 4.0,
        learn_scale: bool = True,
        learn_degrees_of_freedom: bool = True,
    ) -> None:
        super().__init__()
        register_log(self, "scaled_log_scale", "scale", scale, learn_scale, limited=False)
        self._register_degrees_of_freedom(degrees_of_freedom, learn_degrees_of_freedom)

    @property
    def scale(self) -> Float[Tensor, ""] | Float[Tensor, " O"]:
        """The scale of the noise, a scalar or one for each output."""
        return (LOG_VARIANCE_SCALE * self.scaled_log_scale).exp()

    def check_targets(self, y: object, output_shape: tuple[int, ...]) -> Tensor:
        y = check_shape(y, output_shape)
        check_number(self.scaled_log_scale, "scales", y)
        check_number(self.scaled_log_excess, "degrees of freedom", y)
        return check_real(y)

    def log_prob(self, outputs: Float[Tensor, "S B *O"], y: Float[Tensor, "B *O"]) -> Float[Tensor, "S B"]:
        check_like(y, outputs.shape)
        log_scale = LOG_VARIANCE_SCALE * self.scaled_log_scale
        density = _log_density((fill_missing(y) - outputs) / self.scale, self.degrees_of_freedom) - log_scale
        return sum_observed(density, y)

    def mean(self, outputs: Float[Tensor, "S B *O"]) -> Float[Tensor, "S B *O"]:
        return outputs

    def variance(self, outputs: Float[Tensor, "S B *O"]) -> Float[Tensor, "S B *O"]:
        # s^2 n / (n - 2)
        return (self.scale.square() * (1 + MIN_DEGREES_OF_FREEDOM / self._excess())).expand(outputs.shape)

    def sample(self, outputs: Float[Tensor, "S B *O"], generator: Generator | None = None) -> Float[Tensor, "S B *O"]:
        return outputs + self.scale * _sample_t(outputs, self.degrees_of_freedom, generator)

    def log_cdf(self, outputs: Float[Tensor, "S B *O"], y: Float[Tensor, "B *O"]) -> Float[Tensor, "S B *O"]:
        return _log_cdf((y - outputs) / self.scale, self.degrees_of_freedom)

    def log_survival(self, outputs: Float[Tensor, "S B *O"], y: Float[Tensor, "B *O"]) -> Float[Tensor, "S B *O"]:
        return _log_cdf((outputs - y) / self.scale, self.degrees_of_freedom)

    def icdf(self, outputs: Float[Tensor, "S B *O"], probability: float) -> Float[Tensor, "S B *O"]:
        return outputs + self.scale * _quantile(probability, self.degrees_of_freedom).to(outputs.dtype)

    def extra_repr(self) -> str:
        return (
            f"scale={self.scale.tolist()}, degrees_of_freedom={self.degrees_of_freedom.tolist()}, "
            f"learn_scale={self.scaled_log_scale.requires_grad}, "
            f"learn_degrees_of_freedom={self.scaled_log_excess.requires_grad}"
        )


class HeteroscedasticStudentT(_DegreesOfFreedom, Heteroscedastic):
    """y = f + sqrt(variance) * r * t, t ~ Student's t, r - 1/r = g, for outputs [f | g] as in `HeteroscedasticGaussian`.

    It is less sensitive to outliers than `HeteroscedasticGaussian`, above all where the noise is small.

    Arguments:
        variance: Initial squared scale for g = 0, one number for all targets or one for each. Default: exp(-3).
        degrees_of_freedom: Initial degrees of freedom, above 2; one number for all targets or one for each.
        learn_variance: Whether the squared scale for g = 0 is learned.
        learn_degrees_of_freedom: Whether the degrees of freedom are learned.

    Example:
        >>> import inducing
        >>> likelihood = inducing.HeteroscedasticStudentT(variance=[0.1, 0.2])
    """

    def __init__(
        self,
        variance: Positive = FIRST_VARIANCE,
        degrees_of_freedom: Positive = 4.0,
        learn_variance: bool = True,
        learn_degrees_of_freedom: bool = True,
    ) -> None:
        super().__init__(variance, learn_variance)
        self._register_degrees_of_freedom(degrees_of_freedom, learn_degrees_of_freedom)

    def check_targets(self, y: object, output_shape: tuple[int, ...]) -> Tensor:
        y = super().check_targets(y, output_shape)
        check_number(self.scaled_log_excess, "degrees of freedom", y)
        return y

    def log_prob(self, outputs: Float[Tensor, "S B *outputs"], y: Float[Tensor, "B *O"]) -> Float[Tensor, "S B"]:
        mean, log_square = self._split(outputs)
        check_like(y, mean.shape)
        standard = (fill_missing(y) - mean) * (-log_square / 2).exp()
        return sum_observed(_log_density(standard, self.degrees_of_freedom) - log_square / 2, y)

    def variance(self, outputs: Float[Tensor, "S B *outputs"]) -> Float[Tensor, "S B *O"]:
        return self._split(outputs)[1].exp() * (1 + MIN_DEGREES_OF_FREEDOM / self._excess())

    def _sample_noise(self, like: Tensor, generator: Generator | None) -> Tensor:
        return _sample_t(like, self.degrees_of_freedom, generator)

    def _noise_log_cdf(self, t: Tensor) -> Tensor:
        return _log_cdf(t, self.degrees_of_freedom)

    def _noise_quantile(self, probability: float) -> Tensor:
        return _quantile(probability, self.degrees_of_freedom)

    def extra_repr(self) -> str:
        return (
            f"{super().extra_repr()}, degrees_of_freedom={self.degrees_of_freedom.tolist()}, "
            f"learn_degrees_of_freedom={self.scaled_log_excess.requires_grad}"
        )


def _log_density(t: Tensor, freedom: Tensor) -> Tensor:
    """log p(t) = log Gamma((n + 1) / 2) - log Gamma(n / 2) - log(pi n) / 2 - (n + 1) / 2 log(1 + t^2 / n)."""
    # the large terms of the Gamma functions are cancelled analytically
    constant = (
        stirling_remainder((freedom + 1) / 2)
        - stirling_remainder(freedom / 2)
        + (freedom - 1) / 2 * freedom.reciprocal().log1p()
        - 0.5 * (1 + math.log(2 * math.pi))
    )
    return constant - (freedom + 1) / 2 * (t.square() / freedom).log1p()


def _sample_t(like: Tensor, freedom: Tensor, generator: Generator | None) -> Tensor:
    """Sample t = z / sqrt(chi^2_n / n)."""
    half = (freedom / 2).to(like.dtype).expand(like.shape)
    noise = standard_normal(tuple(like.shape), like, generator)
    return noise * (half / standard_gamma(half, generator)).sqrt()


def _log_cdf(t: Tensor, freedom: Tensor) -> Tensor:
    """Return log P(T <= t), computed from the smaller tail."""
    # imported here, since scipy is slow to import
    from scipy import special

    tail = from_scipy(special.stdtr, freedom, -t.abs())
    return torch.where(t < 0, tail.log(), (-tail).log1p()).to(t.dtype)


def _quantile(probability: float, freedom: Tensor) -> Tensor:
    """Return t with P(T <= t) = probability, computed from the lower tail by symmetry."""
    from scipy import special

    lower = torch.tensor(min(probability, 1 - probability), dtype=torch.float64, device=freedom.device)
    level = from_scipy(special.stdtrit, freedom, lower)
    return level if probability < 0.5 else -level
