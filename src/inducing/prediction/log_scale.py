"""Targets whose logarithm was modelled: predictions on the original, positive scale.

    log y = a + b z,   z ~ p(z | f):   p(y | f) = p(z | f) / (b y),   quantiles are exp(a + b q_z)

With z ~ N(m, v), y is log-normal: E[y] = exp(a + b m + b^2 v / 2), V[y] = E[y]^2 (exp(b^2 v) - 1).
"""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from inducing.nn.likelihoods import Gaussian, HeteroscedasticGaussian, Likelihood
from inducing.nn.likelihoods.base import Support


class LogScale(Likelihood):
    """The likelihood of targets, some of which are on a log scale in the network. It is made for predictions only.

    Arguments:
        likelihood: The likelihood of the standardised targets of the network. Its noise is Gaussian: for a Student-t
            distribution the mean of exp(z) is infinite.
        location: a of each target.
        scale: b of each target.
        is_log: Whether each target is on a log scale. The others are a + b z.

    Example:
        >>> import inducing, torch
        >>> a, b, yes = torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([True])
        >>> likelihood = LogScale(inducing.Gaussian(0.5), a, b, yes)
        >>> likelihood.mean(torch.zeros(1, 1, 1)).item()
        7.389056205749512
    """

    support: ClassVar[Support] = "real"

    def __init__(
        self,
        likelihood: Likelihood,
        location: Float[Tensor, " O"],
        scale: Float[Tensor, " O"],
        is_log: Bool[Tensor, " O"],
    ) -> None:
        super().__init__()
        if not isinstance(likelihood, Gaussian | HeteroscedasticGaussian):
            found = type(likelihood).__name__
            raise ValueError(f"a log scale needs Gaussian noise, not {found}, for which the mean of exp(z) is infinite")
        self.likelihood, self.location, self.scale, self.is_log = likelihood, location, scale, is_log

    def check_targets(self, y: object, output_shape: tuple[int, ...]) -> Tensor:
        return self.likelihood.check_targets(y, output_shape)

    def log_prob(self, outputs: Float[Tensor, "S B outputs"], y: Float[Tensor, "B O"]) -> Float[Tensor, "S B"]:
        # dz / dy = 1 / (b y), or 1 / b
        slope = -self.scale.log() - torch.where(self.is_log, _log(y), 0.0)
        slope = torch.where(y.isnan(), 0.0, slope)
        density = self.likelihood.log_prob(outputs, self._standardise(y)) + slope.sum(-1)
        return torch.where((self.is_log & (y <= 0)).any(-1), -torch.inf, density)

    def mean(self, outputs: Float[Tensor, "S B outputs"]) -> Float[Tensor, "S B O"]:
        linear, variance = self._moments(outputs)
        return torch.where(self.is_log, (linear + variance / 2).exp(), linear)

    def variance(self, outputs: Float[Tensor, "S B outputs"]) -> Float[Tensor, "S B O"]:
        _, variance = self._moments(outputs)
        return torch.where(self.is_log, self.mean(outputs).square() * variance.expm1(), variance)

    def sample(
        self, outputs: Float[Tensor, "S B outputs"], generator: Generator | None = None
    ) -> Float[Tensor, "S B O"]:
        return self.restore(self.likelihood.sample(outputs, generator))

    def log_cdf(self, outputs: Float[Tensor, "S B outputs"], y: Float[Tensor, "B O"]) -> Float[Tensor, "S B O"]:
        return self.likelihood.log_cdf(outputs, self._standardise(y))

    def log_survival(self, outputs: Float[Tensor, "S B outputs"], y: Float[Tensor, "B O"]) -> Float[Tensor, "S B O"]:
        return self.likelihood.log_survival(outputs, self._standardise(y))

    def icdf(self, outputs: Float[Tensor, "S B outputs"], probability: float) -> Float[Tensor, "S B O"]:
        return self.restore(self.likelihood.icdf(outputs, probability))

    def _moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of a + b z."""
        return self.location + self.scale * self.likelihood.mean(outputs), self.scale**2 * self.likelihood.variance(
            outputs
        )

    def _standardise(self, y: Tensor) -> Tensor:
        return (torch.where(self.is_log, _log(y), y) - self.location) / self.scale

    def restore(self, z: Float[Tensor, "*rows O"]) -> Float[Tensor, "*rows O"]:
        """Return the targets from standardised targets of the network."""
        linear = self.location + self.scale * z
        return torch.where(self.is_log, linear.exp(), linear)


def _log(y: Tensor) -> Tensor:
    """Return the logarithm, finite for numbers that are not positive."""
    return y.clamp_min(torch.finfo(y.dtype).tiny).log()
