"""The parameters of the approximate posteriors over the values of a Gaussian process at its inducing inputs.

All modules answer the same question: given the root R of the prior covariance K = RR' at the inducing inputs and the mean
function m there, sample the whitened values a, with u = m + R a, and say what log Q - log P is. A priori a ~ N(0, I), so
this is the layer's regression with inputs X = R, weights a and prior precision I, and K^-1 is never formed.
`inducing.nn.posteriors` holds the specifications these modules are built from.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from inducing.linalg.cholesky import logdet, solve_lower
from inducing.linalg.noise import standard_normal
from inducing.linalg.precision import ScaledIdentity
from inducing.linalg.regression import PseudoOutputs, regress
from inducing.nn.pseudo import (
    LOG_PRECISION_SCALE,
    OptimalLikelihood,
    PosteriorModule,
    PseudoLikelihood,
    lower_triangular,
)


class ValueSample(NamedTuple):
    """Whitened values a, and log Q - log P of each sample of them (or its expectation over this layer, in closed form)."""

    whitened: Float[Tensor, "S M O"]
    kl: Float[Tensor, " S"]


class InducingValues(PosteriorModule, ABC):
    """A posterior over the values at the inducing inputs: those of the layer itself, or those that come from below."""

    inducing_inputs: nn.Parameter | None

    def __init__(self) -> None:
        super().__init__()
        self.register_parameter("inducing_inputs", None)

    @abstractmethod
    def forward(
        self,
        root: Float[Tensor, "#S M M"],
        mean: Float[Tensor, "#S M O"],
        num_samples: int,
        generator: Generator | None = None,
    ) -> ValueSample:
        """Sample whitened values given the prior's root and mean at the inducing inputs, with their KL."""


class RegressedValues(PseudoLikelihood, InducingValues):
    """Q(u) proportional to N(v; u, Lambda^-1) N(u; m, K): the paper's Algorithm 2."""

    def forward(
        self,
        root: Float[Tensor, "#S M M"],
        mean: Float[Tensor, "#S M O"],
        num_samples: int,
        generator: Generator | None = None,
    ) -> ValueSample:
        return _regress(
            root, mean, self.pseudo_outputs, self.precision_root(), num_samples, generator, self.use_closed_form
        )


class OptimalValues(OptimalLikelihood, InducingValues):
    """The exact posterior of the last layer given those below: V = Y and Lambda = the likelihood's noise precision."""

    def forward(
        self,
        root: Float[Tensor, "#S M M"],
        mean: Float[Tensor, "#S M O"],
        num_samples: int,
        generator: Generator | None = None,
    ) -> ValueSample:
        return _regress(root, mean, self.targets, self.precision_root(), num_samples, generator, self.use_closed_form)


class PriorValues(InducingValues):
    """u ~ prior, so a ~ N(0, I)."""

    def forward(
        self,
        root: Float[Tensor, "#S M M"],
        mean: Float[Tensor, "#S M O"],
        num_samples: int,
        generator: Generator | None = None,
    ) -> ValueSample:
        whitened = standard_normal((num_samples, root.shape[-1], mean.shape[-1]), root, generator)
        return ValueSample(whitened, root.new_zeros(num_samples))


class WhitenedValues(InducingValues):
    """a ~ N(whitened_mean, TT') for each output: DSVI (Salimbeni & Deisenroth, 2017).

    Arguments:
        inducing_inputs: First values of the layer's inducing inputs.
        outputs: Number of outputs.
        scale: First value of T, times the identity.
    """

    def __init__(self, inducing_inputs: Float[Tensor, "M D"], outputs: int, scale: float) -> None:
        super().__init__()
        rows = len(inducing_inputs)
        self.inducing_inputs = nn.Parameter(inducing_inputs)
        self.whitened_mean = nn.Parameter(torch.zeros(rows, outputs))
        self.scaled_log_scale = nn.Parameter(torch.full((outputs, rows), math.log(scale) / LOG_PRECISION_SCALE))
        self.root_lower = nn.Parameter(torch.zeros(outputs, rows, rows))

    def moments(self) -> tuple[Float[Tensor, "M O"], Float[Tensor, "O M M"]]:
        """The mean of a, and the root T of its covariance for each output."""
        scale = (LOG_PRECISION_SCALE * self.scaled_log_scale.double()).exp()
        return self.whitened_mean.double(), lower_triangular(scale, self.root_lower.double())

    def closed_form_kl(self) -> Float[Tensor, ""]:
        """KL = (|mean|^2 + |T|^2 - log|TT'| - count) / 2."""
        mean, root = self.moments()
        log_volume = 2 * LOG_PRECISION_SCALE * self.scaled_log_scale.double().sum()
        return (mean.square().sum() + root.square().sum() - log_volume - mean.numel()) / 2

    def forward(
        self,
        root: Float[Tensor, "#S M M"],
        mean: Float[Tensor, "#S M O"],
        num_samples: int,
        generator: Generator | None = None,
    ) -> ValueSample:
        whitened = _sample(*self.moments(), num_samples, generator)
        return ValueSample(whitened, self.closed_form_kl().expand(num_samples))


