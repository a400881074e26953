"""The Cholesky root R of a kernel matrix K = RR', and its inverse W = R^-1, with a hand-written backward pass.

A Gaussian process uses both many times. When K changes by dK, with Z = W dK W', Phi(M) the lower triangle
of M with its diagonal halved, and x~ the gradient with respect to x,

    dR = R Phi(Z),   dW = -Phi(Z) W,   so   K~ = W' (Q + Q')/2 W,   Q = Phi(R'R~ - W~W')

These are products of matrices only, without the triangular solves that autograd would use for each of R and W.

References:
    Murray, Differentiation of the Cholesky decomposition (2016).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.linalg.cholesky import factorise
from inducing.linalg.first_order import first_order_only


class Roots(NamedTuple):
    """R and W of K = RR', W = R^-1."""

    root: Float[Tensor, "*batch M M"]
    inverse: Float[Tensor, "*batch M M"]


def find_roots(matrix: Float[Tensor, "*batch M M"]) -> Roots:
    """Factorise K = RR', and invert R."""
    with_jitter, factor = factorise(matrix)
    return Roots(*_Roots.apply(with_jitter, factor.detach()))


class _Roots(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
        identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
        # a solve from the right, which MKL does twice as fast
        inverse = torch.linalg.solve_triangular(factor, identity.expand_as(factor), upper=False, left=False)
        ctx.save_for_backward(factor, inverse)
        ctx.set_materialize_grads(False)
        return factor.clone(), inverse

    @staticmethod
    @first_order_only
    def backward(ctx: Any, to_root: Tensor | None, to_inverse: Tensor | None) -> tuple[Tensor | None, None]:
        factor, inverse = ctx.saved_tensors
        if to_root is None and to_inverse is None:
            return None, None
        # R'R~ - W~W'
        inner = torch.zeros_like(factor) if to_root is None else factor.mT @ to_root
        if to_inverse is not None:
            inner -= to_inverse @ inverse.mT
        return inverse.mT @ mirror_lower_(inner) @ inverse, None


def mirror_lower_(inner: Float[Tensor, "*batch M M"]) -> Float[Tensor, "*batch M M"]:
    """Return (Q + Q') / 2 for Q = Phi(inner), the lower triangle with its diagonal halved. `inner` is overwritten."""
    # a product with a mask costs a third of tril
    half = inner.new_full(inner.shape[-2:], 0.5).tril_()
    half.diagonal().mul_(0.5)
    lower = inner.mul_(half)
    return lower + lower.mT
