"""Noise whose scale depends on the inputs: the network has a second output g for each target.

    s = sqrt(variance) * r,    r - 1/r = g,    so log r = asinh(g / 2)

For small g this is r^2 = exp(g), and -g gives 1/r. For large g the scale grows linearly with g. Exponential growth would be
a problem away from the data: g is linear in the features of the last layer, so a few draws of the posterior would dominate
the mean of the noise variance.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from inducing.linalg.noise import standard_normal
from inducing.nn.likelihoods.base import Likelihood, Support
from inducing.nn.likelihoods.gaussian import gain_of_tight_conditional
from inducing.nn.likelihoods.parameters import (
    FIRST_VARIANCE,
    LOG_VARIANCE_SCALE,
    Positive,
    check_number,
    register_log,
)
from inducing.nn.likelihoods.targets import check_like, check_real, check_shape, fill_missing, sum_observed

# Gauss-Hermite nodes and weights for expectations over a standard normal variable
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
_QUADRATURE = (_NODES.tolist(), (_WEIGHTS / _WEIGHTS.sum()).tolist())


class Heteroscedastic(Likelihood):
    """Base class of likelihoods with outputs [f | g]: y = f + scale(g) * t, with symmetric standard noise t."""

    support: ClassVar[Support] = "real"
    scaled_log_variance: Tensor

    def __init__(self, variance: Positive, learn_variance: bool) -> None:
        super().__init__()
        register_log(self, "scaled_log_variance", "variance", variance, learn_variance)

    @property
    def base_variance(self) -> Float[Tensor, ""] | Float[Tensor, " O"]:
        """The squared scale for g = 0, a scalar or one for each target."""
        return self._log_variance().exp()

    def log_noise_variance(self, deviation: Float[Tensor, "*rows O"]) -> Float[Tensor, "*rows O"]:
        """Return the logarithm of the squared scale, for outputs g."""
        return self._log_variance() + 2 * torch.asinh(deviation / 2)

    def check_targets(self, y: object, output_shape: tuple[int, ...]) -> Tensor:
        shape = _target_shape(output_shape, type(self).__name__)
        number = math.prod(shape)
        y = check_shape(y, shape, f", since the {2 * number} outputs are {number} means and {number} noise scales")
        check_number(self.scaled_log_variance, "noise variances", y)
        return check_real(y)

    def mean(self, outputs: Float[Tensor, "S B *outputs"]) -> Float[Tensor, "S B *O"]:
        return self._split(outputs)[0]

    def sample(
        self, outputs: Float[Tensor, "S B *outputs"], generator: Generator | None = None
    ) -> Float[Tensor, "S B *O"]:
        mean, log_square = self._split(outputs)
        return mean + (log_square / 2).exp() * self._sample_noise(mean, generator)

    def log_cdf(self, outputs: Float[Tensor, "S B *outputs"], y: Float[Tensor, "B *O"]) -> Float[Tensor, "S B *O"]:
        mean, log_square = self._split(outputs)
        return self._noise_log_cdf((y - mean) * (-log_square / 2).exp())

    def log_survival(self, outputs: Float[Tensor, "S B *outputs"], y: Float[Tensor, "B *O"]) -> Float[Tensor, "S B *O"]:
        mean, log_square = self._split(outputs)
        return self._noise_log_cdf((mean - y) * (-log_square / 2).exp())

    def icdf(self, outputs: Float[Tensor, "S B *outputs"], probability: float) -> Float[Tensor, "S B *O"]:
        mean, log_square = self._split(outputs)
        return mean + (log_square / 2).exp() * self._noise_quantile(probability).to(mean.dtype)

    @abstractmethod
    def _sample_noise(self, like: Tensor, generator: Generator | None) -> Tensor:
        """Sample standard noise with the shape of a tensor."""

    @abstractmethod
    def _noise_log_cdf(self, t: Tensor) -> Tensor:
        """Return the logarithm of the distribution function of the standard noise."""

    @abstractmethod
    def _noise_quantile(self, probability: float) -> Tensor:
        """Return a quantile of the standard noise, in float64."""

    def extra_repr(self) -> str:
        return f"variance={self.base_variance.tolist()}, learn_variance={self.scaled_log_variance.requires_grad}"

    def _log_variance(self) -> Tensor:
        return LOG_VARIANCE_SCALE * self.scaled_log_variance

    def _split(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the means and the logarithms of the squared scales."""
        _target_shape(tuple(outputs.shape[2:]), type(self).__name__)
        mean, deviation = outputs.chunk(2, -1)
        return mean, self.log_noise_variance(deviation)


