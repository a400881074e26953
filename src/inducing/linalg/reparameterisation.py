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
from inducing.linalg.pseudo_likelihood import (
    PseudoOutputs,
    by_group,
    by_output,
    columns_as_samples,
    samples_as_columns,
)

Weights = Float[Tensor, "S F O"]


class Adjoint(NamedTuple):
    """Values of the backward pass.

    Arguments:
        weights: g = A^-1 w~, where w~ is the gradient with respect to w, including the gradient of the KL.
        outputs: X g, if a product of X with g would be inaccurate, as it is where n < F and Lambda is high.
        residual: v - X u, likewise.
    """

    weights: Weights
    outputs: Float[Tensor, "S n O"] | None = None
    residual: Float[Tensor, "S n O"] | None = None


class Solution(NamedTuple):
    """A draw and the values that its gradient needs. None of them is part of an autograd graph.

    Arguments:
        draw: w.
        middle: u.
        kl: log Q(w) - log P(w).
        adjoint: Computes g from the gradients with respect to w and to the KL. The gradient of the KL with respect to w is
            P w - A (w - m).
    """

    draw: Weights
    middle: Weights
    kl: Float[Tensor, " S"]
    adjoint: Callable[[Weights | None, Float[Tensor, " S"] | None], Adjoint]


def with_gradients(
    solution: Solution, inputs: Float[Tensor, "#S n F"], pseudo_outputs: PseudoOutputs, prior: Precision
) -> tuple[Weights, Float[Tensor, " S"]]:
    """Return the draw and its log Q - log P, with gradients."""
    if not torch.is_grad_enabled():
        return solution.draw, solution.kl
    terms = prior_terms(solution, prior)
    weights_and_kl: tuple[Tensor, Tensor] = _RegressionGradient.apply(solution, inputs, *pseudo_outputs, *terms)
    return weights_and_kl


def prior_terms(solution: Solution, prior: Precision) -> tuple[Weights, Float[Tensor, " S"]] | tuple[None, None]:
    """Return P u, and -log P(w) up to a constant at a fixed w. Both are None if P is not learned."""
    if not prior.requires_grad:
        return None, None
    energy = (prior.quadratic(solution.draw[:, None]) - solution.draw.shape[-1] * prior.logdet()) / 2
    return prior.matmul(solution.middle[:, None])[:, 0], energy


class _RegressionGradient(torch.autograd.Function):
    """w and its KL, with dw = A^-1 d(X' Lambda (v - X u) - P u). The KL depends on w, and on P by the energy."""

    @staticmethod
    def forward(
        ctx: Any,
        solution: Solution,
        inputs: Tensor,
        values: Tensor,
        root: Tensor,
        prior_middle: Tensor | None,
        energy: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(inputs, values, root)
        ctx.solution = solution
        ctx.set_materialize_grads(False)
        return solution.draw.view_as(solution.draw), solution.kl.view_as(solution.kl)

    @staticmethod
    @first_order_only
    @never_autocast
    def backward(ctx: Any, to_draw: Tensor | None, to_kl: Tensor | None) -> tuple[Tensor | None, ...]:
        if to_draw is None and to_kl is None:
            return (None,) * 6
        inputs, values, root = ctx.saved_tensors
        middle = ctx.solution.middle
        adjoint, outputs, residual = ctx.solution.adjoint(to_draw, to_kl)
        if outputs is None or residual is None:
            rows = inputs.expand(middle.shape[0], -1, -1)
            outputs, residual = torch.bmm(rows, adjoint), torch.baddbmm(values, rows, middle, alpha=-1)
        # v~ = Lambda X g,   X~ = Lambda (v - X u) g' - Lambda X g u'
        weighted_outputs, weighted_residual, to_root = _apply_precision(root, outputs, residual)
        to_inputs = None
        if ctx.needs_input_grad[1]:
            to_inputs = torch.bmm(weighted_residual, adjoint.mT).baddbmm_(weighted_outputs, middle.mT, alpha=-1)
            to_inputs = to_inputs.sum_to_size(inputs.shape)
        to_prior_middle, to_energy = (-adjoint, to_kl) if ctx.needs_input_grad[4] else (None, None)
        return None, to_inputs, weighted_outputs.sum_to_size(values.shape), to_root, to_prior_middle, to_energy


def _apply_precision(
    root: Float[Tensor, "G n"] | Float[Tensor, "G n n"],
    outputs: Float[Tensor, "S n O"],
    residual: Float[Tensor, "S n O"],
) -> tuple[Float[Tensor, "S n O"], Float[Tensor, "S n O"], Tensor]:
    """Return Lambda X g, Lambda r, and the gradient of (X g)' Lambda r with respect to L, where Lambda = LL'."""
    if root.ndim == 2:
        # 2 l_n (X g)_n r_n, summed over samples and over the outputs that share it
        products = outputs * residual
        to_root = 2 * root * (products.sum((0, 2)) if root.shape[0] == 1 else products.sum(0).mT)
        precision = root.square().mT
        return precision * outputs, precision * residual, to_root
    rows = [samples_as_columns(by_group(each, len(root))) for each in (outputs, residual)]
    whitened = [root.mT @ each for each in rows]
    # X g (L'r)' + r (L'X g)', summed over samples
    to_root = torch.baddbmm(rows[0] @ whitened[1].mT, rows[1], whitened[0].mT)
    weighted = [by_output(columns_as_samples(root @ each, len(outputs))) for each in whitened]
    return weighted[0], weighted[1], to_root
