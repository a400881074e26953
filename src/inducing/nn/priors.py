"""Priors over weights: specifications that a user writes, and the modules that a layer builds from them.

Every prior is independent over outputs, w ~ N(0, P^-1), and gives the structured precision P of one column of weights.
A prior with variables of its own also gives their KL. The weights into one output are ordered as `Fan` says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.distributions import Gamma, kl_divergence

from inducing.linalg.cholesky import cholesky
from inducing.linalg.noise import standard_gamma
from inducing.linalg.precision import BlockDiagonal, Kronecker, Precision, ScaledIdentity
from inducing.linalg.wishart import inverse_wishart_kl, inverse_wishart_log_prob, sample_inverse_wishart
from inducing.nn.pseudo import LOG_PRECISION_SCALE, lower_triangular
from inducing.nn.specification import KLKind, lookup


class Fan(NamedTuple):
    """The weights into one output, in the order of torch's patches: index ``channel * pixels + pixel``, the bias last.

    Arguments:
        channels: Channels of the input; all features of a linear layer.
        pixels: d, pixels of the kernel; 1 in a linear layer.
        bias: Whether there is a bias, one more weight.
    """

    channels: int
    pixels: int = 1
    bias: bool = False

    @property
    def fan_in(self) -> int:
        """F, the number of weights into one output."""
        return self.channels * self.pixels + self.bias


class PriorSample(NamedTuple):
    """The precision P of the weights into one output, and the KL of the prior's own variables."""

    precision: Precision
    kl: Float[Tensor, "#S"]


class PriorModule(nn.Module, ABC):
    """A prior with its parameters."""

    @abstractmethod
    def forward(self, num_samples: int, generator: Generator | None = None) -> PriorSample:
        """Sample the precision of the weights."""


@dataclass(frozen=True)
class Prior(ABC):
    """A specification of a prior: without tensors, immutable, shared between layers as one likes."""

    @abstractmethod
    def build(self, fan: Fan) -> PriorModule:
        """Make the parameters for a layer with these weights into each output."""


@dataclass(frozen=True)
class NealPrior(Prior):
    """w ~ N(0, I / fan_in): activations keep their scale through the layers (Neal, 1996)."""

    def build(self, fan: Fan) -> PriorModule:
        return _FixedScale(scale=float(fan.fan_in), fan_in=fan.fan_in)


@dataclass(frozen=True)
class StandardPrior(Prior):
    """w ~ N(0, I)."""

    def build(self, fan: Fan) -> PriorModule:
        return _FixedScale(scale=1.0, fan_in=fan.fan_in)


@dataclass(frozen=True)
class ScalePrior(Prior):
    """w ~ N(0, I / (fan_in s)), s ~ Gamma(shape, rate), Q(s) = Gamma(shape + alpha, rate + beta).

    alpha and beta are learned and positive. The KL of s is taken in closed form.

    Arguments:
        shape: Shape of the Gamma prior over the scale s of the precision.
        rate: Its rate.
    """

    shape: float = 2.0
    rate: float = 2.0

    def __post_init__(self) -> None:
        if not (self.shape > 0 and self.rate > 0):
            raise ValueError(f"ScalePrior needs shape > 0 and rate > 0, got {self.shape} and {self.rate}")

    def build(self, fan: Fan) -> PriorModule:
        return _GammaScale(self, fan.fan_in)


@dataclass(frozen=True)
class SpatialIWPrior(Prior):
    """Weights of one channel are correlated over the d pixels of the kernel, by a covariance that is learned.

    L is the precision over pixels, the same for every channel and output, and inverse-Wishart. So its inverse, the
    covariance, is Wishart distributed, as the paper says in words:

        w ~ N(0, P^-1),  P = fan_in (I (x) L),  or blockdiag(fan_in (I (x) L), fan_in) with a bias
        P(L) = IW((d + 1) I, d + 1),  Q(L) = IW((d + 1) I + Psi, d + 1 + nu)

    Psi, positive definite, and nu > 0 are learned. E[L^-1] = I under the prior, so on average weights have the covariance
    that `NealPrior` gives them; E[L] does not exist. At first Psi = I and nu = 1, where E[L^-1] = I under Q too. In linear
    layers and 1 x 1 kernels d = 1, and L^-1 is an exponentially distributed scale of the variance.

    Arguments:
        kl: The KL of L in "closed_form", or one "sample" of log Q - log P.

    References:
        Ober & Aitchison, Global inducing point variational posteriors (2021), Eq. for SpatialIWPrior; N there is d here.
    """

    kl: KLKind = "closed_form"

    def __post_init__(self) -> None:
        if self.kl not in get_args(KLKind):
            raise ValueError(f"kl must be one of {', '.join(map(repr, get_args(KLKind)))}, got {self.kl!r}")

    def build(self, fan: Fan) -> PriorModule:
        return _SpatialPrecision(self, fan)


