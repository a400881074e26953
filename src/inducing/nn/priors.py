"""Priors over weights: specifications that a user writes, and the modules that a layer builds from them.

Every prior is independent over outputs, w ~ N(0, P^-1), and gives the structured precision P of one column of weights.
A prior with variables of its own also gives their KL. The weights into one output are ordered as `Fan` says. Here are those
without correlations, and the names of all.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.distributions import Gamma, kl_divergence

from inducing.linalg.noise import standard_gamma
from inducing.linalg.precision import ScaledIdentity
from inducing.nn.fans import Fan, Prior, PriorModule, PriorSample
from inducing.nn.inverse_wishart import ChannelIWPrior, KroneckerIWPrior, SpatialIWPrior
from inducing.nn.specification import lookup


@dataclass(frozen=True)
class NealPrior(Prior):
    """w ~ N(0, I / fan_in): activations keep their scale through the layers (Neal, 1996)."""

    def build(self, fan: Fan) -> PriorModule:
        return _FixedScale(scale=float(fan.fan_in), fan_in=fan.fan_in)


@dataclass(frozen=True)
class StandardPrior(Prior):
    """w ~ N(0, I)."""

    def build(self, fan: Fan) -> PriorModule:
        return _FixedScale(scale=1.0, fan_in=fan.fan_in)


@dataclass(frozen=True)
class ScalePrior(Prior):
    """w ~ N(0, I / (fan_in s)), s ~ Gamma(shape, rate), Q(s) = Gamma(shape + alpha, rate + beta).

    alpha and beta are learned and positive. The KL of s is taken in closed form.

    Arguments:
        shape: Shape of the Gamma prior over the scale s of the precision.
        rate: Its rate.
    """

    shape: float = 2.0
    rate: float = 2.0

    def __post_init__(self) -> None:
        if not (self.shape > 0 and self.rate > 0):
            raise ValueError(f"ScalePrior needs shape > 0 and rate > 0, got {self.shape} and {self.rate}")

    def build(self, fan: Fan) -> PriorModule:
        return _GammaScale(self, fan.fan_in)


class _FixedScale(PriorModule):
    """P = scale I."""

    scale: Tensor

    def __init__(self, scale: float, fan_in: int) -> None:
        super().__init__()
        self.fan_in = fan_in
        self.register_buffer("scale", torch.tensor([scale]), persistent=False)

    def forward(self, num_samples: int, generator: Generator | None = None) -> PriorSample:
        return PriorSample(ScaledIdentity(self.scale, self.fan_in), torch.zeros_like(self.scale))


class _GammaScale(PriorModule):
    """P = fan_in s I, s ~ Q(s)."""

    def __init__(self, prior: ScalePrior, fan_in: int) -> None:
        super().__init__()
        self.specification, self.fan_in = prior, fan_in
        self.log_alpha = nn.Parameter(torch.zeros(()))
        self.log_beta = nn.Parameter(torch.zeros(()))

    def forward(self, num_samples: int, generator: Generator | None = None) -> PriorSample:
        shape, rate = self.specification.shape, self.specification.rate
        posterior = Gamma(shape + self.log_alpha.exp(), rate + self.log_beta.exp(), validate_args=False)
        scale = standard_gamma(posterior.concentration.expand(num_samples), generator) / posterior.rate
        prior = Gamma(
            torch.full_like(posterior.rate, shape), torch.full_like(posterior.rate, rate), validate_args=False
        )
        return PriorSample(ScaledIdentity(self.fan_in * scale, self.fan_in), kl_divergence(posterior, prior)[None])


PRIORS: dict[str, type[Prior]] = {
    "neal": NealPrior,
    "standard": StandardPrior,
    "scale": ScalePrior,
    "spatial-iw": SpatialIWPrior,
    "channel-iw": ChannelIWPrior,
    "kronecker-iw": KroneckerIWPrior,
}


def as_prior(prior: Prior | str) -> Prior:
    """Turn a name into a prior with its default settings."""
    return lookup("prior", prior, Prior, PRIORS)
