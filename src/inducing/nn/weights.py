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
from torch.nn import functional

from inducing.linalg.geometry import Geometry
from inducing.linalg.long_products import BLOCK
from inducing.linalg.noise import standard_normal
from inducing.linalg.patches import conv_cross, conv_gram, conv_sums, patches
from inducing.linalg.precision import Precision
from inducing.linalg.pseudo_outputs import PseudoOutputs, by_group
from inducing.linalg.regression import WeightSample, regress, regress_statistics
from inducing.nn.pseudo import (
    LOG_PRECISION_SCALE,
    OptimalLikelihood,
    PosteriorModule,
    PrecisionKind,
    PseudoLikelihood,
    Regression,
)


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

    def __init__(self, scaled_mean: Float[Tensor, "F O"], variance: float, closed_form_kl: bool) -> None:
        super().__init__()
        self.mean_scale, self.use_closed_form = math.sqrt(len(scaled_mean)), closed_form_kl
        self.scaled_mean = nn.Parameter(scaled_mean)
        self.scaled_log_variance = nn.Parameter(torch.full(scaled_mean.shape, math.log(variance) / LOG_PRECISION_SCALE))

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


class _Regression(Regression, Weights, ABC):
    """Q(w) proportional to N(v; X w, Lambda^-1) N(w; 0, P^-1)."""

    sample_is_quiet = True

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
        return regress(
            inputs,
            self.pseudo_data(),
            prior,
            num_samples,
            generator=generator,
            closed_form_kl=self.use_closed_form,
            exact=isinstance(self, OptimalLikelihood),
        )


class InducingWeights(PseudoLikelihood, _Regression):
    """The regression of learned pseudo-outputs V on inducing inputs: the layer's own, or those that come from below."""


class OptimalWeights(OptimalLikelihood, _Regression):
    """The exact posterior of the last layer given those below: V = Y and Lambda = the likelihood's noise precision."""


class ConvolvedWeights(PseudoLikelihood, Weights):
    """The regression of pseudo-outputs on the patches of inducing images, with a precision for each image.

    Arguments:
        pseudo_outputs: First values of V, at each pixel.
        geometry: Which patches there are.
        bias: Whether a column of ones is added to them.
        precision: "shared" by all outputs, or "per_output".
        log_precision: First value of its logarithm.
        closed_form_kl: Whether the KL is taken in closed form.
    """

    def __init__(
        self,
        pseudo_outputs: Float[Tensor, "M O h w"],
        geometry: Geometry,
        bias: bool,
        precision: PrecisionKind,
        log_precision: float,
        closed_form_kl: bool,
    ) -> None:
        super().__init__(pseudo_outputs, None, precision, log_precision, closed_form_kl)
        self.geometry, self.bias = geometry, bias

    def forward(
        self,
        inputs: Float[Tensor, "#S M C H W"] | None,
        prior: Precision,
        num_samples: int,
        generator: Generator | None = None,
    ) -> WeightSample:
        assert inputs is not None
        images, outputs, *pixels = self.pseudo_outputs.shape
        features = inputs.shape[2] * math.prod(self.geometry.kernel_size) + self.bias
        root = self.precision_root()
        if images * math.prod(pixels) < features:
            # fewer patches than features: the dual form, on the patches themselves
            rows = patches(inputs, self.geometry).flatten(1, 3)
            rows = functional.pad(rows, (0, 1), value=1.0) if self.bias else rows
            values = self.pseudo_outputs.permute(0, 2, 3, 1).reshape(-1, outputs)
            pseudo_outputs = PseudoOutputs(values, root.repeat_interleave(math.prod(pixels), 1))
            return regress(
                rows, pseudo_outputs, prior, num_samples, generator=generator, closed_form_kl=self.use_closed_form
            )
        return regress_statistics(
            lambda dtype: self._statistics(inputs.to(dtype), root.to(dtype).square()),
            inputs.dtype,
            min(images * math.prod(pixels), BLOCK),
            prior,
            num_samples,
            generator=generator,
            closed_form_kl=self.use_closed_form,
        )

    def _statistics(
        self, inputs: Float[Tensor, "#S M C H W"], weights: Float[Tensor, "G M"]
    ) -> tuple[Float[Tensor, "#S G F F"], Float[Tensor, "#S G F C"]]:
        """X' Lambda X and X' Lambda v, with the column of ones that the bias multiplies."""
        geometry, values = self.geometry, self.pseudo_outputs.to(inputs.dtype)
        # lambda_{o i} v_{i o u}
        weighted = values * weights.mT[:, :, None, None]
        gram, cross = conv_gram(inputs, weights, geometry), conv_cross(inputs, weighted, geometry)
        if self.bias:
            sums = conv_sums(inputs, weights, geometry)
            count = weights.sum(-1) * math.prod(values.shape[2:])
            corner = count[None, :, None, None].expand(len(gram), -1, -1, -1)
            gram = torch.cat([gram, sums[:, :, None]], 2)
            gram = torch.cat([gram, torch.cat([sums[..., None], corner], 2)], 3)
            last = weighted.sum((0, 2, 3)).expand(len(cross), 1, -1)
            cross = torch.cat([cross, last], 1)
        return gram, by_group(cross, len(weights))


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
