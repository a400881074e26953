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
            reached = torch.bmm(cross[:, part], inverse.mT, out=projected[:, part])
            torch.bmm(reached, whitened, out=mean[:, part])
            explained[:, part] = _squared_norm(reached)[..., None]
            if columns is not None:
                products = (reached.to(columns.dtype) @ columns).unflatten(-1, (outputs, size))
                explained[:, part] -= _squared_norm(products)
        ctx.save_for_backward(cross, inverse, whitened, columns, projected)
        return mean, explained

    @staticmethod
    @first_order_only
    def backward(ctx: Any, to_mean: Tensor, to_explained: Tensor) -> tuple[Tensor | None, ...]:
        columns = ctx.saved_tensors[3]
        several = columns is not None and columns.shape[-1] > columns.shape[-2]
        return (_pull_several if several else _pull_one)(*ctx.saved_tensors, to_mean, 2 * to_explained)


def _pull_one(
    cross: Tensor,
    inverse: Tensor,
    whitened: Tensor,
    root: Tensor | None,
    projected: Tensor,
    to_mean: Tensor,
    slopes: Tensor,
) -> tuple[Tensor | None, ...]:
    """Return the gradients with at most one T for all outputs."""
    size = cross.shape[-1]
    # Z = [I - TT', a]
    remaining = torch.eye(size, dtype=cross.dtype, device=cross.device).expand_as(inverse)
    if root is not None:
        remaining = remaining - root.to(cross.dtype) @ root.to(cross.dtype).mT
    both = torch.cat([remaining, whitened], -1)
    to_cross, gathered = torch.empty_like(cross), cross.new_zeros(*both.mT.shape)
    pulled = both.mT @ inverse
    for part in _chunks(*cross.shape):
        # G = [2 explained~ A, mean~],   k~ = G Z'W
        weighted = torch.cat([projected[:, part] * slopes[:, part], to_mean[:, part]], -1)
        torch.bmm(weighted, pulled, out=to_cross[:, part])
        gathered.baddbmm_(weighted.mT, cross[:, part])
    # W~ = Z G'k,   Z~ = A'G = W k'G
    to_both = inverse @ gathered.mT
    to_root = None if root is None else -to_both[..., :size].to(root.dtype) @ root
    return to_cross, both @ gathered, to_both[..., size:], to_root


def _pull_several(
    cross: Tensor,
    inverse: Tensor,
    whitened: Tensor,
    columns: Tensor,
    projected: Tensor,
    to_mean: Tensor,
    slopes: Tensor,
) -> tuple[Tensor | None, ...]:
    """Return the gradients with a T for each output, side by side."""
    size = cross.shape[-1]
    roots = columns.unflatten(-1, (-1, size)).transpose(1, 2)
    # TT' of all outputs, one below the other
    covariances = (roots @ roots.mT).flatten(1, 2)
    to_cross, to_inverse, to_whitened = torch.empty_like(cross), torch.zeros_like(inverse), torch.zeros_like(whitened)
    gathered = torch.zeros_like(columns)
    for part in _chunks(len(cross), cross.shape[1], columns.shape[-1]):
        reached, rates = projected[:, part], slopes[:, part]
        rounded = reached.to(columns.dtype)
        # G = 2 explained~ A for each output,   A~ = mean~ a' + sum of G - G TT'
        weighted = (rates.to(columns.dtype)[..., None] * rounded[..., None, :]).flatten(-2)
        to_projected = torch.baddbmm(rates.sum(-1, keepdim=True) * reached, to_mean[:, part], whitened.mT)
        to_projected -= weighted @ covariances
        gathered.baddbmm_(rounded.mT, weighted)
        to_whitened.baddbmm_(reached.mT, to_mean[:, part])
        # k~ = A~ W,   W~ = A~'k
        torch.bmm(to_projected, inverse, out=to_cross[:, part])
        to_inverse.baddbmm_(to_projected.mT, cross[:, part])
    # T~ = -A'G T
    to_roots = -gathered.unflatten(-1, (-1, size)).transpose(1, 2) @ roots
    return to_cross, to_inverse, to_whitened, to_roots.transpose(1, 2).flatten(2)


def _chunks(samples: int, rows: int, width: int) -> Iterator[slice]:
    step = max(16, CHUNK // (samples * width))
    return (slice(start, start + step) for start in range(0, rows, step))


def _squared_norm(values: Float[Tensor, "*batch M"]) -> Float[Tensor, "*batch"]:
    return torch.linalg.vector_norm(values, dim=-1).square_()
