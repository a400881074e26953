"""Priors with learned correlations between the weights into one output.

With precisions L_c over the input channels and L_p over the d pixels of the kernel, both shared by all outputs,

    w ~ N(0, P^-1),  P = fan_in (L_c (x) L_p),  or blockdiag(fan_in (L_c (x) L_p), fan_in) with a bias

Each L is the identity, or an n x n inverse-Wishart matrix with an inverse-Wishart posterior:

    P(L) = IW((n + 1) I, n + 1),  Q(L) = IW((n + 1) I + Psi, n + 1 + nu)

So the covariance L^-1 is Wishart distributed. The positive definite Psi and nu > 0 are learned. Under the prior E[L^-1] = I,
so the mean covariance of the weights is that of `NealPrior`, and E[L] does not exist. Initially Psi = nu I, and E[L^-1] = I
under Q, too. For n = 1, as for L_p in linear layers, L^-1 is an exponentially distributed scale.
"""

from __future__ import annotations

import math
from abc import ABC
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from inducing.checks import check_between
from inducing.linalg.cholesky import cholesky
from inducing.linalg.precision import BlockDiagonal, Kronecker, Precision, ScaledIdentity
from inducing.linalg.wishart import (
    InverseWishartSample,
    inverse_wishart_kl,
    inverse_wishart_log_prob,
    sample_inverse_wishart,
)
from inducing.nn.by_name import KLKind, check_choice
from inducing.nn.parameterisation import LOG_PRECISION_SCALE, lower_triangular
from inducing.nn.priors.base import Prior, PriorDensity, PriorModule, PriorSample, WeightLayout, missing_variables

# initial degrees of freedom, with which float32 has digits enough
LEAST_INITIAL, MOST_INITIAL = 1e-3, 1e6


@dataclass(frozen=True)
class InverseWishartPrior(Prior, ABC):
    """Base class of priors with P = fan_in (L_c (x) L_p) and inverse-Wishart L_c or L_p."""

    kl: KLKind = "closed_form"
    initial: float = 1.0

    def __post_init__(self) -> None:
        check_choice("kl", self.kl, KLKind)
        check_between("initial", self.initial, LEAST_INITIAL, MOST_INITIAL, ". The default is 1")


@dataclass(frozen=True)
class SpatialIWPrior(InverseWishartPrior):
    """Prior with weights correlated over the d pixels of the kernel: P = fan_in (I (x) L_p).

    In linear layers and 1 x 1 kernels d = 1, and L_p^-1 is an exponentially distributed scale of the variance.

    Arguments:
        kl: The KL of L_p in "closed_form", or one "sample" of log Q - log P.
        initial: Initial nu; Psi starts at nu I. Larger values start with a smaller variance of L_p under Q. With factorised
            posteriors 400 trains faster, with global ones 1 was better: ELBO per image after 800 steps on 500 images of
            MNIST, single runs: factorised -9.4 (1), -3.2 (400); global -1.1 (1), -1.3 (20).

    References:
        Ober & Aitchison, Global inducing point variational posteriors (2021), Eq. 19; N there is d here.
    """

    def build(self, layout: WeightLayout) -> PriorModule:
        return KroneckerPrecision(layout, None, LearnedInverseWishart(layout.pixels, self))


@dataclass(frozen=True)
class ChannelIWPrior(InverseWishartPrior):
    """Prior with weights correlated over the input channels: P = fan_in (L_c (x) I).

    In a linear layer the channels are the input features. The covariance L_c^-1 then describes which inputs are relevant
    (automatic relevance determination) and which are correlated. L_c has channels^2 parameters and costs channels^3
    operations.

    Arguments:
        kl: The KL of L_c in "closed_form", or one "sample" of log Q - log P.
        initial: Initial nu, see `SpatialIWPrior`.

    Example:
        >>> import inducing, torch
        >>> layer = inducing.Linear(3, 1, prior="channel-iw", posterior="factorised")
        >>> network = inducing.Network([layer])
        >>> network.draw(num_samples=5).layers[0].prior_kl.shape
        torch.Size([5])
    """

    def build(self, layout: WeightLayout) -> PriorModule:
        return KroneckerPrecision(layout, LearnedInverseWishart(layout.channels, self), None)


@dataclass(frozen=True)
class KroneckerIWPrior(InverseWishartPrior):
    """Prior with weights correlated over input channels and over pixels: P = fan_in (L_c (x) L_p).

    The KL is the sum of the KLs of L_c and L_p. The scales of L_c and L_p are not identified: (c L_c) (x) (L_p / c) is the
    same P for every c > 0. This does no harm, since their priors are proper and keep each scale near 1. Interpret only the
    product or the correlations, not the scale of one of them. With one pixel, L_p is only a scale; with one channel, L_c is.

    Arguments:
        kl: The KL of L_c and L_p in "closed_form", or one "sample" of log Q - log P.
        initial: Initial nu of both, see `SpatialIWPrior`.
    """

    def build(self, layout: WeightLayout) -> PriorModule:
        channels, pixels = (LearnedInverseWishart(size, self) for size in (layout.channels, layout.pixels))
        return KroneckerPrecision(layout, channels, pixels)


