"""X' diag(lambda_g) X for many weightings of the same rows: what a layer with a precision for each output needs.

Many small products X' (lambda_g X) become one large one with (lambda_1 X, lambda_2 X, ...) side by side, forward and
backward, and nothing of the size of the rows times the outputs is kept in between.
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
        # (lambda_1 X, ..., lambda_G X), n x GF
        side_by_side = (inputs[:, :, None] * weights.mT[None, :, :, None]).flatten(2)
        return (inputs.mT @ side_by_side).unflatten(-1, (len(weights), -1)).transpose(1, 2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        inputs, weights = ctx.saved_tensors
        # dL = sum_g <G_g, dA_g>, D_g = G_g + G_g':   dL/dX = sum_g lambda_g X D_g,   dL/dlambda_gn = x_n' D_g x_n / 2
        symmetric = gradients[0] + gradients[0].mT
        products = (inputs @ symmetric.transpose(1, 2).flatten(2)).unflatten(-1, (len(weights), -1))
        to_inputs = (weights.mT[None, :, None] @ products)[:, :, 0]
        to_weights = (products @ inputs[..., None])[..., 0].sum(0).mT / 2
        return to_inputs, to_weights
