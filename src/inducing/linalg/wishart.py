"""Inverse-Wishart distribution over d x d matrices with real degrees of freedom nu > d - 1, by Bartlett's decomposition.

    T lower triangular, T_jj^2 ~ Gamma((nu - j + 1) / 2, rate 1/2), T_ij ~ N(0, 1) for i > j      then  TT' ~ W(I, nu)
    W(V, nu), V = CC'          S = BB' with B = CT,          logdet S = 2 sum log(C_jj T_jj),   tr(V^-1 S)   = |T|_F^2
    IW(Psi, nu), Psi = GG'     L = HH' with H = G T^-T,      logdet L = 2 sum log(G_jj / T_jj), tr(Psi L^-1) = |T|_F^2

L ~ IW(Psi, nu) if and only if L^-1 ~ W(Psi^-1, nu). A sample is never factorised again: with few degrees of freedom it is
close to singular, and factorising it would lose twice as many digits. Gradients are propagated through the Gamma draws and
are unbiased.

References:
    Bartlett, On the theory of statistical regression (1933).
    Ober & Aitchison, Global inducing point variational posteriors (2021), appendix on Wishart distributions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from inducing.linalg.cholesky import logdet, solve_lower, solve_lower_transposed
from inducing.linalg.noise import standard_gamma, standard_normal
from inducing.linalg.precision import Dense, Expectation, Precision, Weights

Root = Float[Tensor, "#S d d"]
Degrees = Float[Tensor, "#S"]


@dataclass(frozen=True, eq=False)
class InverseWishartSample(Precision):
    """A sample L = HH', H = G T^-T, of IW(GG', nu), stored as two triangular factors.

    Arguments:
        root: G.
        bartlett: T.
        degrees: nu, in float64 for the difference nu - d - 1.
    """

    root: Root
    bartlett: Float[Tensor, "#S d d"]
    degrees: Degrees

    @property
    def size(self) -> int:
        return self.root.shape[-1]

    @property
    def requires_grad(self) -> bool:
        return self.root.requires_grad or self.bartlett.requires_grad

    def to(self, dtype: torch.dtype) -> InverseWishartSample:
        return InverseWishartSample(self.root.to(dtype), self.bartlett.to(dtype), self.degrees)

    def dense(self) -> Float[Tensor, "#S F F"]:
        # H' = T^-1 G'
        transposed = solve_lower(self.bartlett[:, None], self.root.mT[:, None])[:, 0]
        return transposed.mT @ transposed

    def matmul(self, weights: Weights) -> Weights:
        # L w = G T^-T T^-1 G' w
        root, bartlett = self.root[:, None], self.bartlett[:, None]
        return root @ solve_lower_transposed(bartlett, solve_lower(bartlett, root.mT @ weights))

    def solve(self, weights: Weights) -> Weights:
        # L^-1 w = G^-T T T' G^-1 w
        return self.colour(self.bartlett.mT[:, None] @ solve_lower(self.root[:, None], weights))

    def colour(self, noise: Weights) -> Weights:
        # H^-T z = G^-T T z
        return solve_lower_transposed(self.root[:, None], self.bartlett[:, None] @ noise)

    def logdet(self) -> Float[Tensor, "#S"]:
        # 2 sum log(G_jj / T_jj)
        return logdet(self.root) - logdet(self.bartlett)

    def expectation(self) -> Expectation:
        # E[L] = Psi / (nu - d - 1), infinite for nu <= d + 1;  E[log |L|] = log |Psi| - d log 2 - psi_d(nu/2)
        dtype, root = self.root.dtype, self.root.double()
        mean = root @ root.mT / (self.degrees - self.size - 1).clamp_min(0.0)[:, None, None]
        volume = logdet(root) - self.size * math.log(2) - _shapes(self.degrees, self.size).digamma().sum(-1)
        return Expectation(Dense(mean.to(dtype)), volume.to(dtype))


def sample_inverse_wishart(
    root: Root, degrees: Degrees, num_samples: int, generator: Generator | None = None
) -> InverseWishartSample:
    """Sample IW(Psi, nu), Psi = GG'.

    Arguments:
        root: The lower factor G.
        degrees: nu > d - 1.
        num_samples: S.
        generator: Source of the noise.
    """
    bartlett = sample_bartlett(degrees.to(root.dtype), root.shape[-1], num_samples, generator)
    return InverseWishartSample(root, bartlett, degrees.double())


def sample_bartlett(
    degrees: Degrees, size: int, num_samples: int, generator: Generator | None = None
) -> Float[Tensor, "S d d"]:
    """Sample the lower factor T of TT' ~ W(I, nu)."""
    # T_jj^2 / 2 ~ Gamma((nu - j + 1) / 2, 1), clamped since an underflow would make the sample singular
    squares = standard_gamma(_shapes(degrees, size).expand(num_samples, -1), generator)
    diagonal = (2 * squares.clamp_min(torch.finfo(squares.dtype).tiny)).sqrt()
    return standard_normal((num_samples, size, size), degrees, generator).tril(-1) + torch.diag_embed(diagonal)


