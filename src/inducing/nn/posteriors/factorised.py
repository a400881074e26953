"""Independent normal posteriors for all weights (mean-field variational inference)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from inducing.linalg.density import standard_log_density
from inducing.linalg.noise import initial_normal, standard_normal
from inducing.linalg.precision import Precision
from inducing.linalg.regression import WeightSample
from inducing.nn.by_name import KLKind, check_choice
from inducing.nn.context import DrawContext
from inducing.nn.parameterisation import LOG_PRECISION_SCALE
from inducing.nn.posteriors.base import WeightContext, WeightModule, WeightPosterior


@dataclass(frozen=True)
class Factorised(WeightPosterior):
    """Independent normal distributions for all weights. Initial means are draws from `NealPrior`.

    Arguments:
        local_reparameterisation: Whether to sample the outputs for each row instead of the weights (Kingma et al., 2015).
            Gradients are less noisy, but rows do not share a function, so no layer with inducing points can follow.
        initial_variance: Initial variance of the weights, multiplied by sqrt(fan-in).
        kl: "closed_form", also over the variables of the prior, or one "sample" of log Q - log P.
    """

    local_reparameterisation: bool = False
    initial_variance: float = 1e-3
    kl: KLKind = "closed_form"

    def __post_init__(self) -> None:
        check_choice("kl", self.kl, KLKind)
        if not self.initial_variance > 0:
            raise ValueError(f"initial_variance must be positive, got {self.initial_variance}")
        if self.local_reparameterisation and self.kl == "sample":
            raise ValueError('local reparameterisation does not sample weights. Use kl="closed_form"')

    def build_weights(self, context: WeightContext) -> FactorisedWeights:
        fan_in = context.layout.fan_in
        scaled_mean = initial_normal(fan_in, context.out_features, generator=context.network.generator)
        return FactorisedWeights(scaled_mean, self.initial_variance / math.sqrt(fan_in), self.kl == "closed_form")


class FactorisedWeights(WeightModule):
    """w_ij ~ N(mean_ij, variance_ij)."""

    def __init__(self, scaled_mean: Float[Tensor, "F O"], variance: float, closed_form_kl: bool) -> None:
        super().__init__()
        self.mean_scale, self.uses_closed_form_kl = math.sqrt(len(scaled_mean)), closed_form_kl
        self.scaled_mean = nn.Parameter(scaled_mean)
        self.scaled_log_variance = nn.Parameter(torch.full(scaled_mean.shape, math.log(variance) / LOG_PRECISION_SCALE))

    def moments(self) -> tuple[Float[Tensor, "F O"], Float[Tensor, "F O"]]:
        """Return the means and variances of all weights."""
        return self.scaled_mean / self.mean_scale, self._log_variance().exp()

    def forward(self, inputs: Float[Tensor, "#S M F"] | None, prior: Precision, context: DrawContext) -> WeightSample:
        mean, variance = self.moments()
        noise = standard_normal((context.num_samples, *mean.shape), mean, context.generator)
        weights = mean + variance.sqrt() * noise
        if self.uses_closed_form_kl or context.closed_form_kl:
            return WeightSample(weights, self.closed_form_kl(prior, context.given_prior).expand(context.num_samples))
        # log Q - log P = -|z|^2/2 - sum(log variance)/2 + w'Pw/2 - logdet(P)/2, added up in float64
        squares = noise.square().sum((1, 2), dtype=torch.float64)
        kl = prior.quadratic(weights[:, None]).double() - squares - self._log_volume(prior.to(torch.float64).logdet())
        return WeightSample(weights, (kl / 2).to(weights.dtype))

    def log_density(
        self,
        weights: Float[Tensor, "S F O"],
        inputs: Float[Tensor, "#S M *F"] | None,
        prior: Precision,
        context: DrawContext,
    ) -> Float[Tensor, " S"]:
        log_variance = self._log_variance().double()
        mean = self.scaled_mean.double() / self.mean_scale
        noise = (weights.double() - mean) * (-log_variance / 2).exp()
        return standard_log_density(noise) - log_variance.sum() / 2

    def closed_form_kl(self, prior: Precision, given_prior: bool = False) -> Float[Tensor, "#S"]:
        """Return KL = (mean'P mean + sum_i P_ii variance_i - sum(log variance) - logdet(P) - count) / 2.

        If P was sampled, e.g. with the scale of `ScalePrior`, this is the expectation over the distribution of P, which the
        weights do not depend on. With ``given_prior`` it is the KL given the sampled P.
        """
        mean, variance = self.moments()
        wide = prior.to(torch.float64)
        precision, logdet = (wide, wide.logdet()) if given_prior else wide.expectation()
        precision = precision.to(mean.dtype)
        # added up in float64, since the terms of a wide layer are far larger than their sum
        spread = (precision.diagonal()[..., None] * variance).sum((-2, -1), dtype=torch.float64)
        square = precision.quadratic(mean[None, None]).double()
        return ((square + spread - self._log_volume(logdet) - mean.numel()) / 2).to(mean.dtype)

    def _log_variance(self) -> Float[Tensor, "F O"]:
        return LOG_PRECISION_SCALE * self.scaled_log_variance

    def _log_volume(self, logdet: Float[Tensor, "#S"]) -> Float[Tensor, "#S"]:
        """Return sum(log variance) + logdet(P), summed over all outputs."""
        return self._log_variance().sum(dtype=torch.float64) + self.scaled_mean.shape[-1] * logdet
