"""Implicit reparameterisation gradients (`inducing.linalg.reparameterisation`) of the weights of a convolution.

With the matrix of patches X, pseudo-outputs v with precisions lambda, u = (m + w) / 2 and g = A^-1 w~, the gradients are

    v~ = lambda X g,   X~ = lambda (v - X u) g' - lambda X g u',   lambda~ = <X g, v - X u>

X g and X u are one convolution with twice the outputs, and the gradient of the images is its transpose. So this costs four
convolutions. The gradients of the Gram matrix and of the cross term would cost five, and solves with F x F matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional
from torch.nn.grad import conv2d_input

from inducing.autocasting import never_autocast
from inducing.linalg.convolution.geometry import Geometry
from inducing.linalg.convolution.patches import by_image, chunks
from inducing.linalg.first_order import first_order_only
from inducing.linalg.precision import Precision
from inducing.linalg.reparameterisation import Solution, prior_terms


def convolution_with_gradients(
    solution: Solution,
    maps: Float[Tensor, "#S M C H W"],
    values: Float[Tensor, "M O h w"],
    precisions: Float[Tensor, "G M"],
    prior: Precision,
    geometry: Geometry,
) -> tuple[Float[Tensor, "S F O"], Float[Tensor, " S"]]:
    """Return the draw of a convolution's weights and its log Q - log P, with gradients.

    Arguments:
        solution: The draw.
        maps: The inducing images.
        values: v.
        precisions: lambda, for each of G groups of outputs.
        prior: P.
        geometry: The patches. The last feature of the weights is the bias if they have one more than a patch.
    """
    if not torch.is_grad_enabled():
        return solution.draw, solution.kl
    terms = prior_terms(solution, prior)
    attached: tuple[Tensor, Tensor] = _ConvolutionGradient.apply(solution, maps, values, precisions, geometry, *terms)
    return attached


class _ConvolutionGradient(torch.autograd.Function):
    """w and its KL, with dw = A^-1 d(X' Lambda (v - X u) - P u) and dKL = slope'dw + d(energy)."""

    @staticmethod
    def forward(
        ctx: Any,
        solution: Solution,
        maps: Tensor,
        values: Tensor,
        precisions: Tensor,
        geometry: Geometry,
        prior_middle: Tensor | None,
        energy: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(solution.middle, maps, values, precisions)
        ctx.adjoint, ctx.geometry = solution.adjoint, geometry
        ctx.set_materialize_grads(False)
        return solution.draw.view_as(solution.draw), solution.kl.view_as(solution.kl)

    @staticmethod
    @first_order_only
    @never_autocast
    def backward(ctx: Any, to_draw: Tensor | None, to_kl: Tensor | None) -> tuple[Tensor | None, ...]:
        if to_draw is None and to_kl is None:
            return (None,) * 7
        middle, maps, values, precisions = ctx.saved_tensors
        adjoint = ctx.adjoint(to_draw, to_kl).weights
        # kernels of X g and X u, and of the transposed convolution
        (kernels, biases), (transposed, _) = (
            _as_kernels(torch.cat(pair, 2), maps.shape[2], ctx.geometry)
            for pair in ((adjoint, middle), (-middle, adjoint))
        )
        stride, padding = ctx.geometry.plain
        is_shared, outputs_share = len(maps) < len(adjoint), len(precisions) == 1
        to_maps = torch.empty_like(maps) if ctx.needs_input_grad[1] else None
        to_values, to_precisions = torch.empty_like(values), torch.zeros_like(precisions)
        for chunk in chunks(maps[:1], kernels.shape[1]):
            lambdas = by_image(precisions, chunk)
            for sample in range(len(adjoint)):
                index = 0 if is_shared else sample
                wrapped = ctx.geometry.wrap(maps[index, chunk])
                rows = functional.conv2d(wrapped, kernels[sample], biases[sample], stride, padding)
                reached, predicted = rows.chunk(2, 1)
                # v - X u, in place
                residual = torch.sub(values[chunk], predicted, out=predicted)
                # <X g, v - X u>
                products = torch.linalg.vecdot(reached.flatten(2), residual.flatten(2))
                to_precisions[:, chunk] += products.mT.sum_to_size(len(precisions), len(products))
                # lambda X g
                _store(to_values[chunk], reached * lambdas, add=sample > 0)
                if to_maps is None:
                    continue
                # -lambda X g u' + lambda (v - X u) g'; a precision that all outputs share is applied last
                if not outputs_share:
                    rows *= lambdas.repeat(1, 2, 1, 1)
                moved = ctx.geometry.unwrap(conv2d_input(wrapped.shape, transposed[sample], rows, stride, padding))
                moved = moved * lambdas if outputs_share else moved
                _store(to_maps[index, chunk], moved, add=is_shared and sample > 0)
        to_prior_middle, to_energy = (-adjoint, to_kl) if ctx.needs_input_grad[5] else (None, None)
        return None, to_maps, to_values, to_precisions, None, to_prior_middle, to_energy


def _as_kernels(
    weights: Float[Tensor, "S F O"], channels: int, geometry: Geometry
) -> tuple[Float[Tensor, "S O C k l"], Sequence[Tensor | None]]:
    """Return the kernel and the bias of each sample."""
    features = channels * len(geometry.places)
    kernels = weights[:, :features].mT.unflatten(2, (channels, *geometry.kernel_size)).contiguous()
    return kernels, weights[:, features].unbind() if weights.shape[1] > features else [None] * len(weights)


def _store(total: Tensor, values: Tensor, *, add: bool) -> None:
    """Write values, or add them to what is there."""
    if add:
        total += values
    else:
        total.copy_(values)
