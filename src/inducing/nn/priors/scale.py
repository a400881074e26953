"""An isotropic Gaussian prior with a learned scale."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.distributions import Gamma, kl_divergence

from inducing.linalg.noise import standard_gamma
from inducing.linalg.precision import Precision, ScaledIdentity, ScaleMoments
from inducing.nn.priors.base import Prior, PriorDensity, PriorModule, PriorSample, WeightLayout, missing_variables


@dataclass(frozen=True)
class ScalePrior(Prior):
    """w ~ N(0, I / (fan_in s)), s ~ Gamma(shape, rate), Q(s) = Gamma(shape + alpha, rate + beta).

    alpha and beta are learned and positive. The KL of s is computed in closed form.

    Arguments:
        shape: Shape of the Gamma prior over the scale s of the precision.
        rate: Rate of the Gamma prior.
        initial: Initial alpha and beta. The standard deviation of s under Q(s), relative to its mean, starts at
            ``(shape + initial) ** -0.5``, which is 5 % by default. With 1 it is 58 %, and the noise of s slows down
            training with few samples. The paper's released code starts at exp(6) = 403.
    """

    shape: float = 2.0
    rate: float = 2.0
    initial: float = 400.0

    def __post_init__(self) -> None:
        if not all(0 < value < math.inf for value in (self.shape, self.rate, self.initial)):
            raise ValueError(
                "ScalePrior needs shape > 0, rate > 0 and initial > 0, all finite, got "
                f"{self.shape}, {self.rate} and {self.initial}"
            )

    def build(self, layout: WeightLayout) -> PriorModule:
        return GammaScale(self, layout.fan_in)


class GammaScale(PriorModule):
    """P = fan_in s I, s ~ Q(s)."""

    def __init__(self, prior: ScalePrior, fan_in: int) -> None:
        super().__init__()
        self.specification, self.fan_in = prior, fan_in
        self.log_alpha, self.log_beta = (nn.Parameter(torch.tensor(math.log(prior.initial))) for _ in range(2))

    def forward(self, num_samples: int, generator: Generator | None = None) -> PriorSample:
        posterior, prior = self._distributions(self.log_alpha, self.log_beta)
        scale = standard_gamma(posterior.concentration.expand(num_samples), generator) / posterior.rate
        precision = ScaledIdentity(self.fan_in * scale, self.fan_in, self._moments())
        return PriorSample(precision, kl_divergence(posterior, prior)[None])

    def log_density(self, precision: Precision | None) -> PriorDensity:
        if not isinstance(precision, ScaledIdentity):
            raise missing_variables("the scale s of ScalePrior")
        scale = precision.scale.double() / self.fan_in
        posterior, prior = self._distributions(self.log_alpha.double(), self.log_beta.double())
        return PriorDensity(precision, posterior.log_prob(scale), prior.log_prob(scale))

    def _moments(self) -> ScaleMoments:
        """Return E[fan_in s] and E[log(fan_in s)] under Q(s) = Gamma(a, b): fan_in a / b and log fan_in + psi(a) - log b.

        In float64, since they are multiplied by the number of weights.
        """
        posterior, _ = self._distributions(self.log_alpha.double(), self.log_beta.double())
        shape, rate = posterior.concentration[None], posterior.rate[None]
        return ScaleMoments(self.fan_in * shape / rate, math.log(self.fan_in) + shape.digamma() - rate.log())

    def _distributions(self, log_alpha: Tensor, log_beta: Tensor) -> tuple[Gamma, Gamma]:
        """Return Q(s) and P(s)."""
        shape, rate = self.specification.shape, self.specification.rate
        posterior = Gamma(shape + log_alpha.exp(), rate + log_beta.exp(), validate_args=False)
        prior = Gamma(
            torch.full_like(posterior.rate, shape), torch.full_like(posterior.rate, rate), validate_args=False
        )
        return posterior, prior
