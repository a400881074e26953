"""Draws from N(A^-1 c, A^-1), where A = TT' depends on parameters, with a hand-written backward pass.

    p = T^-1 c,   mean = T^-T p,   draw = T^-T (p + z),   z ~ N(0, I),   and   log|A|,   root = T^-T with A^-1 = root root'

Autograd would compute an F x F gradient of T for every solve and for the log-determinant, add them up, and propagate the
sum through the factorisation. The gradient of T is not needed: dT = T Phi(T^-1 dA T^-T), where Phi keeps the lower
triangle and half of the diagonal, and T'draw = p + z. With x~ for the gradient with respect to x,

    d = T^-1 draw~,   b = d + T^-1 mean~,   c~ = T^-T b,   z~ = d,   A~ = T^-T K T^-1
    K = log|A|~ I - (Q + Q') / 2,   Q = Phi(b p' + p b' + z d' + root~' root)

The backward pass handles a few samples at a time, so that temporaries stay in the cache.

References:
    Murray, Differentiation of the Cholesky decomposition (2016).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.linalg.cholesky import logdet, solve_lower, solve_lower_transposed
from inducing.linalg.first_order import first_order_only
from inducing.linalg.roots import mirror_lower_

# elements to process at a time: 1 MiB in float32
CHUNK = 2**18


class Conditional(NamedTuple):
    """A draw from N(A^-1 c, A^-1) and log|A|; if requested, also the mean and a root of the covariance A^-1."""

    draw: Float[Tensor, "S G F C"]
    logdet: Float[Tensor, "#S G"]
    mean: Float[Tensor, "#S G F C"] | None = None
    root: Float[Tensor, "#S G F F"] | None = None


def condition(
    matrix: Float[Tensor, "#S G F F"],
    factor: Float[Tensor, "#S G F F"],
    cross: Float[Tensor, "#S G F C"],
    noise: Float[Tensor, "S G F C"],
    moments: bool = False,
) -> Conditional:
    """Draw from N(A^-1 c, A^-1).

    Arguments:
        matrix: A.
        factor: T with A = TT'. No gradient is propagated through it.
        cross: c.
        noise: z.
        moments: Whether to return also the mean and the root of the covariance.
    """
    return Conditional(*_Condition.apply(matrix, factor.detach(), cross, noise, moments))


class _Condition(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, matrix: Tensor, factor: Tensor, cross: Tensor, noise: Tensor, moments: bool
    ) -> tuple[Tensor, ...]:
        projected = solve_lower(factor, cross)
        draw = solve_lower_transposed(factor, projected + noise)
        # T^-1, by a solve from the right
        identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device).expand_as(factor)
        inverse = torch.linalg.solve_triangular(factor, identity, upper=False, left=False) if moments else None
        ctx.save_for_backward(factor, projected, noise, inverse)
        ctx.cross_samples = len(cross)
        ctx.set_materialize_grads(False)
        if inverse is None:
            return draw, logdet(factor)
        return draw, logdet(factor), solve_lower_transposed(factor, projected), inverse.mT.clone()

    @staticmethod
    @first_order_only
    def backward(
        ctx: Any,
        to_draw: Tensor | None,
        to_logdet: Tensor | None,
        to_mean: Tensor | None = None,
        to_root: Tensor | None = None,
    ) -> tuple[Tensor | None, ...]:
        factor, projected, noise, inverse = ctx.saved_tensors
        # d = T^-1 draw~,   b = d + T^-1 mean~
        to_noise = torch.zeros_like(noise) if to_draw is None else solve_lower(factor, to_draw)
        to_projected = _sum_shared_samples(to_noise, len(projected))
        if to_mean is not None:
            to_projected = to_projected + solve_lower(factor, to_mean)
        to_cross = _sum_shared_samples(solve_lower_transposed(factor, to_projected), ctx.cross_samples)
        # b p' + p b' + z d', in one product
        left = _concatenate_columns(len(factor), to_projected, projected, noise)
        right = _concatenate_columns(len(factor), projected, to_projected, to_noise)
        to_matrix = torch.empty_like(factor)
        step = max(1, CHUNK // factor[0].numel())
        for chunk in (slice(start, start + step) for start in range(0, len(factor), step)):
            inner = -left[chunk] @ right[chunk].mT
            if to_root is not None:
                # root~' root, with root = (T^-1)'
                inner -= to_root[chunk].mT @ inverse[chunk].mT
            # K = log|A|~ I - (Q + Q') / 2
            symmetric = mirror_lower_(inner)
            if to_logdet is not None:
                symmetric.diagonal(dim1=-2, dim2=-1).add_(to_logdet[chunk, :, None])
            # T^-T K T^-1 = (K T^-1)'T^-1, since K is symmetric
            once = torch.linalg.solve_triangular(factor[chunk], symmetric, upper=False, left=False)
            to_matrix[chunk] = torch.linalg.solve_triangular(factor[chunk], once.mT, upper=False, left=False)
        return to_matrix, None, to_cross, to_noise, None


def _sum_shared_samples(values: Float[Tensor, "..."], samples: int) -> Tensor:
    """Sum over the samples if they shared one value."""
    return values.sum(0, keepdim=True) if samples == 1 < len(values) else values


def _concatenate_columns(samples: int, *parts: Float[Tensor, "..."]) -> Tensor:
    """Concatenate the columns of all parts. Samples that share a matrix become columns, too."""
    if samples == 1:
        parts = tuple(part.permute(1, 2, 0, 3).flatten(2)[None] for part in parts)
    return torch.cat(parts, -1)
