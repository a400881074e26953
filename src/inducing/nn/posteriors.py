"""Approximate posteriors over weights: specifications that a user writes, and the modules built from them.

All modules answer the same question: given the inducing activations that enter a layer and the prior precision, sample
the weights and say what log Q - log P is.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from inducing.linalg.noise import standard_normal
from inducing.linalg.precision import Precision
from inducing.linalg.regression import PseudoOutputs, WeightSample, regress
from inducing.nn.specification import lookup

PrecisionKind = Literal["shared", "per_output", "full", "full_per_output"]
KLKind = Literal["sample", "closed_form"]

# Adam changes every parameter by about its learning rate, so parameters are stored at a scale of about 1 (the paper's
# appendix "Parameter scaling for ADAM"): log-precisions divided by 3, means of weights times sqrt(fan-in).
LOG_PRECISION_SCALE = 3.0


class Site(NamedTuple):
    """Where a posterior is built.

    Arguments:
        fan_in: F, weights into each output, the bias among them.
        out_features: Number of outputs.
        num_inducing: M, rows of the global inducing points; None where there are none.
        targets: First values of the pseudo-outputs, given for the last layer of a network.
        is_last: Whether this is the last layer.
    """

    fan_in: int
    out_features: int
    num_inducing: int | None
    targets: Float[Tensor, "M O"] | None
    is_last: bool


class PosteriorModule(nn.Module, ABC):
    """A posterior with its parameters."""

    @abstractmethod
    def forward(
        self,
        inputs: Float[Tensor, "#S M F"] | None,
        prior: Precision,
        num_samples: int,
        generator: Generator | None = None,
    ) -> WeightSample:
        """Sample weights given the inducing activations that enter the layer, with their KL."""


@dataclass(frozen=True)
class Posterior(ABC):
    """A specification of a posterior: without tensors, immutable, shared between layers as one likes."""

    needs_inducing: ClassVar[bool] = False

    @abstractmethod
    def build(self, site: Site) -> PosteriorModule:
        """Make the parameters for a layer."""


@dataclass(frozen=True)
class Factorised(Posterior):
    """Independent normals for all weights.

    Arguments:
        local_reparameterisation: Sample the outputs for each row instead of the weights (Kingma et al., 2015).
            Gradients are less noisy, but the rows no longer share a function, so a layer with inducing points cannot
            follow.
        initial_variance: Variances start at this divided by sqrt(fan-in).
        kl: "closed_form", or one "sample" of log Q - log P.
    """

    local_reparameterisation: bool = False
    initial_variance: float = 1e-3
    kl: KLKind = "closed_form"

    def __post_init__(self) -> None:
        _check_choice("kl", self.kl, KLKind)
        if not self.initial_variance > 0:
            raise ValueError(f"initial_variance must be positive, got {self.initial_variance}")
        if self.local_reparameterisation and self.kl == "sample":
            raise ValueError('local reparameterisation samples no weights, so it needs kl="closed_form"')

    def build(self, site: Site) -> FactorisedWeights:
        return FactorisedWeights(self, site)


@dataclass(frozen=True)
class LocalInducing(Posterior):
    """The regression on inducing inputs that each layer learns for itself: no correlation between layers.

    Arguments:
        num_inducing: Rows of this layer's own inducing inputs; the default is the fan-in.
        precision: Pseudo-output precisions "shared" by all outputs, "per_output", "full" (M x M), "full_per_output".
        log_precision: First value; None stands for the paper's, 0 in the last layer and -4 elsewhere.
        kl: One "sample" of log Q - log P, or "closed_form".
    """

    num_inducing: int | None = None
    precision: PrecisionKind = "shared"
    log_precision: float | None = None
    kl: KLKind = "sample"

    def __post_init__(self) -> None:
        _check_choice("precision", self.precision, PrecisionKind)
        _check_choice("kl", self.kl, KLKind)
        if self.num_inducing is not None and self.num_inducing < 1:
            raise ValueError(f"num_inducing must be at least 1, got {self.num_inducing}")

    def build(self, site: Site) -> InducingWeights:
        rows = self.num_inducing or site.fan_in
        return InducingWeights(self, site._replace(num_inducing=rows, targets=None), torch.randn(rows, site.fan_in))


@dataclass(frozen=True)
class GlobalInducing(Posterior):
    """The regression on inducing points propagated from the layers below: correlated across layers, the paper's Eq. 11.

    Arguments:
        precision: Pseudo-output precisions "shared" by all outputs, "per_output", "full" (M x M), "full_per_output".
        log_precision: First value; None stands for the paper's, 0 in the last layer and -4 elsewhere.
        kl: One "sample" of log Q - log P, or "closed_form" given the inducing activations.
    """

    needs_inducing: ClassVar[bool] = True

    precision: PrecisionKind = "shared"
    log_precision: float | None = None
    kl: KLKind = "sample"

    def __post_init__(self) -> None:
        _check_choice("precision", self.precision, PrecisionKind)
        _check_choice("kl", self.kl, KLKind)

    def build(self, site: Site) -> InducingWeights:
        return InducingWeights(self, site, inducing_inputs=None)


@dataclass(frozen=True)
class PriorOnly(Posterior):
    """Weights drawn from the prior: nothing is learned, and the KL is zero."""

    def build(self, site: Site) -> PriorWeights:
        return PriorWeights(site)


class FactorisedWeights(PosteriorModule):
    """w_ij ~ N(mean_ij, variance_ij)."""

    def __init__(self, specification: Factorised, site: Site) -> None:
        super().__init__()
        self.specification = specification
        self.mean_scale = math.sqrt(site.fan_in)
        # means from NealPrior, variances initial_variance / sqrt(fan-in)
        log_variance = math.log(specification.initial_variance / math.sqrt(site.fan_in))
        shape = (site.fan_in, site.out_features)
        self.scaled_mean = nn.Parameter(torch.randn(shape))
        self.scaled_log_variance = nn.Parameter(torch.full(shape, log_variance / LOG_PRECISION_SCALE))

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
        if self.specification.kl == "closed_form":
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
    """The regression of pseudo-outputs V on inducing inputs: the layer's own, or those that come from below."""

    inducing_inputs: nn.Parameter | None
    precision_lower: nn.Parameter | None

    def __init__(
        self,
        specification: LocalInducing | GlobalInducing,
        site: Site,
        inducing_inputs: Float[Tensor, "M F"] | None,
    ) -> None:
        super().__init__()
        assert site.num_inducing is not None
        rows, outputs = site.num_inducing, site.out_features
        self.specification = specification
        self.inducing_inputs = None if inducing_inputs is None else nn.Parameter(inducing_inputs)
        self.pseudo_outputs = nn.Parameter(torch.randn(rows, outputs) if site.targets is None else site.targets.clone())
        log_precision = specification.log_precision
        if log_precision is None:
            log_precision = 0.0 if site.is_last else -4.0
        groups = outputs if specification.precision.endswith("per_output") else 1
        self.scaled_log_precision = nn.Parameter(torch.full((groups, rows), log_precision / LOG_PRECISION_SCALE))
        is_full = specification.precision.startswith("full")
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
        return regress(
            inputs,
            PseudoOutputs(self.pseudo_outputs, self.precision_root()),
            prior,
            num_samples,
            generator=generator,
            closed_form_kl=self.specification.kl == "closed_form",
        )


class PriorWeights(PosteriorModule):
    """w ~ prior."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.shape = (site.fan_in, site.out_features)

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


POSTERIORS: dict[str, type[Posterior]] = {
    "factorised": Factorised,
    "local": LocalInducing,
    "global": GlobalInducing,
    "prior": PriorOnly,
}


def as_posterior(posterior: Posterior | str) -> Posterior:
    """Turn a name into a posterior with its default settings."""
    return lookup("posterior", posterior, Posterior, POSTERIORS)


def posteriors_for_layers(posterior: Posterior | str, num_layers: int) -> list[Posterior]:
    """One posterior for each layer of a network; written "A->B", B is for the last layer and A for all others."""
    if isinstance(posterior, str) and "->" in posterior:
        lower, _, last = (part.strip() for part in posterior.partition("->"))
        return [as_posterior(lower)] * (num_layers - 1) + [as_posterior(last)]
    return [as_posterior(posterior)] * num_layers


def _check_choice(name: str, value: str, choices: object) -> None:
    if value not in get_args(choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, get_args(choices)))}, got {value!r}")
