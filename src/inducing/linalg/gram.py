"""X' diag(lambda_g) X for many weightings of the same rows: what a layer with a precision for each output needs.

Many small products X' (lambda_g X) become one large one with (lambda_1 X, lambda_2 X, ...) side by side, forward and
backward. One sample is done at a time, so that what is in between stays in the cache, and nothing of it is kept.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def weighted_grams(inputs: Float[Tensor, "S n F"], weights: Float[Tensor, "G n"]) -> Float[Tensor, "S G F F"]:
    """A_g = X' diag(lambda_g) X for each row g of the weights."""
    return _WeightedGrams.apply(inputs, weights)


class _WeightedGrams(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(inputs, weights)
        (samples, _, features), groups = inputs.shape, len(weights)
        grams, by_row = inputs.new_empty(samples, groups, features, features), weights.mT[:, :, None]
        for gram, rows in zip(grams, inputs, strict=True):
            # (lambda_1 X, ..., lambda_G X), n x GF
            side_by_side = (by_row * rows[:, None]).flatten(1)
            gram.copy_((rows.mT @ side_by_side).unflatten(-1, (groups, features)).transpose(0, 1))
        return grams

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        inputs, weights = ctx.saved_tensors
        (_, rows, features), groups = inputs.shape, len(weights)
        to_inputs, to_weights = torch.empty_like(inputs), weights.new_zeros(rows, groups)
        by_row = weights.mT[:, None].contiguous()
        for x, gradient, to_x in zip(inputs, gradients[0], to_inputs, strict=True):
            # dL = sum_g <G_g, dA_g>, D_g = G_g + G_g':  dL/dX = sum_g lambda_g X D_g,  dL/dlambda_gn = x_n' D_g x_n / 2
            symmetric = x.new_empty(features, groups, features)
            torch.add(gradient.transpose(0, 1), gradient.mT.transpose(0, 1), out=symmetric)
            products = (x @ symmetric.flatten(1)).unflatten(-1, (groups, features))
            to_x.copy_((by_row @ products)[:, 0])
            to_weights += (products @ x[..., None])[..., 0]
        return to_inputs, to_weights.mT / 2
