"""Priors over weights: specifications that a user writes, and the modules that a layer builds from them.

Every prior is independent over outputs, w ~ N(0, P^-1), and gives the structured precision P of one column of weights.
A prior with variables of its own also gives their KL.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.distributions import Gamma, kl_divergence

from inducing.linalg.noise import standard_gamma
from inducing.linalg.precision import Precision, ScaledIdentity
from inducing.nn.specification import lookup


class PriorSample(NamedTuple):
    """The precision P of the weights into one output, and the KL of the prior's own variables."""

    precision: Precision
    kl: Float[Tensor, "#S"]


class PriorModule(nn.Module, ABC):
    """A prior with its parameters."""

    @abstractmethod
    def forward(self, num_samples: int, generator: Generator | None = None) -> PriorSample:
        """Sample the precision of the weights."""


@dataclass(frozen=True)
class Prior(ABC):
    """A specification of a prior: without tensors, immutable, shared between layers as one likes."""

    @abstractmethod
    def build(self, fan_in: int) -> PriorModule:
        """Make the parameters for a layer with ``fan_in`` weights into each output, the bias among them."""


@dataclass(frozen=True)
class NealPrior(Prior):
    """w ~ N(0, I / fan_in): activations keep their scale through the layers (Neal, 1996)."""

    def build(self, fan_in: int) -> PriorModule:
        return _FixedScale(scale=float(fan_in), fan_in=fan_in)


@dataclass(frozen=True)
class StandardPrior(Prior):
    """w ~ N(0, I)."""

    def build(self, fan_in: int) -> PriorModule:
        return _FixedScale(scale=1.0, fan_in=fan_in)


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

    def build(self, fan_in: int) -> PriorModule:
        return _GammaScale(self, fan_in)


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


PRIORS: dict[str, type[Prior]] = {"neal": NealPrior, "standard": StandardPrior, "scale": ScalePrior}


def as_prior(prior: Prior | str) -> Prior:
    """Turn a name into a prior with its default settings."""
    return lookup("prior", prior, Prior, PRIORS)