class KroneckerPrecision(PriorModule):
    """P = fan_in (L_c (x) L_p), and fan_in for the bias. L_c and L_p are learned, or None for the identity."""

    scale: Tensor

    def __init__(
        self, layout: WeightLayout, channels: LearnedInverseWishart | None, pixels: LearnedInverseWishart | None
    ) -> None:
        super().__init__()
        self.layout, self.channels, self.pixels = layout, channels, pixels
        self.register_buffer("scale", torch.tensor([float(layout.fan_in)]), persistent=False)

    def forward(self, num_samples: int, generator: Generator | None = None) -> PriorSample:
        kl = torch.zeros_like(self.scale)
        channels: Precision = ScaledIdentity(self.scale, self.layout.channels)
        pixels: Precision = ScaledIdentity(torch.ones_like(self.scale), self.layout.pixels)
        if self.channels is not None:
            sample, member_kl = self.channels(num_samples, generator)
            channels, kl = Kronecker(ScaledIdentity(self.scale, 1), sample), kl + member_kl
        if self.pixels is not None:
            pixels, member_kl = self.pixels(num_samples, generator)
            kl = kl + member_kl
        precision: Precision = Kronecker(channels, pixels)
        if self.layout.bias:
            precision = BlockDiagonal(precision, ScaledIdentity(self.scale, 1))
        return PriorSample(precision, kl)

    def log_density(self, precision: Precision | None) -> PriorDensity:
        product = precision.first if self.layout.bias and isinstance(precision, BlockDiagonal) else precision
        if precision is None or not isinstance(product, Kronecker):
            raise missing_variables("the matrices of its inverse-Wishart prior")
        channels, pixels = product.first, product.last
        posterior = prior = torch.zeros_like(self.scale, dtype=torch.float64)
        members = [(self.channels, channels.last if isinstance(channels, Kronecker) else None), (self.pixels, pixels)]
        for member, sample in members:
            if member is not None:
                density = member.log_density(sample)
                posterior, prior = posterior + density.posterior, prior + density.prior
        return PriorDensity(precision, posterior, prior)


class LearnedInverseWishart(PriorModule):
    """L of size n with P(L) = IW((n + 1) I, n + 1) and Q(L) = IW((n + 1) I + RR', n + 1 + nu).

    R = D (I + N) and nu are learned. The logarithms of D^2 and nu are stored at the scale of log-precisions, since both grow
    with the number of weights.
    """

    lower: nn.Parameter | None

    def __init__(self, size: int, prior: InverseWishartPrior) -> None:
        super().__init__()
        self.size, self.use_closed_form = size, prior.kl == "closed_form"
        start = math.log(prior.initial) / LOG_PRECISION_SCALE
        self.scaled_log_nu = nn.Parameter(torch.full((1,), start))
        self.scaled_log_diagonal = nn.Parameter(torch.full((1, size), start))
        # a 1 x 1 matrix has no elements below its diagonal
        self.lower = nn.Parameter(torch.zeros(1, size, size)) if size > 1 else None

    def forward(self, num_samples: int, generator: Generator | None = None) -> PriorSample:
        dtype = self.scaled_log_nu.dtype
        # in float64, since the KL is a difference of terms that grow like nu log nu
        root, degrees = self.posterior()
        sample = sample_inverse_wishart(root.to(dtype), degrees, num_samples, generator)
        if self.use_closed_form:
            kl = inverse_wishart_kl(root, degrees, *self._prior(degrees))
        else:
            density = self.log_density(sample)
            kl = density.posterior - density.prior
        return PriorSample(sample, kl.to(dtype))

    def log_density(self, precision: Precision | None) -> PriorDensity:
        if not isinstance(precision, InverseWishartSample):
            raise missing_variables("the matrices of its inverse-Wishart prior")
        root, degrees = self.posterior()
        wide = precision.to(torch.float64)
        prior = inverse_wishart_log_prob(wide, *self._prior(degrees))
        return PriorDensity(precision, inverse_wishart_log_prob(wide, root, degrees), prior)

    def posterior(self) -> tuple[Float[Tensor, "1 n n"], Float[Tensor, "1"]]:
        """Return the lower factor of (n + 1) I + Psi, and n + 1 + nu, in float64."""
        diagonal = (LOG_PRECISION_SCALE / 2 * self.scaled_log_diagonal.double()).exp()
        factor = diagonal[..., None] if self.lower is None else lower_triangular(diagonal, self.lower.double())
        identity = torch.eye(self.size, dtype=factor.dtype, device=factor.device)
        # GG' = (n + 1) I + Psi,  Psi = RR'
        root = cholesky((self.size + 1) * identity + factor @ factor.mT)
        return root, self.size + 1 + (LOG_PRECISION_SCALE * self.scaled_log_nu.double()).exp()

    def _prior(self, like: Float[Tensor, "1"]) -> tuple[Float[Tensor, "1 n n"], Float[Tensor, "1"]]:
        """Return the lower factor of (n + 1) I, and n + 1."""
        degrees = torch.full_like(like, self.size + 1)
        return degrees.sqrt() * torch.eye(self.size, dtype=like.dtype, device=like.device)[None], degrees
