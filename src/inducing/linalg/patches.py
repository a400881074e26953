"""Gram matrices of a convolution without its patches.

A convolution is a matrix product of patches X' with weights, X'_{iu,cd} = X_{i,u+d,c}: i an image, u a pixel, d a place in
the kernel, c a channel. Its regression needs only

    gram   X' Lambda X'  = sum_iu  lambda_i X_{i,u+d,c} X_{i,u+e,b}
    cross  X' Lambda v   = sum_iu  lambda_i X_{i,u+d,c} v_{iu,o}

and neither needs the patches themselves, which take as many times the memory of the map as the kernel has places.

Boundaries. "circular" wraps the map around, as the paper does for its posterior: a block of the Gram matrix then depends on
the difference s = e - d alone and is one product of the map with its shifted self, 13 products for a 3 x 3 kernel. Stride is
ignored: v has a value at every pixel of the input. "exact" is the convolution that the network runs, with zero padding and
stride: one product of two strided slices of the padded map for each pair of places.

The cross term is what the gradient of a convolution with respect to its kernel is, and torch has that.

The gradient is written by hand, since autograd would keep a copy of the map for each product. Both directions work on a few
images at a time, so that their temporaries stay small and in the cache. Features are ordered as in
`torch.nn.functional.unfold`: all places of the first channel, then those of the second.

References:
    Ober & Aitchison, Global inducing point variational posteriors (2021), "Efficient convolutional linear regression".
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional
from torch.nn.grad import conv2d_input, conv2d_weight

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

    def wrap(self, x: Float[Tensor, "*batch H W"]) -> Float[Tensor, "*batch P Q"]:
        """The map for a plain convolution, which gives what this one should: wrapped around, or as it is."""
        if self.boundary == "exact":
            return x
        rows, columns = (size // 2 for size in self.kernel_size)
        return wrap(x, (rows, rows), (columns, columns))

    @property
    def plain(self) -> tuple[Place, Place]:
        """Stride and padding of that plain convolution."""
        return ((1, 1), (0, 0)) if self.boundary == "circular" else (self.stride, self.padding)

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

    def unwrap(self, total: Float[Tensor, "*batch P Q"]) -> Float[Tensor, "*batch H W"]:
        """The transpose of `wrap`: add what stands beyond the border to the pixels that it came from."""
        if self.boundary == "exact":
            return total
        rows, columns = (size // 2 for size in self.kernel_size)
        height, width = total.shape[-2] - 2 * rows, total.shape[-1] - 2 * columns
        core = total[..., rows : rows + height, :]
        for row in (*range(rows), *range(rows + height, total.shape[-2])):
            core[..., (row - rows) % height, :] += total[..., row, :]
        inner = core[..., columns : columns + width]
        for column in (*range(columns), *range(columns + width, total.shape[-1])):
            inner[..., (column - columns) % width] += core[..., column]
        return inner

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
    if geometry.boundary == "circular":
        # every place of the kernel meets every pixel
        sums = x.sum((-2, -1))[..., None].expand(-1, -1, -1, len(geometry.places))
        return torch.einsum("smcd,gm->sgcd", sums, weights).flatten(2)
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
        pairs, count = _pairs(geometry), len(geometry.places)
        samples, channels = x.shape[0], x.shape[2]
        products = x.new_zeros(len(pairs), samples, channels, channels)
        add_products = _add_circular_products if geometry.boundary == "circular" else _add_exact_products
        for chunk in _chunks(x):
            add_products(products, x[:, chunk], weights[chunk, None, None, None], geometry)
        blocks = x.new_empty(samples, count, count, channels, channels)
        for product, same in zip(products, pairs.values(), strict=True):
            for d, e in same:
                blocks[:, d, e], blocks[:, e, d] = product, product.mT
        # one pass to the order of features
        return blocks.permute(0, 3, 1, 4, 2).reshape(samples, channels * count, channels * count)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        x, weights = ctx.saved_tensors
        geometry, count = ctx.geometry, len(ctx.geometry.places)
        symmetric = cotangents[0] + cotangents[0].mT
        blocks = symmetric.unflatten(2, (-1, count)).unflatten(1, (-1, count)).permute(0, 2, 4, 1, 3).contiguous()
        multiplier = _circular_multiplier if geometry.boundary == "circular" else _exact_multiplier
        multiply = multiplier(blocks, geometry)
        gradient, to_weights = torch.empty_like(x), torch.empty_like(weights)
        for chunk in _chunks(x):
            inner = multiply(x[:, chunk])
            # the Gram matrix is quadratic in each image, so <X_i, dX_i> is twice its share
            to_weights[chunk] = (x[:, chunk] * inner).sum((0, 2, 3, 4)) / 2
            gradient[:, chunk] = inner.mul_(weights[chunk, None, None, None])
        return gradient, to_weights, None


def _add_circular_products(
    products: Float[Tensor, "D S C C"],
    x: Float[Tensor, "S m C H W"],
    weights: Float[Tensor, "m 1 1 1"],
    geometry: Geometry,
) -> None:
    """G_s = sum_u lambda X_u X_{u+s}'.

    All pixels of all images stand in one row, wide enough that a shift (i, j) never leaves its image and is the same as
    moving on by i * width + j: the slices are operands as they are, without a copy for each shift.
    """
    down, across = (size - 1 for size in geometry.kernel_size)
    wrapped = wrap(x.transpose(1, 2), (0, down), (across, across))
    # zero where the other factor is wrapped, so that each pixel counts once
    scaled = functional.pad((x * weights).transpose(1, 2), (across, across, 0, down))
    width = wrapped.shape[-1]
    length = wrapped[0, 0].numel() - down * width - 2 * across
    left, right = scaled.flatten(2)[..., across : across + length], wrapped.flatten(2)
    for product, (i, j) in zip(products, _pairs(geometry), strict=True):
        start = across + i * width + j
        product.baddbmm_(left, right[..., start : start + length].mT)


def _circular_multiplier(blocks: Float[Tensor, "S K K C C"], geometry: Geometry) -> Callable[[Tensor], Tensor]:
    """X_u -> sum_s K_s X_{u+s}, with K_s the sum of the blocks with that difference: a convolution with a wider kernel."""
    rows, columns = geometry.kernel_size
    sums = blocks.new_zeros(2 * rows - 1, 2 * columns - 1, *blocks[:, 0, 0].shape)
    for (d, (i, j)), (e, (k, n)) in itertools.product(enumerate(geometry.places), repeat=2):
        sums[k - i + rows - 1, n - j + columns - 1] += blocks[:, d, e]
    kernels = sums.permute(2, 3, 4, 0, 1).contiguous()

    def multiply(x: Float[Tensor, "S m C H W"]) -> Float[Tensor, "S m C H W"]:
        wrapped = wrap(x, (rows - 1, rows - 1), (columns - 1, columns - 1))
        return torch.stack([functional.conv2d(maps, kernel) for maps, kernel in zip(wrapped, kernels, strict=True)])

    return multiply


def _add_exact_products(
    products: Float[Tensor, "D S C C"],
    x: Float[Tensor, "S m C H W"],
    weights: Float[Tensor, "m 1 1 1"],
    geometry: Geometry,
) -> None:
    """sum_u lambda X_{u+d} X_{u+e}', for each pair of places."""
    shape, places, prepared = geometry.output_shape(*x.shape[-2:]), geometry.places, geometry.prepare(x)
    scaled = prepared * weights
    for product, (d, e) in zip(products, _pairs(geometry), strict=True):
        left, right = geometry.take(scaled, places[d], shape), geometry.take(prepared, places[e], shape)
        product += _rows(left) @ _rows(right).mT


