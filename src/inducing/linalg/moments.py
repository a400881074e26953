"""Moments of a Gaussian process at many rows, given the whitened values at its inducing inputs.

With the rows k of the kernel matrix between data and inducing inputs, W = R^-1 of the kernel matrix K = RR' of the inducing
inputs, and whitened values with mean a and covariance TT' for each output, the moments of each row are

    A = k W',   mean = A a,   explained = |A|^2 - |A T|^2

The inducing values reduce the prior variance by `explained`. There are many rows: samples times data. Autograd would store
A T, which has rows x outputs x M numbers, and read it several times. Here its norms are computed a few rows at a time, while
they are in the cache, and the backward pass does not need it. With x~ for the gradient with respect to x,

    A~ = mean~ a' + 2 explained~ A (I - TT'),   k~ = A~ W,   W~ = A~'k,   a~ = A'mean~,   T~ = -2 A'explained~ A T

If all outputs share T, this is two products with all rows. With G = [2 explained~ A, mean~] and Z = [I - TT', a],

    k~ = G Z'W,   W~ = Z G'k,   [-T~ T^-1, a~] = A'G = W k'G

A, |A|^2 and the mean are in float64, since W is large where inducing inputs are close together, and a variance is a small
difference. A T is in the dtype of T: |A T|^2 is a sum of squares, and T is at most about 1 if the posterior is narrower
than the prior. So it keeps its digits in float32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.linalg.first_order import first_order_only

# elements of a product to process at a time
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
        side_by_side = whitened.transpose(0, 1).reshape(1, size, -1)
        mean, explained = _Moments.apply(cross, inverse, side_by_side, columns)
        return Moments(mean.reshape(rows, *whitened.shape[::2]).transpose(0, 1), explained)
    if shared and len(whitened) == 1:
        # samples of k become rows of one product
        folded = _Moments.apply(cross.reshape(1, samples * rows, size), inverse, whitened, columns)
        return Moments(*(each.reshape(samples, rows, each.shape[-1]) for each in folded))
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
        projected = torch.bmm(cross, inverse.mT)
        explained = _squared_norm(projected)[..., None]
        if columns is not None:
            products = (torch.bmm(rows.to(columns.dtype), columns) for rows in _chunks(projected, columns))
            norms = [_squared_norm(each.unflatten(-1, (-1, cross.shape[-1]))) for each in products]
            explained = explained - torch.cat(norms, 1)
        ctx.save_for_backward(cross, inverse, whitened, columns, projected)
        return torch.bmm(projected, whitened), explained

    @staticmethod
    @first_order_only
    def backward(ctx: Any, to_mean: Tensor, to_explained: Tensor) -> tuple[Tensor | None, ...]:
        cross, inverse, whitened, columns, projected = ctx.saved_tensors
        slopes = 2 * to_explained
        if columns is not None and columns.shape[-1] > columns.shape[-2]:
            return _pull_several(cross, inverse, whitened, columns, projected, to_mean, slopes)
        return _pull_one(cross, inverse, whitened, columns, projected, to_mean, slopes)


def _pull_one(
    cross: Float[Tensor, "S N M"],
    inverse: Float[Tensor, "S M M"],
    whitened: Float[Tensor, "S M C"],
    root: Float[Tensor, "S M M"] | None,
    projected: Float[Tensor, "S N M"],
    to_mean: Float[Tensor, "S N C"],
    slopes: Float[Tensor, "S N 1"],
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return the gradients with one T for all outputs, or none. `slopes` are 2 explained~."""
    # G = [2 explained~ A, mean~],   G'k
    weighted = torch.cat([slopes * projected, to_mean], -1)
    of_explained, of_mean = torch.bmm(weighted.mT, cross).split([cross.shape[-1], to_mean.shape[-1]], 1)
    shrunk, of_shrunk, to_root = inverse, of_explained, None
    if root is not None:
        # (I - TT')W,   (I - TT')G'k,   T~ = -A'G T
        wide = root.to(cross.dtype)
        shrinkage = torch.eye(wide.shape[-1], dtype=wide.dtype, device=wide.device) - wide @ wide.mT
        shrunk, of_shrunk = shrinkage @ inverse, shrinkage @ of_explained
        to_root = -(inverse @ of_explained.mT).to(root.dtype) @ root
    # k~ = G Z'W,   W~ = Z G'k,   a~ = A'mean~ = W k'mean~
    to_cross = torch.bmm(weighted, torch.cat([shrunk, whitened.mT @ inverse], 1))
    return to_cross, torch.baddbmm(of_shrunk, whitened, of_mean), inverse @ of_mean.mT, to_root


def _pull_several(
    cross: Float[Tensor, "S N M"],
    inverse: Float[Tensor, "S M M"],
    whitened: Float[Tensor, "S M C"],
    columns: Float[Tensor, "S M OM"],
    projected: Float[Tensor, "S N M"],
    to_mean: Float[Tensor, "S N C"],
    slopes: Float[Tensor, "S N O"],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients with a T for each output, side by side. `slopes` are 2 explained~."""
    size = cross.shape[-1]
    roots = columns.unflatten(-1, (-1, size)).transpose(1, 2)
    covariances = (roots @ roots.mT).flatten(1, 2)
    shrunk, gathered = [], torch.zeros_like(columns)
    for rows, rates in zip(*(_chunks(each.to(columns.dtype), columns) for each in (projected, slopes)), strict=True):
        # G = 2 explained~ A of all outputs side by side,   G TT',   A'G
        weighted = (rates[..., None] * rows[..., None, :]).flatten(-2)
        shrunk.append(torch.bmm(weighted, covariances))
        gathered.baddbmm_(rows.mT, weighted)
    # T~ = -A'G T
    to_roots = -gathered.unflatten(-1, (-1, size)).transpose(1, 2) @ roots
    # A~ = mean~ a' + 2 explained~ A - G TT'
    of_explained = (slopes.sum(-1, keepdim=True) * projected).sub_(torch.cat(shrunk, 1))
    to_projected = torch.baddbmm(of_explained, to_mean, whitened.mT)
    # k~ = A~ W,   W~ = A~'k,   a~ = A'mean~
    to_cross, to_inverse = torch.bmm(to_projected, inverse), torch.bmm(to_projected.mT, cross)
    return to_cross, to_inverse, torch.bmm(projected.mT, to_mean), to_roots.transpose(1, 2).flatten(2)


def _chunks(rows: Float[Tensor, "S N _"], columns: Float[Tensor, "S M OM"]) -> tuple[Tensor, ...]:
    """Split the rows, so that a product of a part with all columns stays in the cache."""
    return rows.split(max(16, CHUNK // (len(columns) * columns.shape[-1])), 1)


def _squared_norm(values: Float[Tensor, "*batch M"]) -> Float[Tensor, "*batch"]:
    return torch.linalg.vector_norm(values, dim=-1).square_()
