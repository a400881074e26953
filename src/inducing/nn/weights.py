"""The parameters of the approximate posteriors over weights.

All modules answer the same question: given the inducing activations that enter a layer and the prior precision, sample
the weights and say what log Q - log P is. `inducing.nn.posteriors` holds the specifications they are built from.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from inducing.linalg.noise import standard_normal
from inducing.linalg.precision import Precision
from inducing.linalg.regression import PseudoOutputs, WeightSample, regress
from inducing.nn.pseudo import LOG_PRECISION_SCALE, OptimalLikelihood, PosteriorModule, PseudoLikelihood


class Weights(PosteriorModule, ABC):
    """A posterior over the weights of a layer."""

    @abstractmethod
    def forward(
        self,
        inputs: Float[Tensor, "#S M F"] | None,
        prior: Precision,
        num_samples: int,
        generator: Generator | None = None,
    ) -> WeightSample:
        """Sample weights given the inducing activations that enter the layer, with their KL."""


class FactorisedWeights(Weights):
    """w_ij ~ N(mean_ij, variance_ij)."""

    def __init__(self, fan_in: int, outputs: int, variance: float, closed_form_kl: bool) -> None:
        super().__init__()
        self.mean_scale, self.use_closed_form = math.sqrt(fan_in), closed_form_kl
        self.scaled_mean = nn.Parameter(torch.randn(fan_in, outputs))
        self.scaled_log_variance = nn.Parameter(torch.full((fan_in, outputs), math.log(variance) / LOG_PRECISION_SCALE))

    def moments(self) -> tuple[Float[Tensor, "F O"], Float[Tensor, "F O"]]:
        """The means and variances of all weights."""
        return self.scaled_mean / self.mean_scale, self._log_variance().exp()

    def forward(
        self,
        inputs: Float[Tensor, "#S M F"] | None,
        prior: Precision,
        num_samples: int,
        generator: Generator | None = None,
    ) -> WeightSample:
        mean, variance = self.moments()
        noise = standard_normal((num_samples, *mean.shape), mean, generator)
        weights = mean + variance.sqrt() * noise
        if self.use_closed_form:
            return WeightSample(weights, self.closed_form_kl(prior).expand(num_samples))
        # log Q - log P = -|z|^2/2 - sum(log variance)/2 + w'Pw/2 - logdet(P)/2
        kl = prior.quadratic(weights[:, None]) - noise.square().sum((1, 2)) - self._log_volume(prior)
        return WeightSample(weights, kl / 2)

    def closed_form_kl(self, prior: Precision) -> Float[Tensor, "#S"]:
        """KL = (mean'P mean + sum_i P_ii variance_i - sum(log variance) - logdet(P) - count) / 2."""
        mean, variance = self.moments()
        spread = (prior.diagonal()[..., None] * variance).sum((-2, -1))
        return (prior.quadratic(mean[None, None]) + spread - self._log_volume(prior) - mean.numel()) / 2

    def _log_variance(self) -> Float[Tensor, "F O"]:
        return LOG_PRECISION_SCALE * self.scaled_log_variance

    def _log_volume(self, prior: Precision) -> Float[Tensor, "#S"]:
        """sum(log variance) + logdet(P), over all outputs."""
        return self._log_variance().sum() + self.scaled_mean.shape[-1] * prior.logdet()


class InducingWeights(PseudoLikelihood, Weights):
    """The regression of learned pseudo-outputs V on inducing inputs: the layer's own, or those that come from below."""

    def forward(
        self,
        inputs: Float[Tensor, "#S M F"] | None,
        prior: Precision,
        num_samples: int,
        generator: Generator | None = None,
    ) -> WeightSample:
        if self.inducing_inputs is not None:
            inputs = self.inducing_inputs[None]
        assert inputs is not None
        pseudo_outputs = PseudoOutputs(self.pseudo_outputs, self.precision_root())
        return regress(
            inputs, pseudo_outputs, prior, num_samples, generator=generator, closed_form_kl=self.use_closed_form
        )


class OptimalWeights(OptimalLikelihood, Weights):
    """The exact posterior of the last layer given those below: V = Y and Lambda = the likelihood's noise precision."""

    def forward(
        self,
        inputs: Float[Tensor, "#S M F"] | None,
        prior: Precision,
        num_samples: int,
        generator: Generator | None = None,
    ) -> WeightSample:
        assert inputs is not None
        pseudo_outputs = PseudoOutputs(self.targets, self.precision_root())
        return regress(
            inputs, pseudo_outputs, prior, num_samples, generator=generator, closed_form_kl=self.use_closed_form
        )


class PriorWeights(Weights):
    """w ~ prior."""

    def __init__(self, fan_in: int, outputs: int) -> None:
        super().__init__()
        self.shape = (fan_in, outputs)

    def forward(
        self,
        inputs: Float[Tensor, "#S M F"] | None,
        prior: Precision,
        num_samples: int,
        generator: Generator | None = None,
    ) -> WeightSample:
        like = prior.logdet()
        noise = standard_normal((num_samples, 1, *self.shape), like, generator)
        return WeightSample(prior.colour(noise)[:, 0], like.new_zeros(num_samples))
