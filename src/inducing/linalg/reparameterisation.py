"""Implicit reparameterisation gradients of draws w from N(m, A^-1), m = A^-1 c.

A gradient of E[f(w)] needs a derivative dw of each draw that gives the right change of the distribution. This dw is not
unique. When c and A change by dc and dA, one choice is

    dw = A^-1 (dc - dA u),   u = (m + w) / 2

The mean changes by A^-1 (dc - dA m), and w - m by -A^-1 dA (w - m) / 2, which changes the covariance by -A^-1 dA A^-1.
Neither A nor its factor is differentiated: dc - dA u is the differential of the residual c - A u at a fixed u. For a
regression this is X' Lambda (v - X u) - P u, and it costs about as much as running the layer twice. The usual derivative,
for fixed noise z in w = m + T^-T z, needs an F x F matrix for each output.

Of log Q(w) - log P(w), log Q is differentiated only through w, which gives -A (w - m). Its derivative with respect to c and
A at a fixed w has zero expectation. Leaving it out reduces the variance of the gradient. Where Q is the exact posterior, the
gradient of Q's parameters then has no variance at all.

References:
    Roeder, Wu & Duvenaud, Sticking the landing (2017). Figurnov, Mohamed & Mnih, Implicit reparameterization gradients
    (2018). Jankowiak & Obermeyer, Pathwise derivatives beyond the reparameterization trick (2018).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.autocasting import never_autocast
from inducing.linalg.first_order import first_order_only
from inducing.linalg.precision import Precision
from inducing.linalg.pseudo_likelihood import PseudoOutputs, by_group, by_output, multiply_samples, samples_as_columns

Weights = Float[Tensor, "S F O"]


class Pulled(NamedTuple):
    """Intermediate results of the backward pass: g = A^-1 w~, and whitened rows.

    Arguments:
        weights: g.
        reached: L'X g. It is passed on, since the product of X with g is inaccurate where n < F and Lambda is high.
        missing: L'(v - X u).
    """

    weights: Weights
    reached: Float[Tensor, "S n O"]
    missing: Float[Tensor, "S n O"]


class Solution(NamedTuple):
    """A draw and the values that its gradient needs. None of them is part of an autograd graph.

    Arguments:
        draw: w.
        middle: u.
        kl: log Q(w) - log P(w).
        pull: Computes `Pulled` from the gradients with respect to w and to the KL. The gradient of the KL with respect
            to w is P w - A (w - m).
    """

    draw: Weights
    middle: Weights
    kl: Float[Tensor, " S"]
    pull: Callable[[Weights | None, Float[Tensor, " S"] | None], Pulled]


def follow(
    solution: Solution, inputs: Float[Tensor, "#S n F"], pseudo_outputs: PseudoOutputs, prior: Precision
) -> tuple[Weights, Float[Tensor, " S"]]:
    """Return the draw and its log Q - log P, with gradients."""
    if not torch.is_grad_enabled():
        return solution.draw, solution.kl
    terms = prior_terms(solution.draw, solution.middle, prior)
    followed: tuple[Tensor, Tensor] = _RegressionGradient.apply(solution, inputs, *pseudo_outputs, *terms)
    return followed


def prior_terms(draw: Weights, middle: Weights, prior: Precision) -> tuple[Weights, Float[Tensor, " S"] | None]:
    """Return what the prior adds to the gradients: P u, and -log P(w) up to a constant if P is learned."""
    of_middle = prior.matmul(middle[:, None])[:, 0]
    # at a fixed w it depends only on P
    learned = of_middle.requires_grad
    energy = (prior.quadratic(draw[:, None]) - draw.shape[-1] * prior.logdet()) / 2 if learned else None
    return of_middle, energy


class _RegressionGradient(torch.autograd.Function):
    """w and its KL, with dw = A^-1 d(X' Lambda (v - X u) - P u) and dKL = slope'dw + d(energy)."""

    @staticmethod
    def forward(
        ctx: Any,
        solution: Solution,
        inputs: Tensor,
        values: Tensor,
        root: Tensor,
        of_middle: Tensor,
        energy: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(solution.middle, inputs, values, root)
        ctx.pull = solution.pull
        ctx.set_materialize_grads(False)
        return solution.draw.view_as(solution.draw), solution.kl.view_as(solution.kl)

    @staticmethod
    @first_order_only
    @never_autocast
    def backward(ctx: Any, to_draw: Tensor | None, to_kl: Tensor | None) -> tuple[Tensor | None, ...]:
        middle, inputs, values, root = ctx.saved_tensors
        if to_draw is None and to_kl is None:
            return (None,) * 6
        # g = A^-1 w~,   residual = X' Lambda r - P u with r = v - X u:   X~ = Lambda r g' - Lambda X g u',   v~ = Lambda X g
        pulled, reached, missing = ctx.pull(to_draw, to_kl)
        weighted, to_root = _apply_precision(root, reached, missing)
        to_inputs = None
        if ctx.needs_input_grad[1]:
            to_inputs = torch.baddbmm(weighted.missing @ pulled.mT, weighted.reached, middle.mT, alpha=-1)
            to_inputs = to_inputs.sum_to_size(inputs.shape)
        to_of_middle, to_energy = (-pulled, to_kl) if ctx.needs_input_grad[4] else (None, None)
        return None, to_inputs, weighted.reached.sum_to_size(values.shape), to_root, to_of_middle, to_energy


class _Weighted(NamedTuple):
    """Lambda X g and Lambda r."""

    reached: Float[Tensor, "S n O"]
    missing: Float[Tensor, "S n O"]


def _apply_precision(
    root: Float[Tensor, "G n"] | Float[Tensor, "G n n"],
    reached: Float[Tensor, "S n O"],
    missing: Float[Tensor, "S n O"],
) -> tuple[_Weighted, Tensor]:
    """Lambda X g and Lambda r from L'X g and L'r, and the gradient of (X g)' Lambda r with respect to L."""
    if root.ndim == 2:
        # 2 l_n (X g)_n r_n, summed over the outputs that share it
        to_root = (
            2 * (reached * missing).sum(0).mT.sum_to_size(root.shape) / root.clamp_min(torch.finfo(root.dtype).tiny)
        )
        return _Weighted(root.mT * reached, root.mT * missing), to_root
    reached, missing = (by_group(rows, len(root)) for rows in (reached, missing))
    whitened = [samples_as_columns(rows) for rows in (reached, missing)]
    unwhitened = [torch.linalg.solve_triangular(root.mT, rows, upper=True) for rows in whitened]
    # X g (L'r)' + r (L'X g)', summed over samples
    to_root = torch.baddbmm(unwhitened[0] @ whitened[1].mT, unwhitened[1], whitened[0].mT)
    return _Weighted(*(by_output(multiply_samples(root, rows)) for rows in (reached, missing))), to_root
