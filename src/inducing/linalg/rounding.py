"""Estimates of the rounding error of a regression's KL, from quantities that the regression computes anyway.

A sum of n products has a relative rounding error of about g = sqrt(n) u, with u the unit roundoff of the dtype (Higham &
Mary, 2019). A matrix A of such sums is factorised as A + E with |E_ij| <= g D_i D_j, D_i = sqrt(A_ii), for any scale of its
columns. The pivot ratios rho_i = A_ii / T_ii^2 of A = TT' measure how much this error grows in A^-1: the pivot T_ii^2 is the
part of A_ii that the columns before it do not explain. To first order in E

    logdet(A) / 2       changes by   tr(A^-1 E) / 2         about   g |rho| / 2
    w'Pw / 2            changes by   w'P A^-1 (f - E w)     about   g (|t| + |Dw|) sqrt(w'Pw k)
    t'B^-1 t / 2        changes by   a'Ea / 2,  a = B^-1 t  about   g |Da|^2 / 2
    |s - e|^2 / 2       changes by   (s - e)'B^-1 E s       about   g |Ds| min(r |D^-1 (s - e)|, sqrt(r) |s - e|)

with r = max_i rho_i and k = min(r, r^2 max_i P_ii / A_ii), since A^-1 P and B^-1 have no eigenvalue above 1, and f the
error of Y't. The primal form has the first two lines. The dual form has the first and the last two (with B for A). The
weights have a relative error of about g r. Groups of outputs with equal precisions have equal matrices, so their errors in
the first line are equal and add up. Their errors in the other lines are assumed to be independent.

These are estimates, not bounds. tests/linalg/test_rounding.py compares them with the errors of many kinds of problems.

References:
    Higham & Mary, A new approach to probabilistic rounding error analysis (2019).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.linalg.cholesky import Factorisation
from inducing.linalg.precision import Precision

# accepted errors of a regression in float32: half of the documented 0.1 nats (dense layers), and gradients accurate to 5e-4
MAX_KL_ERROR = 0.05
MAX_WEIGHT_ERROR = 1e-4
# accepted error of a convolution's KL, relative to the standard deviation of a sampled KL: float64 convolutions are slow
MAX_RELATIVE_KL_ERROR = 0.01


class Rounding(NamedTuple):
    """Estimated rounding errors, the largest over all samples.

    Arguments:
        kl: Absolute error of the KL, in nats.
        weights: Relative error of the weights.
    """

    kl: float
    weights: float

    def is_small(self, max_kl_error: float = MAX_KL_ERROR) -> bool:
        """Return whether both errors are acceptable. NaN and inf are not."""
        return self.kl <= max_kl_error and self.weights <= MAX_WEIGHT_ERROR


def max_kl_error_of_convolution(num_weights: int) -> float:
    """Return the accepted error of a convolution's KL in nats: 0.05, or sqrt(num_weights / 2) / 100 if that is more.

    sqrt(num_weights / 2) is the standard deviation of the term -|z|^2 / 2 of log Q - log P. Closed-form KLs have the same
    limit, since it is small beside the KL itself.
    """
    return max(MAX_KL_ERROR, MAX_RELATIVE_KL_ERROR * math.sqrt(num_weights / 2))


def primal_rounding(
    posterior: Factorisation,
    prior: Precision,
    draw: Float[Tensor, "S G F C"],
    energy: Float[Tensor, "S G"],
    num_terms: int,
    square: Float[Tensor, "#S G"] | None = None,
) -> Rounding:
    """Estimate the errors of the primal form.

    Arguments:
        posterior: A = P + Y'Y and its factor.
        prior: P.
        draw: w.
        energy: w'Pw.
        num_terms: n, the length of the sums in Y'Y.
        square: |t|^2, or None if only Y't is known.
    """
    diagonal, ratios, largest = _pivot_ratios(posterior)
    # k = min(r, r^2 max_i P_ii / A_ii)
    gain = torch.minimum(largest, largest.square() * (prior.diagonal()[:, None] / diagonal).amax(-1))
    # (|t| + |Dw|) sqrt(w'Pw k)
    reach = torch.linalg.vecdot(diagonal, draw.square().sum(-1)).sqrt()
    reach = reach if square is None else reach + square.sqrt()
    moved = reach * (energy * gain).sqrt()
    return _rounding(draw, ratios, largest, moved, num_terms)


def dual_rounding(
    evidence: Factorisation,
    solved_targets: Float[Tensor, "#S G n C"],
    dual: Float[Tensor, "S G n C"],
    row_noise: Float[Tensor, "S G n C"],
    num_terms: int,
) -> Rounding:
    """Estimate the errors of the dual form.

    Arguments:
        evidence: B = I + Y P^-1 Y' and its factor.
        solved_targets: a = B^-1 t.
        dual: s.
        row_noise: e.
        num_terms: F, the length of the sums in Y P^-1 Y'.
    """
    diagonal, ratios, largest = _pivot_ratios(evidence)
    missing = (dual - row_noise).square().sum(-1)
    # min(r |D^-1 (s - e)|, sqrt(r) |s - e|)
    gain = torch.minimum(largest * (missing / diagonal).sum(-1).sqrt(), (largest * missing.sum(-1)).sqrt())
    of_targets = (diagonal * solved_targets.square().sum(-1)).sum(-1) / 2
    moved = of_targets + (diagonal * dual.square().sum(-1)).sum(-1).sqrt() * gain
    return _rounding(dual, ratios, largest, moved, num_terms)


def _pivot_ratios(factorisation: Factorisation) -> tuple[Tensor, Tensor, Tensor]:
    """Return A_ii, rho_i and the largest rho_i."""
    diagonal = factorisation.matrix.diagonal(dim1=-2, dim2=-1)
    ratios = diagonal / factorisation.factor.diagonal(dim1=-2, dim2=-1).square()
    return diagonal, ratios, ratios.amax(-1)


def _rounding(
    like: Float[Tensor, "S G N C"],
    ratios: Float[Tensor, "#S G N"],
    largest: Float[Tensor, "#S G"],
    moved: Float[Tensor, "#S G"],
    num_terms: int,
) -> Rounding:
    # g = sqrt(n) u, with n the longer of the sums in the matrix and in its factorisation
    growth = math.sqrt(max(num_terms, ratios.shape[-1])) * torch.finfo(like.dtype).eps / 2
    of_logdet = like.shape[-1] / 2 * torch.linalg.vector_norm(ratios, dim=-1).sum(-1)
    kl = of_logdet + torch.linalg.vector_norm(moved, dim=-1)
    of_kl, of_weights = torch.stack([kl.amax(), largest.amax()]).tolist()
    return Rounding(growth * of_kl, growth * of_weights)