class CoupledValues(InducingValues):
    """u ~ N(mean, CC'), whatever comes from below: the inducing inputs are shared, the values are not regressed on them.

    The moments are stored relative to the prior at the first inducing inputs, mean = m_0 + R_0 b and C = R_0 T. That is a
    fixed change of coordinates: it conditions the problem, and u stays independent of the layers below.

    Arguments:
        reference_mean: m_0.
        reference_root: R_0.
        scale: First value of T, times the identity.
    """

    reference_mean: Tensor
    reference_root: Tensor

    def __init__(
        self, reference_mean: Float[Tensor, "M O"], reference_root: Float[Tensor, "M M"], scale: float
    ) -> None:
        super().__init__()
        rows, outputs = reference_mean.shape
        self.register_buffer("reference_mean", reference_mean)
        self.register_buffer("reference_root", reference_root)
        self.relative_mean = nn.Parameter(torch.zeros(rows, outputs))
        self.scaled_log_scale = nn.Parameter(torch.full((outputs, rows), math.log(scale) / LOG_PRECISION_SCALE))
        self.root_lower = nn.Parameter(torch.zeros(outputs, rows, rows))

    def forward(
        self,
        root: Float[Tensor, "#S M M"],
        mean: Float[Tensor, "#S M O"],
        num_samples: int,
        generator: Generator | None = None,
    ) -> ValueSample:
        reference = self.reference_root.double()
        scale = (LOG_PRECISION_SCALE * self.scaled_log_scale.double()).exp()
        spread = lower_triangular(scale, self.root_lower.double())
        relative = self.relative_mean.double()
        noise = standard_normal((num_samples, *relative.shape), relative, generator)
        # a = R^-1 (u - m),   u = m_0 + R_0 (b + T z)
        centred = self.reference_mean.double() - mean
        whitened = _solve(root, centred + reference @ (relative + _spread(spread, noise)))
        # log|K| / 2 - log|C| for each output, and the second moment of a against that of z
        volume = relative.shape[1] * logdet(root) / 2 - LOG_PRECISION_SCALE * self.scaled_log_scale.double().sum()
        volume = volume - relative.shape[1] * reference.diagonal().log().sum()
        if self.use_closed_form:
            # E|a|^2 = |E a|^2 + |R^-1 C|^2
            at_mean = _solve(root, centred + reference @ relative).square().sum((1, 2))
            of_noise = solve_lower(root[:, None], (reference @ spread)[None]).square().sum((1, 2, 3))
            kl = volume + (at_mean + of_noise - relative.numel()) / 2
        else:
            kl = volume + (whitened.square() - noise.square()).sum((1, 2)) / 2
        return ValueSample(whitened, kl.expand(num_samples))


def _regress(
    root: Float[Tensor, "#S M M"],
    mean: Float[Tensor, "#S M O"],
    targets: Float[Tensor, "M O"],
    precision_root: Float[Tensor, "G M"] | Float[Tensor, "G M M"],
    num_samples: int,
    generator: Generator | None,
    closed_form_kl: bool,
) -> ValueSample:
    """v - m | a ~ N(R a, Lambda^-1), a ~ N(0, I)."""
    pseudo_outputs = PseudoOutputs(targets.double() - mean, precision_root.double())
    prior = ScaledIdentity(root.new_ones(1), root.shape[-1])
    return ValueSample(
        *regress(root, pseudo_outputs, prior, num_samples, generator=generator, closed_form_kl=closed_form_kl)
    )


def _sample(
    mean: Float[Tensor, "M O"], root: Float[Tensor, "O M M"], num_samples: int, generator: Generator | None
) -> Float[Tensor, "S M O"]:
    """Draw mean + T z for each output."""
    return mean + _spread(root, standard_normal((num_samples, *mean.shape), mean, generator))


def _spread(root: Float[Tensor, "O M M"], noise: Float[Tensor, "S M O"]) -> Float[Tensor, "S M O"]:
    """T z, with a T for each output."""
    return (root @ noise.permute(2, 1, 0)).permute(2, 1, 0)


def _solve(root: Float[Tensor, "#S M M"], right: Float[Tensor, "#S M O"]) -> Float[Tensor, "#S M O"]:
    return solve_lower(root[:, None], right[:, None])[:, 0]
