"""Gram matrices of a convolution without its patches.

A convolution is a matrix product of patches X' with weights, X'_{iu,cd} = X_{i,u+d,c}: i an image, u a pixel, d a place in
the kernel, c a channel. Its regression needs only

    gram   X' Lambda X'  = sum_iu  lambda_i X_{i,u+d,c} X_{i,u+e,b}
    cross  X' Lambda v   = sum_iu  lambda_i X_{i,u+d,c} v_{iu,o}

and neither needs the patches themselves, which take as many times the memory of the map as the kernel has places.

Boundaries. "circular" wraps the map around, as the paper does for its posterior: a block of the Gram matrix then depends on
the difference s = e - d alone and is one product of the map with its rolled self, 13 products for a 3 x 3 kernel. Stride is
ignored: v has a value at every pixel of the input. "exact" is the convolution that the network runs, with zero padding and
stride: blocks of one difference then share all but lines at the border. See `inducing.linalg.windows`.

The gradient is written by hand, since autograd would keep a copy of the map for each product. Both directions work on a few
images at a time, so that their temporaries stay small and in the cache. Features are ordered as in
`torch.nn.functional.unfold`: all places of the first channel, then those of the second.

References:
    Ober & Aitchison, Global inducing point variational posteriors (2021), "Efficient convolutional linear regression".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.linalg.geometry import Geometry, Place
from inducing.linalg.windows import gram_products

# numbers of the map to work on at a time: 2 MiB in float32
CHUNK = 2**19


def patches(x: Float[Tensor, "S M C H W"], geometry: Geometry) -> Float[Tensor, "S M h w F"]:
    """The patches themselves, for few of them: X'."""
    shape = geometry.output_shape(*x.shape[-2:])
    prepared = geometry.prepare(x)
    taken = torch.stack([geometry.take(prepared, place, shape) for place in geometry.places], 3)
    return taken.flatten(2, 3).movedim(2, -1)


def conv_gram(
    x: Float[Tensor, "S M C H W"], weights: Float[Tensor, "G M"], geometry: Geometry
) -> Float[Tensor, "S G F F"]:
    """X' Lambda X' with a precision for each image, for each of G groups of outputs."""
    return torch.stack([_Gram.apply(x, each, geometry) for each in weights], 1)


def conv_cross(
    x: Float[Tensor, "S M C H W"], values: Float[Tensor, "M O h w"], geometry: Geometry
) -> Float[Tensor, "S F O"]:
    """X' v, for values that carry their precisions already."""
    return _Cross.apply(x, values, geometry)


def conv_sums(
    x: Float[Tensor, "S M C H W"], weights: Float[Tensor, "G M"], geometry: Geometry
) -> Float[Tensor, "S G F"]:
    """X' Lambda 1: what a bias needs."""
    shape = geometry.output_shape(*x.shape[-2:])
    prepared = geometry.prepare(x)
    sums = torch.stack([geometry.take(prepared, place, shape).sum((-2, -1)) for place in geometry.places], -1)
    return torch.einsum("smcd,gm->sgcd", sums, weights).flatten(2)


