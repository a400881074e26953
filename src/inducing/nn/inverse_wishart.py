"""Priors under which the weights into one output are correlated, by covariances that are learned.

With L_c a precision over the input channels and L_p one over the d pixels of the kernel, both the same for every output,

    w ~ N(0, P^-1),  P = fan_in (L_c (x) L_p),  or blockdiag(fan_in (L_c (x) L_p), fan_in) with a bias

and each L is the identity, or inverse-Wishart of its size n with an inverse-Wishart posterior:

    P(L) = IW((n + 1) I, n + 1),  Q(L) = IW((n + 1) I + Psi, n + 1 + nu)

So L^-1, the covariance, is Wishart distributed. Psi, positive definite, and nu > 0 are learned. E[L^-1] = I under the
prior, so on average weights have the covariance that `NealPrior` gives them; E[L] does not exist. At first Psi = I and
nu = 1, where E[L^-1] = I under Q too. Of size 1, as L_p is in linear layers, L^-1 is an exponentially distributed scale.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import get_args

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from inducing.linalg.cholesky import cholesky
from inducing.linalg.precision import BlockDiagonal, Kronecker, Precision, ScaledIdentity
from inducing.linalg.wishart import inverse_wishart_kl, inverse_wishart_log_prob, sample_inverse_wishart
from inducing.nn.fans import Fan, Prior, PriorModule, PriorSample
from inducing.nn.pseudo import LOG_PRECISION_SCALE, lower_triangular
from inducing.nn.specification import KLKind


@dataclass(frozen=True)
class InverseWishartPrior(Prior, ABC):
    """P = fan_in (L_c (x) L_p), with inverse-Wishart members."""

    kl: KLKind = "closed_form"

    def __post_init__(self) -> None:
        if self.kl not in get_args(KLKind):
            raise ValueError(f"kl must be one of {', '.join(map(repr, get_args(KLKind)))}, got {self.kl!r}")


@dataclass(frozen=True)
class SpatialIWPrior(InverseWishartPrior):
    """Weights of one channel are correlated over the d pixels of the kernel: P = fan_in (I (x) L_p).

    In linear layers and 1 x 1 kernels d = 1, and L_p^-1 is an exponentially distributed scale of the variance.

    Arguments:
        kl: The KL of L_p in "closed_form", or one "sample" of log Q - log P.

    References:
        Ober & Aitchison, Global inducing point variational posteriors (2021), Eq. for SpatialIWPrior; N there is d here.
    """

    def build(self, fan: Fan) -> PriorModule:
        return _KroneckerPrecision(fan, None, _LearnedInverseWishart(fan.pixels, self.kl))


@dataclass(frozen=True)
class ChannelIWPrior(InverseWishartPrior):
    """Weights of one pixel are correlated over the input channels: P = fan_in (L_c (x) I).

    In a linear layer channels are input features, and the covariance L_c^-1 is over all of them: which inputs matter
    (automatic relevance), and which matter together. L_c takes channels^2 parameters and channels^3 operations.

    Arguments:
        kl: The KL of L_c in "closed_form", or one "sample" of log Q - log P.

    Example:
        >>> import inducing, torch
        >>> layer = inducing.Linear(3, 1, prior="channel-iw", posterior="factorised")
        >>> network = inducing.Network([layer])
        >>> network.draw(num_samples=5).layers[0].prior_kl.shape
        torch.Size([5])
    """

    def build(self, fan: Fan) -> PriorModule:
        return _KroneckerPrecision(fan, _LearnedInverseWishart(fan.channels, self.kl), None)


@dataclass(frozen=True)
class KroneckerIWPrior(InverseWishartPrior):
    """Weights are correlated over input channels and over pixels: P = fan_in (L_c (x) L_p), both with their own KL.

    Only the product is a property of the weights: (c L_c) (x) (L_p / c) is the same P for every c > 0. Nothing need be
    fixed for that, since the priors of L_c and L_p are proper and hold each near scale one; but read off the product, or
    correlations, and never the scale of one of them. Where there is one pixel or one channel, its member is only a scale.

    Arguments:
        kl: The KL of L_c and L_p in "closed_form", or one "sample" of log Q - log P.
    """

    def build(self, fan: Fan) -> PriorModule:
        channels, pixels = (_LearnedInverseWishart(size, self.kl) for size in (fan.channels, fan.pixels))
        return _KroneckerPrecision(fan, channels, pixels)


class _KroneckerPrecision(PriorModule):
    """P = fan_in (L_c (x) L_p), and fan_in for the bias. Members are learned, or None for the identity."""

    scale: Tensor

    def __init__(
        self, fan: Fan, channels: _LearnedInverseWishart | None, pixels: _LearnedInverseWishart | None
    ) -> None:
        super().__init__()
        self.fan, self.channels, self.pixels = fan, channels, pixels
        self.register_buffer("scale", torch.tensor([float(fan.fan_in)]), persistent=False)

    def forward(self, num_samples: int, generator: Generator | None = None) -> PriorSample:
        kl = torch.zeros_like(self.scale)
        channels: Precision = ScaledIdentity(self.scale, self.fan.channels)
        pixels: Precision = ScaledIdentity(torch.ones_like(self.scale), self.fan.pixels)
        if self.channels is not None:
            sample, member_kl = self.channels(num_samples, generator)
            channels, kl = Kronecker(ScaledIdentity(self.scale, 1), sample), kl + member_kl
        if self.pixels is not None:
            pixels, member_kl = self.pixels(num_samples, generator)
            kl = kl + member_kl
        precision: Precision = Kronecker(channels, pixels)
        if self.fan.bias:
            precision = BlockDiagonal(precision, ScaledIdentity(self.scale, 1))
        return PriorSample(precision, kl)


class _LearnedInverseWishart(PriorModule):
    """L of size n with P(L) = IW((n + 1) I, n + 1), Q(L) = IW((n + 1) I + RR', n + 1 + nu); R = D (I + N) and nu learned.

    The logarithms of D^2 and nu are stored at the scale of log-precisions, since both grow with the number of weights.
    """

    lower: nn.Parameter | None

    def __init__(self, size: int, kl: KLKind) -> None:
        super().__init__()
        self.size, self.use_closed_form = size, kl == "closed_form"
        self.scaled_log_nu = nn.Parameter(torch.zeros(1))
        self.scaled_log_diagonal = nn.Parameter(torch.zeros(1, size))
        # a 1 x 1 matrix has nothing below its diagonal
        self.lower = nn.Parameter(torch.zeros(1, size, size)) if size > 1 else None

    def forward(self, num_samples: int, generator: Generator | None = None) -> PriorSample:
        dtype = self.scaled_log_nu.dtype
        # in float64, since the KL is a difference of terms that grow like nu log nu
        root, degrees = self.posterior()
        prior_degrees = torch.full_like(degrees, self.size + 1)
        prior_root = prior_degrees.sqrt() * torch.eye(self.size, dtype=root.dtype, device=root.device)[None]
        sample = sample_inverse_wishart(root.to(dtype), degrees.to(dtype), num_samples, generator)
        if self.use_closed_form:
            kl = inverse_wishart_kl(root, degrees, prior_root, prior_degrees)
        else:
            wide = sample.to(torch.float64)
            log_posterior = inverse_wishart_log_prob(wide, root, degrees)
            kl = log_posterior - inverse_wishart_log_prob(wide, prior_root, prior_degrees)
        return PriorSample(sample, kl.to(dtype))

    def posterior(self) -> tuple[Float[Tensor, "1 n n"], Float[Tensor, "1"]]:
        """The lower factor of (n + 1) I + Psi, and n + 1 + nu, in float64."""
        diagonal = (LOG_PRECISION_SCALE / 2 * self.scaled_log_diagonal.double()).exp()
        factor = diagonal[..., None] if self.lower is None else lower_triangular(diagonal, self.lower.double())
        identity = torch.eye(self.size, dtype=factor.dtype, device=factor.device)
        # GG' = (n + 1) I + Psi,  Psi = RR'
        root = cholesky((self.size + 1) * identity + factor @ factor.mT)
        return root, self.size + 1 + (LOG_PRECISION_SCALE * self.scaled_log_nu.double()).exp()
