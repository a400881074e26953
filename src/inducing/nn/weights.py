"""The parameters of the approximate posteriors over weights.

All modules answer the same question: given the inducing activations that enter a layer and the prior precision, sample
the weights and say what log Q - log P is. `inducing.nn.posteriors` holds the specifications they are built from.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from inducing.linalg.noise import standard_normal
from inducing.linalg.precision import Precision
from inducing.linalg.regression import PseudoOutputs, WeightSample, regress
from inducing.nn.likelihoods import Gaussian

PrecisionKind = Literal["shared", "per_output", "full", "full_per_output"]

# Adam changes every parameter by about its learning rate, so parameters are stored at a scale of about 1 (the paper's
# appendix "Parameter scaling for ADAM"): log-precisions divided by 3, means of weights times sqrt(fan-in).
LOG_PRECISION_SCALE = 3.0


class PosteriorModule(nn.Module, ABC):
    """A posterior with its parameters.

    ``use_closed_form`` says whether the KL is taken in closed form given the inputs, where that is known, or as one sample
    of log Q - log P. Both have the same mean.
    """

    use_closed_form: bool = False

    @abstractmethod
    def forward(
        self,
        inputs: Float[Tensor, "#S M F"] | None,
        prior: Precision,
        num_samples: int,
        generator: Generator | None = None,
    ) -> WeightSample:
        """Sample weights given the inducing activations that enter the layer, with their KL."""


class FactorisedWeights(PosteriorModule):
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


class InducingWeights(PosteriorModule):
    """The regression of learned pseudo-outputs V on inducing inputs: the layer's own, or those that come from below."""

    inducing_inputs: nn.Parameter | None
    precision_lower: nn.Parameter | None

    def __init__(
        self,
        pseudo_outputs: Float[Tensor, "M O"],
        inducing_inputs: Float[Tensor, "M F"] | None,
        precision: PrecisionKind,
        log_precision: float,
        closed_form_kl: bool,
    ) -> None:
        super().__init__()
        rows, outputs = pseudo_outputs.shape
        groups = outputs if precision.endswith("per_output") else 1
        self.use_closed_form = closed_form_kl
        self.pseudo_outputs = nn.Parameter(pseudo_outputs)
        self.inducing_inputs = None if inducing_inputs is None else nn.Parameter(inducing_inputs)
        self.scaled_log_precision = nn.Parameter(torch.full((groups, rows), log_precision / LOG_PRECISION_SCALE))
        is_full = precision.startswith("full")
        self.precision_lower = nn.Parameter(torch.zeros(groups, rows, rows)) if is_full else None

    def precision_root(self) -> Float[Tensor, "G M"] | Float[Tensor, "G M M"]:
        """L with Lambda = LL': a diagonal D, or the full D (I + N) with N strictly lower triangular."""
        diagonal = (LOG_PRECISION_SCALE / 2 * self.scaled_log_precision).exp()
        if self.precision_lower is None:
            return diagonal
        identity = torch.eye(diagonal.shape[-1], dtype=diagonal.dtype, device=diagonal.device)
        return diagonal[..., None] * (identity + self.precision_lower.tril(-1))

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


class OptimalWeights(PosteriorModule):
    """The exact posterior of the last layer given those below: V = Y and Lambda = the likelihood's noise precision."""

    targets: Tensor

    def __init__(self, targets: Float[Tensor, "M O"]) -> None:
        super().__init__()
        self.register_buffer("targets", targets)
        # in a tuple, since it is no part of the network: its parameters belong to whoever owns the likelihood
        self._tied: tuple[Gaussian, ...] = ()

    def tie(self, likelihood: Gaussian) -> None:
        """Take the precision from the noise of this likelihood, now and whenever it changes."""
        self._tied = (likelihood,)

    def forward(
        self,
        inputs: Float[Tensor, "#S M F"] | None,
        prior: Precision,
        num_samples: int,
        generator: Generator | None = None,
    ) -> WeightSample:
        if not self._tied:
            raise RuntimeError(
                "the optimal last layer takes its precision from a likelihood; tie them with network.tie(likelihood), "
                "as inducing.ELBO and inducing.fit do"
            )
        assert inputs is not None
        # one precision for all outputs, or one for each
        root = self._tied[0].noise_variance.rsqrt().reshape(-1, 1).expand(-1, len(self.targets))
        pseudo_outputs = PseudoOutputs(self.targets, root)
        return regress(
            inputs, pseudo_outputs, prior, num_samples, generator=generator, closed_form_kl=self.use_closed_form
        )


class PriorWeights(PosteriorModule):
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