class _Gram(torch.autograd.Function):
    """sum_iu lambda_i X'_{iu} X'_{iu}', and its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, geometry: Geometry) -> Tensor:
        ctx.save_for_backward(x, weights)
        samples, _, channels, height, width = x.shape
        ctx.products = gram_products(geometry, height, width, len(weights) * channels**2)
        ctx.count = count = len(geometry.places)
        sums = x.new_zeros(len(ctx.products), samples, channels, channels)
        for chunk in _chunks(x):
            maps = x[:, chunk].transpose(1, 2).contiguous()
            scaled = maps * weights[chunk, None, None]
            for total, product in zip(sums, ctx.products, strict=True):
                total += product.first.take(scaled).flatten(2) @ product.second.take(maps).flatten(2).mT
        gram = x.new_zeros(samples, channels, count, channels, count)
        for total, product in zip(sums, ctx.products, strict=True):
            for d, e in product.blocks:
                gram[:, :, d, :, e] += total
                if d != e:
                    gram[:, :, e, :, d] += total.mT
        return gram.reshape(samples, channels * count, channels * count)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        (x, weights), (cotangent,) = ctx.saved_tensors, cotangents
        symmetric = (cotangent + cotangent.mT).unflatten(2, (-1, ctx.count)).unflatten(1, (-1, ctx.count))
        # K: the sum over the blocks that a product is part of
        kernels = [sum(symmetric[:, :, d, :, e] for d, e in product.blocks) for product in ctx.products]
        gradient, to_weights = torch.empty_like(x), torch.empty_like(weights)
        for chunk in _chunks(x):
            maps = x[:, chunk].transpose(1, 2).contiguous()
            total = torch.zeros_like(maps)
            for kernel, (first, second, _) in zip(kernels, ctx.products, strict=True):
                # d(A B') = dA B' + A dB'
                left, right = first.take(maps), second.take(maps)
                first.put(total, (kernel @ right.flatten(2)).view(left.shape))
                if first != second:
                    second.put(total, (kernel.mT @ left.flatten(2)).view(left.shape))
            # the Gram matrix is quadratic in each image, so <X_i, dX_i> is twice its share
            to_weights[chunk] = (maps * total).sum((0, 1, 3, 4)) / 2
            gradient[:, chunk] = (total * weights[chunk, None, None]).transpose(1, 2)
        return gradient, to_weights, None


class _Cross(torch.autograd.Function):
    """sum_iu X'_{iu} v_{iu}', and its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, values: Tensor, geometry: Geometry) -> Tensor:
        ctx.save_for_backward(x, values)
        ctx.geometry = geometry
        shape, places = geometry.output_shape(*x.shape[-2:]), geometry.places
        cross = x.new_zeros(len(places), x.shape[0], x.shape[2], values.shape[1])
        for chunk in _chunks(x):
            prepared, targets = geometry.prepare(x[:, chunk]), _rows(values[None, chunk])
            for block, place in zip(cross, places, strict=True):
                block += _rows(geometry.take(prepared, place, shape)) @ targets.mT
        return cross.permute(1, 2, 0, 3).flatten(1, 2)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        x, values = ctx.saved_tensors
        geometry, cotangent = ctx.geometry, cotangents[0]
        shape, places = geometry.output_shape(*x.shape[-2:]), geometry.places
        blocks = cotangent.unflatten(1, (-1, len(places)))
        gradient, to_values = torch.empty_like(x), torch.empty_like(values)
        for chunk in _chunks(x):
            prepared, targets = geometry.prepare(x[:, chunk]), _rows(values[None, chunk])
            total, part = torch.zeros_like(prepared), torch.zeros_like(targets)
            for index, place in enumerate(places):
                block = blocks[:, :, index]
                geometry.put(total, place, _maps(block @ targets, prepared.shape[1], shape))
                part += (block.mT @ _rows(geometry.take(prepared, place, shape))).sum(0, keepdim=True)
            gradient[:, chunk] = geometry.unprepare(total, *x.shape[-2:])
            to_values[chunk] = _maps(part, prepared.shape[1], shape)[0]
        return gradient, to_values, None


def _chunks(x: Float[Tensor, "S M C H W"]) -> Iterator[slice]:
    """A few images at a time."""
    step = max(1, CHUNK * x.shape[1] // x.numel())
    return (slice(start, start + step) for start in range(0, x.shape[1], step))


def _rows(maps: Float[Tensor, "S M C h w"]) -> Float[Tensor, "S C n"]:
    """All pixels of all images side by side."""
    return maps.transpose(1, 2).flatten(2)


def _maps(rows: Float[Tensor, "S C n"], images: int, shape: Place) -> Float[Tensor, "S M C h w"]:
    """The inverse of `_rows`."""
    return rows.unflatten(2, (images, *shape)).transpose(1, 2)