class _FixedScale(PriorModule):
    """P = scale I."""

    scale: Tensor

    def __init__(self, scale: float, fan_in: int) -> None:
        super().__init__()
        self.fan_in = fan_in
        self.register_buffer("scale", torch.tensor([scale]), persistent=False)

    def forward(self, num_samples: int, generator: Generator | None = None) -> PriorSample:
        return PriorSample(ScaledIdentity(self.scale, self.fan_in), torch.zeros_like(self.scale))


class _GammaScale(PriorModule):
    """P = fan_in s I, s ~ Q(s)."""

    def __init__(self, prior: ScalePrior, fan_in: int) -> None:
        super().__init__()
        self.specification, self.fan_in = prior, fan_in
        self.log_alpha = nn.Parameter(torch.zeros(()))
        self.log_beta = nn.Parameter(torch.zeros(()))

    def forward(self, num_samples: int, generator: Generator | None = None) -> PriorSample:
        shape, rate = self.specification.shape, self.specification.rate
        posterior = Gamma(shape + self.log_alpha.exp(), rate + self.log_beta.exp(), validate_args=False)
        scale = standard_gamma(posterior.concentration.expand(num_samples), generator) / posterior.rate
        prior = Gamma(
            torch.full_like(posterior.rate, shape), torch.full_like(posterior.rate, rate), validate_args=False
        )
        return PriorSample(ScaledIdentity(self.fan_in * scale, self.fan_in), kl_divergence(posterior, prior)[None])


class _SpatialPrecision(PriorModule):
    """P = fan_in (I (x) L), L ~ Q(L), and fan_in for the bias."""

    scale: Tensor

    def __init__(self, prior: SpatialIWPrior, fan: Fan) -> None:
        super().__init__()
        self.fan = fan
        self.pixels = _LearnedInverseWishart(fan.pixels, prior.kl == "closed_form")
        self.register_buffer("scale", torch.tensor([float(fan.fan_in)]), persistent=False)

    def forward(self, num_samples: int, generator: Generator | None = None) -> PriorSample:
        pixels, kl = self.pixels(num_samples, generator)
        precision: Precision = Kronecker(ScaledIdentity(self.scale, self.fan.channels), pixels)
        if self.fan.bias:
            precision = BlockDiagonal(precision, ScaledIdentity(self.scale, 1))
        return PriorSample(precision, kl)


class _LearnedInverseWishart(PriorModule):
    """L of size d with P(L) = IW((d + 1) I, d + 1), Q(L) = IW((d + 1) I + RR', d + 1 + nu); R = D (I + N) and nu learned.

    The logarithms of D^2 and nu are stored at the scale of log-precisions, since both grow with the number of weights.
    """

    lower: nn.Parameter | None

    def __init__(self, size: int, closed_form_kl: bool) -> None:
        super().__init__()
        self.size, self.use_closed_form = size, closed_form_kl
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

    def posterior(self) -> tuple[Float[Tensor, "1 d d"], Float[Tensor, "1"]]:
        """The lower factor of (d + 1) I + Psi, and d + 1 + nu, in float64."""
        diagonal = (LOG_PRECISION_SCALE / 2 * self.scaled_log_diagonal.double()).exp()
        factor = diagonal[..., None] if self.lower is None else lower_triangular(diagonal, self.lower.double())
        identity = torch.eye(self.size, dtype=factor.dtype, device=factor.device)
        # GG' = (d + 1) I + Psi,  Psi = RR'
        root = cholesky((self.size + 1) * identity + factor @ factor.mT)
        return root, self.size + 1 + (LOG_PRECISION_SCALE * self.scaled_log_nu.double()).exp()


PRIORS: dict[str, type[Prior]] = {
    "neal": NealPrior,
    "standard": StandardPrior,
    "scale": ScalePrior,
    "spatial-iw": SpatialIWPrior,
}


def as_prior(prior: Prior | str) -> Prior:
    """Turn a name into a prior with its default settings."""
    return lookup("prior", prior, Prior, PRIORS)
