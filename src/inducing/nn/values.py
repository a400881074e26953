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

from inducing.linalg.cholesky import factorise, logdet, solve_lower
from inducing.linalg.conditional import condition
from inducing.linalg.noise import standard_normal
from inducing.linalg.precision import ScaledIdentity
from inducing.linalg.pseudo_outputs import by_output
from inducing.linalg.regression import primal_kl
from inducing.nn.pseudo import (
    LOG_PRECISION_SCALE,
    OptimalLikelihood,
    PosteriorModule,
    PseudoLikelihood,
    Regression,
    lower_triangular,
)


class ValueSample(NamedTuple):
    """What a posterior says about the whitened values a.

    Arguments:
        whitened: A sample of them.
        kl: log Q - log P of each sample, or its expectation over this layer in closed form.
        mean: E[a], where a is to be integrated out.
        spread: The root of V[a], for each output or one for all, where a is to be integrated out.
    """

    whitened: Float[Tensor, "S M O"]
    kl: Float[Tensor, " S"]
    mean: Float[Tensor, "#S M O"] | None = None
    spread: Float[Tensor, "#S #O M M"] | None = None


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
        integrate: bool = False,
    ) -> ValueSample:
        """Sample whitened values given the prior's root and mean at the inducing inputs, with their KL.

        Arguments:
            root: R.
            mean: m.
            num_samples: S.
            generator: Source of the noise.
            integrate: Whether to give the moments of a as well.
        """


class _Regression(Regression, InducingValues, ABC):
    """Q(u) proportional to N(v; u, Lambda^-1) N(u; m, K): v - m | a ~ N(R a, Lambda^-1), a ~ N(0, I)."""

    def forward(
        self,
        root: Float[Tensor, "#S M M"],
        mean: Float[Tensor, "#S M O"],
        num_samples: int,
        generator: Generator | None = None,
        integrate: bool = False,
    ) -> ValueSample:
        data = self.pseudo_data().to(torch.float64)
        data = data._replace(values=data.values - mean)
        prior = ScaledIdentity(root.new_ones(1), root.shape[-1])
        groups, columns = data.layout
        noise = standard_normal((num_samples, groups, root.shape[-1], columns), root, generator)
        # A = I + R' Lambda R = TT'
        posterior, cross = factorise(prior.add_to(data.gram(root))), data.cross(root)
        conditional = condition(*posterior, cross, noise, moments=integrate or self.use_closed_form)
        kl = primal_kl(conditional, prior, noise, self.use_closed_form)
        sample = ValueSample(by_output(conditional.draw), kl.expand(num_samples))
        if not integrate or conditional.mean is None:
            return sample
        # E[a] = A^-1 R' Lambda (v - m),   V[a] = A^-1 = T^-T T^-1
        return sample._replace(mean=by_output(conditional.mean), spread=conditional.root)


class RegressedValues(PseudoLikelihood, _Regression):
    """The regression of learned pseudo-outputs: the paper's Algorithm 2."""


class OptimalValues(OptimalLikelihood, _Regression):
    """The exact posterior of the last layer given those below: V = Y and Lambda = the likelihood's noise precision."""


class PriorValues(InducingValues):
    """u ~ prior, so a ~ N(0, I)."""

    def forward(
        self,
        root: Float[Tensor, "#S M M"],
        mean: Float[Tensor, "#S M O"],
        num_samples: int,
        generator: Generator | None = None,
        integrate: bool = False,
    ) -> ValueSample:
        rows, outputs = mean.shape[1:]
        whitened = standard_normal((num_samples, rows, outputs), root, generator)
        sample = ValueSample(whitened, root.new_zeros(num_samples))
        if not integrate:
            return sample
        identity = torch.eye(rows, dtype=root.dtype, device=root.device)
        return sample._replace(mean=root.new_zeros(1, rows, outputs), spread=identity[None, None])


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
        # a copy: a draw must not change with the parameters
        return self.whitened_mean.to(torch.float64, copy=True), lower_triangular(scale, self.root_lower.double())

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
        integrate: bool = False,
    ) -> ValueSample:
        centre, spread = self.moments()
        noise = standard_normal((num_samples, *centre.shape), centre, generator)
        sample = ValueSample(centre + _spread(spread, noise), self.closed_form_kl().expand(num_samples))
        return sample._replace(mean=centre[None], spread=spread[None]) if integrate else sample


