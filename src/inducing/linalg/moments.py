"""Moments of a Gaussian process at many rows, given the whitened values at its inducing inputs.

With the rows k of the kernel matrix between data and inducing inputs, W = R^-1 of the kernel matrix K = RR' of the inducing
inputs, and whitened values with mean a and covariance TT' for each output, the moments of each row are

    A = k W',   mean = A a,   explained = |A|^2 - |A T|^2

The inducing values reduce the prior variance by `explained`. There are many rows: samples times data. Autograd would store
P = A T, which has rows x outputs x M numbers, and read it several times. Here, a few rows at a time are processed from start
to end, while they are in the cache, and the backward pass computes P again. With x~ for the gradient with respect to x,

    A~ = mean~ a' + 2 explained~ A - 2 explained~ P T',   k~ = A~ W,   W~ = A~'k,   a~ = A'mean~,   T~ = -2 A' explained~ P

A, |A|^2 and the mean are in float64, since W is large where inducing inputs are close together, and a variance is a small
difference. P is in the dtype of T: |A T|^2 is a sum of squares, and T is at most about 1 if the posterior is narrower than
the prior. So it keeps its digits in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.linalg.first_order import first_order_only

# elements to process at a time
CHUNK = 2**18


class Moments(NamedTuple):
    """Moments of each row: A a, and |A|^2 - |A T|^2."""

    mean: Float[Tensor, "S N O"]
    explained: Float[Tensor, "#S N #O"]


def moments_at_rows(
    cross: Float[Tensor, "#S N M"],
    inverse: Float[Tensor, "#S M M"],
    whitened: Float[Tensor, "#S M O"],
    spread: Float[Tensor, "#S #O M M"] | None = None,
) -> Moments:
    """Return the moments of all rows.

    Arguments:
        cross: k. A leading axis of 1, here and in the other arguments, means that all samples share it.
        inverse: W.
        whitened: a.
        spread: T, for each output or one for all. None if the values are known.
    """
    samples, rows, size = cross.shape
    # T of all outputs side by side
    columns = None if spread is None else spread.transpose(1, 2).flatten(2)
    shared = len(inverse) == 1 and (columns is None or len(columns) == 1)
    if shared and samples == 1:
        # samples of a become columns of one product
        side_by_side = whitened.permute(1, 0, 2).flatten(1)[None]
        mean, explained = _Moments.apply(cross, inverse, side_by_side, columns)
        return Moments(mean[0].unflatten(-1, whitened.shape[::2]).transpose(0, 1), explained)
    if shared and len(whitened) == 1:
        # samples of k become rows of one product
        folded = _Moments.apply(cross.reshape(1, samples * rows, size), inverse, whitened, columns)
        return Moments(*(each[0].unflatten(0, (samples, rows)) for each in folded))
    tensors = [tensor for tensor in (cross, inverse, whitened, columns) if tensor is not None]
    total = max(map(len, tensors))
    expanded = [tensor.expand(total, -1, -1) for tensor in tensors]
    return Moments(*_Moments.apply(*expanded, *([None] if columns is None else [])))


class _Moments(torch.autograd.Function):
    """The mean and what is explained, (S, N, 1) without T."""

    @staticmethod
    def forward(
        ctx: Any, cross: Tensor, inverse: Tensor, whitened: Tensor, columns: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        samples, rows, size = cross.shape
        outputs = 1 if columns is None else columns.shape[-1] // size
        projected, mean = cross.new_empty(cross.shape), cross.new_empty(samples, rows, whitened.shape[-1])
        explained = cross.new_empty(samples, rows, outputs)
        for part in _chunks(samples, rows, size * outputs):
            projected[:, part] = cross[:, part] @ inverse.mT
            mean[:, part] = projected[:, part] @ whitened
            explained[:, part] = _squared_norm(projected[:, part])[..., None]
            if columns is not None:
                products = (projected[:, part].to(columns.dtype) @ columns).unflatten(-1, (outputs, size))
                explained[:, part] -= _squared_norm(products)
        ctx.save_for_backward(cross, inverse, whitened, columns, projected)
        ctx.set_materialize_grads(False)
        return mean, explained

    @staticmethod
    @first_order_only
    def backward(ctx: Any, to_mean: Tensor | None, to_explained: Tensor | None) -> tuple[Tensor | None, ...]:
        cross, inverse, whitened, columns, projected = ctx.saved_tensors
        samples, rows, size = cross.shape
        to_cross, to_inverse, to_whitened = (each.new_zeros(each.shape) for each in (cross, inverse, whitened))
        to_columns = None if columns is None else columns.new_zeros(columns.shape)
        for part in _chunks(samples, rows, size if columns is None else columns.shape[-1]):
            reached = projected[:, part]
            to_projected = torch.zeros_like(reached)
            if to_explained is not None:
                slopes = 2 * to_explained[:, part]
                torch.mul(reached, slopes.sum(-1, keepdim=True), out=to_projected)
                if columns is not None and to_columns is not None:
                    # -2 explained~ P
                    rounded = reached.to(columns.dtype)
                    products = (rounded @ columns).unflatten(-1, (-1, size))
                    products = products.mul_(-slopes[..., None].to(columns.dtype)).flatten(-2)
                    to_projected += products @ columns.mT
                    to_columns.baddbmm_(rounded.mT, products)
            if to_mean is not None:
                to_projected.baddbmm_(to_mean[:, part], whitened.mT)
                to_whitened.baddbmm_(reached.mT, to_mean[:, part])
            to_cross[:, part] = to_projected @ inverse
            to_inverse.baddbmm_(to_projected.mT, cross[:, part])
        return to_cross, to_inverse, to_whitened, to_columns


def _chunks(samples: int, rows: int, width: int) -> Iterator[slice]:
    step = max(16, CHUNK // (samples * width))
    return (slice(start, start + step) for start in range(0, rows, step))


def _squared_norm(values: Float[Tensor, "*batch M"]) -> Float[Tensor, "*batch"]:
    return torch.linalg.vector_norm(values, dim=-1).square_()
