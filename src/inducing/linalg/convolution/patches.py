"""Gram matrices of a convolution, computed without extracting patches.

A convolution is a matrix product of patches X' with weights, X'_{iu,cd} = X_{i,u+d,c}: i is an image, u a pixel, d a
position in the kernel, c a channel. Its regression needs only

    gram   X' Lambda X'  = sum_iu  lambda_i X_{i,u+d,c} X_{i,u+e,b}
    cross  X' Lambda v   = sum_iu  lambda_i X_{i,u+d,c} v_{iu,o}

Neither needs the patches. The patches of a k x k kernel take k * k times the memory of the map.

Boundaries. "circular" wraps the map around, as the paper does for its posterior: a block of the Gram matrix then depends on
the difference s = e - d alone and is one product of the map with its shifted self, 13 products for a 3 x 3 kernel. Stride is
ignored: v has a value at every pixel of the input. "exact" is the convolution that the network runs, with zero padding and
stride: blocks with one difference then share all but lines at the border. See `inducing.linalg.convolution.circular` and
`inducing.linalg.convolution.zero_padded`.

The cross term equals the gradient of a convolution with respect to its kernel, which torch computes.

Draws with a sampled KL do not differentiate these statistics: see `inducing.linalg.convolution.reparameterisation`. For KLs
in closed form the backward pass is hand-written, since autograd would keep a copy of the map for each product. Both passes
process a few images at a time, so that temporaries stay in the cache. Features are ordered as in
`torch.nn.functional.unfold`: all positions of the first channel, then all positions of the second.

References:
    Ober & Aitchison, Global inducing point variational posteriors (2021), "Efficient convolutional linear regression".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn import functional
from torch.nn.grad import conv2d_input, conv2d_weight

from inducing.linalg.convolution.circular import CircularGram
from inducing.linalg.convolution.geometry import Geometry
from inducing.linalg.convolution.zero_padded import ExactGram
from inducing.linalg.first_order import first_order_only

# elements of a map to process at a time: 2 MiB in float32
CHUNK = 2**19


def patches(x: Float[Tensor, "S M C H W"], geometry: Geometry) -> Float[Tensor, "S M h w F"]:
    """Return the patches X'. Use it only for few patches."""
    shape = geometry.output_shape(*x.shape[-2:])
    prepared = geometry.prepare(x)
    taken = torch.stack([geometry.take(prepared, place, shape) for place in geometry.places], 3)
    return taken.flatten(2, 3).movedim(2, -1)


def conv_gram(
    x: Float[Tensor, "S M C H W"], weights: Float[Tensor, "G M"], geometry: Geometry
) -> Float[Tensor, "S G F F"]:
    """Return X' Lambda X' with one precision per image, for each of G groups of outputs."""
    return torch.stack([_Gram.apply(x, each, geometry) for each in weights], 1)


def conv_cross(
    x: Float[Tensor, "S M C H W"], weights: Float[Tensor, "G M"], values: Float[Tensor, "M O h w"], geometry: Geometry
) -> Float[Tensor, "S F O"]:
    """Return X' Lambda v, with one precision per image, shared by all outputs or for each output."""
    return _Cross.apply(x, weights, values, geometry)


def conv_sums(
    x: Float[Tensor, "S M C H W"], weights: Float[Tensor, "G M"], geometry: Geometry
) -> Float[Tensor, "S G F"]:
    """Return X' Lambda 1, the cross term of the bias."""
    shape = geometry.output_shape(*x.shape[-2:])
    if geometry.boundary == "circular":
        # every kernel position covers every pixel
        sums = x.sum((-2, -1))[..., None].expand(-1, -1, -1, len(geometry.places))
        return torch.einsum("smcd,gm->sgcd", sums, weights).flatten(2)
    prepared = geometry.prepare(x)
    sums = torch.stack([geometry.take(prepared, place, shape).sum((-2, -1)) for place in geometry.places], -1)
    return torch.einsum("smcd,gm->sgcd", sums, weights).flatten(2)


class _GramProducts(Protocol):
    """The products that make up the Gram matrix for one kind of boundary.

    ``blocks`` lists, for each product, the blocks (d, e), d <= e, that it is part of.
    """

    blocks: list[list[tuple[int, int]]]

    def add_products(
        self, products: Float64[Tensor, "D S C C"], x: Float[Tensor, "S m C H W"], weights: Float[Tensor, "m 1 1 1"]
    ) -> None:
        """Add the products of a few images."""

    def multiplier(self, blocks: Float[Tensor, "S K K C C"]) -> Callable[[Tensor], Tensor]:
        """Return the function X -> dX / lambda, given the symmetric cotangents of all blocks."""