def _exact_multiplier(blocks: Float[Tensor, "S K K C C"], geometry: Geometry) -> Callable[[Tensor], Tensor]:
    """X_u -> sum_de of the blocks times X_{u-d+e}, where the patches at u - d are."""

    def multiply(x: Float[Tensor, "S m C H W"]) -> Float[Tensor, "S m C H W"]:
        shape, prepared = geometry.output_shape(*x.shape[-2:]), geometry.prepare(x)
        total = torch.zeros_like(prepared)
        for e, other in enumerate(geometry.places):
            taken = _rows(geometry.take(prepared, other, shape))
            for d, place in enumerate(geometry.places):
                geometry.put(total, place, _maps(blocks[:, d, e] @ taken, x.shape[1], shape))
        return geometry.unprepare(total, *x.shape[-2:])

    return multiply


class _Cross(torch.autograd.Function):
    """sum_iu X'_{iu} v_{iu}', and its gradients: those of v = conv(X, W), with other names."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, values: Tensor, geometry: Geometry) -> Tensor:
        ctx.save_for_backward(x, values)
        ctx.geometry = geometry
        stride, padding = geometry.plain
        kernels = x.new_zeros(len(x), values.shape[1], x.shape[2], *geometry.kernel_size)
        for chunk in _chunks(x):
            for kernel, maps in zip(kernels, x[:, chunk], strict=True):
                kernel += conv2d_weight(geometry.wrap(maps), kernel.shape, values[chunk], stride, padding)
        return kernels.flatten(2).mT

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        x, values = ctx.saved_tensors
        geometry, cotangent = ctx.geometry, cotangents[0]
        stride, padding = geometry.plain
        kernels = cotangent.mT.unflatten(2, (x.shape[2], *geometry.kernel_size))
        gradient, to_values = torch.empty_like(x), torch.zeros_like(values)
        for chunk in _chunks(x):
            for maps, kernel, total in zip(x[:, chunk], kernels, gradient[:, chunk], strict=True):
                wrapped = geometry.wrap(maps)
                to_values[chunk] += functional.conv2d(wrapped, kernel, None, stride, padding)
                back = conv2d_input(wrapped.shape, kernel, values[chunk], stride, padding)
                total.copy_(geometry.unwrap(back))
        return gradient, to_values, None


def wrap(
    x: Float[Tensor, "*batch H W"], rows: tuple[int, int], columns: tuple[int, int]
) -> Float[Tensor, "*batch P Q"]:
    """The map continued periodically, by so many rows and columns before and after it."""
    (top, bottom), (left, right) = rows, columns
    height, width = x.shape[-2:]
    wrapped = x.new_empty(*x.shape[:-2], height + top + bottom, width + left + right)
    core = wrapped[..., top : top + height, :]
    core[..., left : left + width] = x
    for column in (*range(left), *range(left + width, wrapped.shape[-1])):
        core[..., column] = x[..., (column - left) % width]
    for row in (*range(top), *range(top + height, wrapped.shape[-2])):
        wrapped[..., row, :] = core[..., (row - top) % height, :]
    return wrapped


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