class HeteroscedasticGaussian(Heteroscedastic):
    """y = f + noise, noise ~ N(0, variance * r^2), r - 1/r = g, for outputs [f | g]: first the means, then the noise.

    The network has two outputs for each target. For small g the noise variance is variance * exp(g). For large g the
    standard deviation grows linearly with g. The outputs of a last layer have about unit scale, so the noise variance is
    within a few powers of e of ``variance``.

    Arguments:
        variance: Initial noise variance for g = 0, one number for all targets or one for each. Default: the paper's,
            exp(-3).
        learn_variance: Whether the noise variance for g = 0 is learned.

    Example:
        >>> import inducing, torch
        >>> network = inducing.models.mlp(3, 2, num_inducing=10)
        >>> likelihood = inducing.HeteroscedasticGaussian()
        >>> prediction = inducing.predict(network, likelihood, torch.randn(5, 3))
        >>> prediction.mean.shape
        torch.Size([5, 1])
    """

    def __init__(self, variance: Positive = FIRST_VARIANCE, learn_variance: bool = True) -> None:
        super().__init__(variance, learn_variance)

    def log_prob(self, outputs: Float[Tensor, "S B *outputs"], y: Float[Tensor, "B *O"]) -> Float[Tensor, "S B"]:
        mean, log_variance = self._split(outputs)
        check_like(y, mean.shape)
        # log N(y; f, v) = -(y - f)^2 / 2v - log(2 pi v) / 2
        square = (fill_missing(y) - mean).square()
        density = square * (-log_variance).exp() + log_variance + math.log(2 * math.pi)
        return -0.5 * sum_observed(density, y)

    def expected_log_prob(
        self, mean: Float[Tensor, "S B *outputs"], variance: Float[Tensor, "..."], y: Float[Tensor, "B *O"]
    ) -> Float[Tensor, "S B"]:
        mean_f, mean_g = mean.chunk(2, -1)
        variance_f, variance_g = variance.expand(mean.shape).chunk(2, -1)
        check_like(y, mean_f.shape)
        # E (y - f)^2 / v + E log v with E (y - f)^2 = (y - m_f)^2 + v_f; expectations over g by quadrature
        square = (fill_missing(y) - mean_f).square() + variance_f
        log_variance, weights = self._quadrature(mean_g, variance_g)
        density = square * ((-log_variance).exp() @ weights) + log_variance @ weights
        return -0.5 * sum_observed(density + math.log(2 * math.pi), y)

    def conditional_gain(
        self,
        mean: Float[Tensor, "S B *outputs"],
        variance: Float[Tensor, "..."],
        conditional_variance: Float[Tensor, "#S B 1"],
    ) -> Float[Tensor, "S B"]:
        # only the conditional of f is tightened. Given u, f and g are independent, so its noise precision is E[1 / v(g)]
        log_variance, weights = self._quadrature(mean.chunk(2, -1)[1], variance.expand(mean.shape).chunk(2, -1)[1])
        ratio = conditional_variance * ((-log_variance).exp() @ weights)
        return gain_of_tight_conditional(ratio).flatten(2).sum(-1)

    def variance(self, outputs: Float[Tensor, "S B *outputs"]) -> Float[Tensor, "S B *O"]:
        return self._split(outputs)[1].exp()

    def _quadrature(
        self, mean: Float[Tensor, "S B *O"], variance: Float[Tensor, "S B *O"]
    ) -> tuple[Float[Tensor, "S B *O Q"], Float[Tensor, " Q"]]:
        """Return log v(g) at the points of a quadrature over g ~ N(mean, variance), and the weights of the points."""
        points, weights = (mean.new_tensor(each) for each in _QUADRATURE)
        # a zero gradient at a variance of zero, where the gradient of the root is infinite
        spread = variance.clamp_min(1e-12).sqrt()
        deviation = mean[..., None] + spread[..., None] * points
        return self._log_variance()[..., None] + 2 * torch.asinh(deviation / 2), weights

    def _sample_noise(self, like: Tensor, generator: Generator | None) -> Tensor:
        return standard_normal(tuple(like.shape), like, generator)

    def _noise_log_cdf(self, t: Tensor) -> Tensor:
        return torch.special.log_ndtr(t)

    def _noise_quantile(self, probability: float) -> Tensor:
        return torch.special.ndtri(torch.tensor(probability, dtype=torch.float64))


def outputs_of(mean: Float[Tensor, "*rows O"], variance: Float[Tensor, "*rows O"]) -> Float[Tensor, "*rows outputs"]:
    """Return the outputs [f | g] for these means and noise variances, with ``variance`` of the likelihood 1: g = r - 1/r."""
    return torch.cat([mean, variance.sqrt() - variance.rsqrt()], -1)


def _target_shape(output_shape: tuple[int, ...], name: str) -> tuple[int, ...]:
    if not output_shape or output_shape[-1] % 2:
        raise ValueError(
            f"{name} needs two outputs for each target, mean and noise, but the network has outputs of shape "
            f"{output_shape}. Use 2 * targets outputs, e.g. inducing.models.mlp(inputs, 2)"
        )
    return (*output_shape[:-1], output_shape[-1] // 2)