class CoupledValues(InducingValues):
    """u ~ N(mean, CC'), whatever comes from below: the inducing inputs are shared, the values are not regressed on them.

    The moments are stored relative to the prior at the first inducing inputs, mean = m_0 + R_0 b and C = R_0 T. That is a
    fixed change of coordinates: it conditions the problem, and u stays independent of the layers below.

    Arguments:
        reference_mean: m_0.
        reference_root: R_0.
        relative_mean: First value of b.
        relative_root: First value of T.
    """

    reference_mean: Tensor
    reference_root: Tensor

    def __init__(
        self,
        reference_mean: Float[Tensor, "M O"],
        reference_root: Float[Tensor, "M M"],
        relative_mean: Float[Tensor, "M O"],
        relative_root: Float[Tensor, "M M"],
    ) -> None:
        super().__init__()
        outputs, diagonal = reference_mean.shape[1], relative_root.diagonal()
        self.register_buffer("reference_mean", reference_mean)
        self.register_buffer("reference_root", reference_root)
        self.relative_mean = nn.Parameter(relative_mean)
        self.scaled_log_scale = nn.Parameter((diagonal.log() / LOG_PRECISION_SCALE).repeat(outputs, 1))
        self.root_lower = nn.Parameter((relative_root / diagonal[:, None]).tril(-1).repeat(outputs, 1, 1))

    def forward(
        self,
        root: Float[Tensor, "#S M M"],
        mean: Float[Tensor, "#S M O"],
        num_samples: int,
        generator: Generator | None = None,
        integrate: bool = False,
    ) -> ValueSample:
        reference = self.reference_root.double()
        scale = (LOG_PRECISION_SCALE * self.scaled_log_scale.double()).exp()
        spread = lower_triangular(scale, self.root_lower.double())
        relative = self.relative_mean.double()
        noise = standard_normal((num_samples, *relative.shape), relative, generator)
        # a = R^-1 (u - m),   u = m_0 + R_0 (b + T z)
        centred = self.reference_mean.double() - mean
        centre = _solve(root, centred + reference @ relative)
        whitened = centre + _solve(root, reference @ _spread(spread, noise))
        # log|K| / 2 - log|C| for each output, and the second moment of a against that of z
        volume = relative.shape[1] * logdet(root) / 2 - LOG_PRECISION_SCALE * self.scaled_log_scale.double().sum()
        volume = volume - relative.shape[1] * reference.diagonal().log().sum()
        # R^-1 C, the root of V[a]
        of_noise = solve_lower(root[:, None], (reference @ spread)[None]) if integrate or self.use_closed_form else None
        if self.use_closed_form and of_noise is not None:
            # E|a|^2 = |E a|^2 + |R^-1 C|^2
            moment = centre.square().sum((1, 2)) + of_noise.square().sum((1, 2, 3))
            kl = volume + (moment - relative.numel()) / 2
        else:
            kl = volume + (whitened.square() - noise.square()).sum((1, 2)) / 2
        sample = ValueSample(whitened, kl.expand(num_samples))
        return sample._replace(mean=centre, spread=of_noise) if integrate else sample


def _spread(root: Float[Tensor, "O M M"], noise: Float[Tensor, "S M O"]) -> Float[Tensor, "S M O"]:
    """T z, with a T for each output."""
    return (root @ noise.permute(2, 1, 0)).permute(2, 1, 0)


def _solve(root: Float[Tensor, "#S M M"], right: Float[Tensor, "#S M O"]) -> Float[Tensor, "#S M O"]:
    return solve_lower(root[:, None], right[:, None])[:, 0]