class _Gram(torch.autograd.Function):
    """sum_iu lambda_i X'_{iu} X'_{iu}', and its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, geometry: Geometry) -> Tensor:
        ctx.save_for_backward(x, weights)
        samples, images, channels, height, width = x.shape
        form: _GramProducts = CircularGram(geometry)
        if geometry.boundary == "exact":
            form = ExactGram(geometry, height, width, images * channels**2)
        ctx.form, ctx.count = form, len(geometry.places)
        products = x.new_zeros(len(form.blocks), samples, channels, channels, dtype=torch.float64)
        for chunk in chunks(x):
            form.add_products(products, x[:, chunk], weights[chunk, None, None, None])
        blocks = products.new_zeros(samples, ctx.count, ctx.count, channels, channels)
        for product, members in zip(products, form.blocks, strict=True):
            for d, e in members:
                blocks[:, d, e] += product
                if d != e:
                    blocks[:, e, d] += product.mT
        # reorder to the order of features in one pass
        ordered = blocks.to(x.dtype).permute(0, 3, 1, 4, 2)
        return ordered.reshape(samples, channels * ctx.count, channels * ctx.count)

    @staticmethod
    @first_order_only
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        (x, weights), count = ctx.saved_tensors, ctx.count
        symmetric = cotangents[0] + cotangents[0].mT
        blocks = symmetric.unflatten(2, (-1, count)).unflatten(1, (-1, count)).permute(0, 2, 4, 1, 3).contiguous()
        multiply = ctx.form.multiplier(blocks)
        gradient, to_weights = torch.empty_like(x), torch.empty_like(weights)
        for chunk in chunks(x):
            inner = multiply(x[:, chunk])
            # the Gram matrix is quadratic in each image, so <X_i, dX_i> is twice its share
            to_weights[chunk] = (x[:, chunk] * inner).sum((0, 2, 3, 4)) / 2
            gradient[:, chunk] = inner.mul_(weights[chunk, None, None, None])
        return gradient, to_weights, None


class _Cross(torch.autograd.Function):
    """sum_iu lambda_i X'_{iu} v_{iu}', the weight gradient of a convolution, and its own gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, values: Tensor, geometry: Geometry) -> Tensor:
        ctx.save_for_backward(x, weights, values)
        ctx.geometry = geometry
        stride, padding = geometry.plain
        kernels = x.new_zeros(len(x), values.shape[1], x.shape[2], *geometry.kernel_size)
        for chunk in chunks(x, values.shape[1]):
            weighted = values[chunk] * by_image(weights, chunk)
            for kernel, maps in zip(kernels, x[:, chunk], strict=True):
                kernel += conv2d_weight(geometry.wrap(maps), kernel.shape, weighted, stride, padding)
        return kernels.flatten(2).mT

    @staticmethod
    @first_order_only
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        x, weights, values = ctx.saved_tensors
        geometry, cotangent = ctx.geometry, cotangents[0]
        stride, padding = geometry.plain
        kernels = cotangent.mT.unflatten(2, (x.shape[2], *geometry.kernel_size))
        gradient, to_weights, to_values = torch.empty_like(x), torch.empty_like(weights), torch.zeros_like(values)
        for chunk in chunks(x, values.shape[1]):
            lambdas = by_image(weights, chunk)
            weighted, to_weighted = values[chunk] * lambdas, to_values[chunk]
            for maps, kernel, total in zip(x[:, chunk], kernels, gradient[:, chunk], strict=True):
                wrapped = geometry.wrap(maps)
                to_weighted += functional.conv2d(wrapped, kernel, None, stride, padding)
                total.copy_(geometry.unwrap(conv2d_input(wrapped.shape, kernel, weighted, stride, padding)))
            products = torch.linalg.vecdot(to_weighted.flatten(2), values[chunk].flatten(2))
            to_weights[:, chunk] = products.mT.sum_to_size(len(weights), len(products))
            to_weighted *= lambdas
        return gradient, to_weights, to_values, None


def by_image(weights: Float[Tensor, "G M"], chunk: slice) -> Float[Tensor, "m G 1 1"]:
    """Return the precisions of a few images, as factors of their pseudo-outputs."""
    return weights[:, chunk].mT[..., None, None]


def chunks(x: Float[Tensor, "S M C H W"], outputs: int = 0) -> Iterator[slice]:
    """Return slices of a few images each, so that neither their maps nor as many outputs leave the cache."""
    samples, images, channels, height, width = x.shape
    step = max(1, CHUNK // (samples * max(channels, outputs) * height * width))
    return (slice(start, start + step) for start in range(0, images, step))
