"""Approximate posteriors over weights, as a user specifies them: immutable values without tensors.

A layer builds its parameters from them; those live in `inducing.nn.weights`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.nn.specification import lookup
from inducing.nn.weights import (
    FactorisedWeights,
    InducingWeights,
    OptimalWeights,
    PosteriorModule,
    PrecisionKind,
    PriorWeights,
)

KLKind = Literal["sample", "closed_form"]


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

    def first_log_precision(self, given: float | None) -> float:
        """What the user asked for, or the paper's: 0 in the last layer and -4 elsewhere."""
        if given is not None:
            return given
        return 0.0 if self.is_last else -4.0


@dataclass(frozen=True)
class Posterior(ABC):
    """A specification of a posterior: without tensors, immutable, shared between layers as one likes."""

    needs_inducing: ClassVar[bool] = False

    @abstractmethod
    def build(self, site: Site) -> PosteriorModule:
        """Make the parameters for a layer."""


@dataclass(frozen=True)
class Factorised(Posterior):
    """Independent normals for all weights. Means start as draws from NealPrior.

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
        variance = self.initial_variance / math.sqrt(site.fan_in)
        return FactorisedWeights(site.fan_in, site.out_features, variance, self.kl == "closed_form")


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
        inputs, outputs = torch.randn(rows, site.fan_in), torch.randn(rows, site.out_features)
        log_precision = site.first_log_precision(self.log_precision)
        return InducingWeights(outputs, inputs, self.precision, log_precision, self.kl == "closed_form")


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
        assert site.num_inducing is not None
        outputs = torch.randn(site.num_inducing, site.out_features) if site.targets is None else site.targets.clone()
        log_precision = site.first_log_precision(self.log_precision)
        return InducingWeights(outputs, None, self.precision, log_precision, self.kl == "closed_form")


@dataclass(frozen=True)
class OptimalInducing(Posterior):
    """The exact posterior of the last layer given the layers below, for a Gaussian likelihood: the paper's Eq. 7.

    The inducing points are the training inputs, and stay there; the pseudo-outputs are the training targets; the precision
    is that of the likelihood's noise. Nothing is left to learn, and no other last layer has a better ELBO.
    """

    needs_inducing: ClassVar[bool] = True

    def build(self, site: Site) -> OptimalWeights:
        if not site.is_last or site.targets is None:
            raise ValueError(
                "an OptimalInducing posterior is for the last layer, and needs the training data: pass "
                "inducing_points=x, inducing_targets=y, learn_inducing_locations=False"
            )
        return OptimalWeights(site.targets)


@dataclass(frozen=True)
class PriorOnly(Posterior):
    """Weights drawn from the prior: nothing is learned, and the KL is zero."""

    def build(self, site: Site) -> PriorWeights:
        return PriorWeights(site.fan_in, site.out_features)


POSTERIORS: dict[str, type[Posterior]] = {
    "factorised": Factorised,
    "local": LocalInducing,
    "global": GlobalInducing,
    "optimal": OptimalInducing,
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