def inverse_wishart_log_prob(matrix: Precision, root: Root, degrees: Degrees) -> Float[Tensor, "#S"]:
    """Log-density log IW(L; Psi, nu) of the inverse-Wishart distribution, from the lower factor G of Psi = GG'."""
    # tr(Psi L^-1) = tr(G' L^-1 G)
    trace = (root * matrix.solve(root[:, None])[:, 0]).sum((-2, -1))
    power = degrees + matrix.size + 1
    return (degrees * logdet(root) - power * matrix.logdet() - trace) / 2 - _log_normaliser(degrees, matrix.size)


def inverse_wishart_kl(root: Root, degrees: Degrees, prior_root: Root, prior_degrees: Degrees) -> Float[Tensor, "#S"]:
    """KL of IW(Psi, nu) from IW(Psi0, nu0) in closed form, from the lower factors of Psi and Psi0.

    The KL does not change under L -> L^-1, so it equals the KL of two Wishart distributions. With E_Q[L^-1] = nu Psi^-1 and
    E_Q[log |L|] = log |Psi| - d log 2 - psi_d(nu/2), where psi_d is the derivative of log Gamma_d,

        KL = (nu0 (log |Psi| - log |Psi0|) + nu (tr(Psi^-1 Psi0) - d) + (nu - nu0) psi_d(nu/2)) / 2
             + log Gamma_d(nu0/2) - log Gamma_d(nu/2)
    """
    size = root.shape[-1]
    shapes, prior_shapes = _shapes(degrees, size), _shapes(prior_degrees, size)
    # tr(Psi^-1 Psi0) = |G^-1 G0|_F^2
    trace = solve_lower(root[:, None], prior_root[:, None]).square().sum((1, 2, 3))
    volume = prior_degrees * (logdet(root) - logdet(prior_root))
    drift = (degrees - prior_degrees) * shapes.digamma().sum(-1)
    gammas = prior_shapes.lgamma().sum(-1) - shapes.lgamma().sum(-1)
    return (volume + degrees * (trace - size) + drift) / 2 + gammas


def _shapes(degrees: Degrees, size: int) -> Float[Tensor, "#S d"]:
    """Return (nu - j + 1) / 2 for j = 1 .. d."""
    return (degrees[:, None] - torch.arange(size, dtype=degrees.dtype, device=degrees.device)) / 2


def _log_normaliser(degrees: Degrees, size: int) -> Float[Tensor, "#S"]:
    """Return nu d/2 log 2 + log Gamma_d(nu/2)."""
    constant = size * (size - 1) / 4 * math.log(math.pi)
    return degrees * size / 2 * math.log(2) + constant + _shapes(degrees, size).lgamma().sum(-1)
