"""Gram matrices of a convolution without its patches.

A convolution is a matrix product of patches X' with weights, X'_{iu,cd} = X_{i,u+d,c}: i an image, u a pixel, d a place in
the kernel, c a channel. Its regression needs only

    gram   X' Lambda X'  = sum_iu  lambda_i X_{i,u+d,c} X_{i,u+e,b}
    cross  X' Lambda v   = sum_iu  lambda_i X_{i,u+d,c} v_{iu,o}

and neither needs the patches themselves, which take as many times the memory of the map as the kernel has places.

Boundaries. "circular" wraps the map around, as the paper does for its posterior: a block of the Gram matrix then depends on
the difference s = e - d alone and is one product of the map with its rolled self, 13 products for a 3 x 3 kernel. Stride is
ignored: v has a value at every pixel of the input. "exact" is the convolution that the network runs, with zero padding and
stride: one product of two strided slices of the padded map for each pair of places.

The gradient is written by hand, since autograd would keep a copy of the map for each product. Both directions work on a few
images at a time, so that their temporaries stay small and in the cache. Features are ordered as in
`torch.nn.functional.unfold`: all places of the first channel, then those of the second.

References:
    Ober & Aitchison, Global inducing point variational posteriors (2021), "Efficient convolutional linear regression".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

# numbers of the map to work on at a time: 2 MiB in float32
CHUNK = 2**19

Boundary = Literal["circular", "exact"]
Place = tuple[int, int]


@dataclass(frozen=True)
class Geometry:
    """The shape of a convolution.

    Arguments:
        kernel_size: Height and width of the kernel.
        stride: Step between two outputs; ignored by circular boundaries.
        padding: Zeros around the map; circular boundaries have the kernel centred on each pixel instead.
        boundary: "circular" or "exact".
    """

    kernel_size: Place
    stride: Place = (1, 1)
    padding: Place = (0, 0)
    boundary: Boundary = "circular"

    @property
    def places(self) -> list[Place]:
        """The places in the kernel, in the order of features: offsets from the pixel, or from the corner of the patch."""
        rows, columns = self.kernel_size
        shift = (rows // 2, columns // 2) if self.boundary == "circular" else (0, 0)
        return [(i - shift[0], j - shift[1]) for i, j in itertools.product(range(rows), range(columns))]

    def output_shape(self, height: int, width: int) -> Place:
        """The pixels at which patches are taken."""
        if self.boundary == "circular":
            return height, width
        sizes = zip((height, width), self.kernel_size, self.stride, self.padding, strict=True)
        rows, columns = ((size + 2 * padding - kernel) // stride + 1 for size, kernel, stride, padding in sizes)
        return rows, columns

    def prepare(self, x: Float[Tensor, "*batch H W"]) -> Float[Tensor, "*batch P Q"]:
        """The map from which `take` takes: padded, or as it is."""
        if self.boundary == "circular":
            return x
        return functional.pad(x, (self.padding[1], self.padding[1], self.padding[0], self.padding[0]))

    def take(self, x: Float[Tensor, "*batch P Q"], place: Place, shape: Place) -> Float[Tensor, "*batch h w"]:
        """What all patches hold at one place of the kernel."""
        if self.boundary == "circular":
            return x.roll((-place[0], -place[1]), (-2, -1))
        (i, j), (rows, columns), (down, across) = place, shape, self.stride
        return x[..., i : i + down * (rows - 1) + 1 : down, j : j + across * (columns - 1) + 1 : across]

    def put(self, total: Float[Tensor, "*batch P Q"], place: Place, values: Float[Tensor, "*batch h w"]) -> None:
        """Add values back to where `take` took them from: its transpose."""
        if self.boundary == "circular":
            total += values.roll(place, (-2, -1))
        else:
            self.take(total, place, (values.shape[-2], values.shape[-1])).add_(values)

    def unprepare(self, total: Float[Tensor, "*batch P Q"], height: int, width: int) -> Float[Tensor, "*batch H W"]:
        """The transpose of `prepare`: leave out the padding."""
        if self.boundary == "circular":
            return total
        top, left = self.padding
        return total[..., top : top + height, left : left + width]


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


def _pairs(geometry: Geometry) -> dict[Place, list[tuple[int, int]]]:
    """Which blocks (d, e), d <= e, come from which product: by their difference, or each by itself."""
    places = geometry.places
    products: dict[Place, list[tuple[int, int]]] = {}
    for first, second in itertools.combinations_with_replacement(range(len(places)), 2):
        (i, j), (k, n) = places[first], places[second]
        key = (k - i, n - j) if geometry.boundary == "circular" else (first, second)
        products.setdefault(key, []).append((first, second))
    return products


class _Gram(torch.autograd.Function):
    """sum_iu lambda_i X'_{iu} X'_{iu}', and its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, geometry: Geometry) -> Tensor:
        ctx.save_for_backward(x, weights)
        ctx.geometry = geometry
        shape, places, pairs = geometry.output_shape(*x.shape[-2:]), geometry.places, _pairs(geometry)
        samples, channels, count = x.shape[0], x.shape[2], len(places)
        products = x.new_zeros(len(pairs), samples, channels, channels)
        for chunk in _chunks(x):
            prepared = geometry.prepare(x[:, chunk])
            scaled = prepared * weights[chunk, None, None, None]
            for product, blocks in zip(products, pairs.values(), strict=True):
                (i, j), (k, n) = (places[index] for index in blocks[0])
                if geometry.boundary == "circular":
                    # G_s = sum_u lambda X_u X_{u+s}'
                    left, right = scaled, geometry.take(prepared, (k - i, n - j), shape)
                else:
                    left, right = geometry.take(scaled, (i, j), shape), geometry.take(prepared, (k, n), shape)
                product += _rows(left) @ _rows(right).mT
        gram = x.new_empty(samples, channels, count, channels, count)
        for product, blocks in zip(products, pairs.values(), strict=True):
            for d, e in blocks:
                gram[:, :, d, :, e] = product
                gram[:, :, e, :, d] = product.mT
        return gram.reshape(samples, channels * count, channels * count)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        x, weights = ctx.saved_tensors
        geometry, cotangent = ctx.geometry, cotangents[0]
        shape, places = geometry.output_shape(*x.shape[-2:]), geometry.places
        symmetric = (cotangent + cotangent.mT).unflatten(2, (-1, len(places))).unflatten(1, (-1, len(places)))
        # circular: dX_u = lambda sum_s K_s X_{u+s}, with K_s the sum of the blocks with that difference
        kernels: dict[Place, Tensor] = {}
        for (d, (i, j)), (e, (k, n)) in itertools.product(enumerate(places), repeat=2):
            shift = (k - i, n - j)
            kernels[shift] = kernels.get(shift, 0) + symmetric[:, :, d, :, e]
        gradient, to_weights = torch.empty_like(x), torch.empty_like(weights)
        for chunk in _chunks(x):
            part = x[:, chunk]
            prepared = geometry.prepare(part)
            total = torch.zeros_like(prepared)
            if geometry.boundary == "circular":
                for shift, kernel in kernels.items():
                    total += _maps(kernel @ _rows(geometry.take(prepared, shift, shape)), part.shape[1], shape)
            else:
                for e, other in enumerate(places):
                    taken = _rows(geometry.take(prepared, other, shape))
                    for d, place in enumerate(places):
                        geometry.put(total, place, _maps(symmetric[:, :, d, :, e] @ taken, part.shape[1], shape))
            inner = geometry.unprepare(total, *x.shape[-2:])
            # the Gram matrix is quadratic in each image, so <X_i, dX_i> is twice its share
            to_weights[chunk] = (part * inner).sum((0, 2, 3, 4)) / 2
            gradient[:, chunk] = inner * weights[chunk, None, None, None]
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
