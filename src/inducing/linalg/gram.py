"""Gram matrices X' diag(lambda_g) X for many weightings g of the same rows, for layers with a precision per output.

Many small products X' (lambda_g X) become one large one: sum_n lambda_gn x_n x_n' is the product of the weights with
the outer products of the rows. The gradient with respect to X is the product of X with the concatenated gradients. One
sample and a few rows are processed at a time, so that temporaries stay in the cache and none is kept for the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.linalg.first_order import first_order_only

# rows to process at a time
ROWS = 128


def weighted_grams(inputs: Float[Tensor, "S n F"], weights: Float[Tensor, "G n"]) -> Float[Tensor, "S G F F"]:
    """Return A_g = X' diag(lambda_g) X for each row g of the weights."""
    return _WeightedGrams.apply(inputs, weights)


class _WeightedGrams(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(inputs, weights)
        (samples, rows, features), groups = inputs.shape, len(weights)
        grams = inputs.new_empty(samples, groups, features, features)
        outer = inputs.new_empty(min(rows, ROWS), features, features)
        for x, gram in zip(inputs, grams.flatten(2), strict=True):
            for chunk in _chunks(rows):
                # A_g = sum_n lambda_gn x_n x_n'
                products = torch.mul(x[chunk, :, None], x[chunk, None, :], out=outer[: len(x[chunk])])
                torch.addmm(gram, weights[:, chunk], products.flatten(1), beta=int(chunk.start > 0), out=gram)
        return grams

    @staticmethod
    @first_order_only
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        inputs, weights = ctx.saved_tensors
        (_, rows, features), groups = inputs.shape, len(weights)
        to_inputs, to_weights = torch.empty_like(inputs), weights.new_zeros(rows, groups)
        by_row = weights.mT[:, None].contiguous()
        symmetric = inputs.new_empty(features, groups, features)
        inner = inputs.new_empty(min(rows, ROWS), groups * features)
        for x, gradient, to_x in zip(inputs, gradients[0], to_inputs, strict=True):
            # dL = sum_g <G_g, dA_g>, D_g = G_g + G_g':  dL/dX = sum_g lambda_g X D_g,  dL/dlambda_gn = x_n' D_g x_n / 2
            torch.add(gradient.transpose(0, 1), gradient.mT.transpose(0, 1), out=symmetric)
            for chunk in _chunks(rows):
                # X D_g for all g, concatenated
                products = torch.mm(x[chunk], symmetric.flatten(1), out=inner[: len(x[chunk])])
                products = products.unflatten(1, (groups, features))
                to_x[chunk] = (by_row[chunk] @ products)[:, 0]
                to_weights[chunk] += (products @ x[chunk, :, None])[..., 0]
        return to_inputs, to_weights.mT / 2


def _chunks(rows: int) -> Iterator[slice]:
    return (slice(start, start + ROWS) for start in range(0, rows, ROWS))
