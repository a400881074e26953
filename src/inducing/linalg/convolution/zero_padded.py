"""The Gram matrix of a convolution with zero padding and stride.

Its block for two kernel positions d and e is the sum of X_r X_{r+s}' over a window of pixels r, with s = e - d. The windows
of blocks with the same s differ only by rows and columns at their borders. So the map is cut into pieces at the edges of all
windows. The product over each piece is computed once and added to the blocks whose windows contain it. Pieces in the padding
are left out. A 3 x 3 kernel with padding 1 needs 13 products over most of the map, 12 over rows and columns and 4 over
corners. One product per block would be 45.

Pieces are only added, never subtracted, so no digits are lost. With stride t, windows share pixels if their positions differ
by multiples of t.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from inducing.linalg.convolution.geometry import Geometry
from inducing.linalg.long_products import long_product

# overhead of one more product, in multiplications
OVERHEAD = 2**19


@dataclass(frozen=True)
class Window:
    """A regular grid of pixels of a map. Rows and columns are each given as (first index, number, step)."""

    rows: tuple[int, int, int]
    columns: tuple[int, int, int]

    @property
    def size(self) -> int:
        """Number of pixels."""
        return self.rows[1] * self.columns[1]

    def take(self, maps: Float[Tensor, "*batch H W"]) -> Float[Tensor, "*batch h w"]:
        """Return the pixels of the window as a view of the map."""
        (top, down, step), (left, across, stride) = self.rows, self.columns
        return maps[..., top : top + step * (down - 1) + 1 : step, left : left + stride * (across - 1) + 1 : stride]


class Product(NamedTuple):
    """X_first X_second', and the blocks (d, e), d <= e, that it is part of."""

    first: Window
    second: Window
    blocks: tuple[tuple[int, int], ...]


class ExactGram:
    """The products that make up the Gram matrix, and its gradient.

    Arguments:
        geometry: The convolution.
        height: Rows of the map.
        width: Columns of the map.
        cost: Multiplications for each pixel of a product.
    """

    def __init__(self, geometry: Geometry, height: int, width: int, cost: int) -> None:
        self.products = gram_products(geometry, height, width, cost)
        self.blocks = [list(product.blocks) for product in self.products]

    def add_products(
        self, products: Float64[Tensor, "D S C C"], x: Float[Tensor, "S m C H W"], weights: Float[Tensor, "m 1 1 1"]
    ) -> None:
        """Add sum_r lambda X_r X_{r+s}' over each piece."""
        maps, scaled = x.transpose(1, 2).contiguous(), (x * weights).transpose(1, 2).contiguous()
        for total, (first, second, _) in zip(products, self.products, strict=True):
            total += long_product(first.take(scaled).flatten(2), second.take(maps).flatten(2))

    def multiplier(self, blocks: Float[Tensor, "S K K C C"]) -> Callable[[Tensor], Tensor]:
        """Return X_r -> K X_{r+s}, X_{r+s} -> K' X_r over each piece. K is the sum of the blocks that contain the piece."""
        kernels = [torch.stack([blocks[:, d, e] for d, e in members]).sum(0) for members in self.blocks]

        def multiply(x: Float[Tensor, "S m C H W"]) -> Float[Tensor, "S m C H W"]:
            maps = x.transpose(1, 2).contiguous()
            total = torch.zeros_like(maps)
            for kernel, (first, second, _) in zip(kernels, self.products, strict=True):
                left, right = first.take(maps), second.take(maps)
                first.take(total).add_((kernel @ right.flatten(2)).view(left.shape))
                if first != second:
                    second.take(total).add_((kernel.mT @ left.flatten(2)).view(left.shape))
            return total.transpose(1, 2)

        return multiply


@functools.lru_cache(maxsize=256)
def gram_products(geometry: Geometry, height: int, width: int, cost: int) -> tuple[Product, ...]:
    """List the products, either of pieces or of whole windows, whichever is faster.

    Arguments:
        geometry: The convolution.
        height: Rows of the map.
        width: Columns of the map.
        cost: Multiplications for each pixel of a product.
    """
    pixels = geometry.output_shape(height, width)
    plans = []
    for is_shared in (True, False):
        rows, columns = (
            _pieces(*axis, is_shared=is_shared)
            for axis in zip(
                geometry.kernel_size, geometry.stride, geometry.padding, (height, width), pixels, strict=True
            )
        )
        plans.append(tuple(_product(geometry, a, b) for a in rows for b in columns if (a.shift, b.shift) >= (0, 0)))
    return min(plans, key=lambda plan: sum(OVERHEAD + cost * product.first.size for product in plan))


class _Piece(NamedTuple):
    """Pixels of one axis, and the kernel positions i whose windows contain them. i + shift is a position, too."""

    start: int
    length: int
    step: int
    shift: int
    places: list[int]


def _pieces(kernel: int, stride: int, padding: int, size: int, outputs: int, *, is_shared: bool) -> list[_Piece]:
    """Cut one axis at the edges of windows that share pixels, or return each window separately."""
    found = []
    for shift in range(1 - kernel, kernel):
        places = range(max(0, -shift), min(kernel, kernel - shift))
        groups = [places[residue::stride] for residue in range(min(stride, len(places)))]
        for group in groups if is_shared else [range(i, i + 1) for i in places]:
            # in steps of the stride from the first place, window i is [(i - first) / stride, ... + outputs)
            starts = {i: (i - group[0]) // stride for i in group}
            cuts = sorted({edge for start in starts.values() for edge in (start, start + outputs)})
            # in the padding one of the factors is zero: keep 0 <= pixel < size and 0 <= pixel + shift < size
            origin = group[0] - padding
            low, high = max(0, -shift) - origin, min(size, size - shift) - origin
            for begin, end in itertools.pairwise(cuts):
                members = [i for i, start in starts.items() if start <= begin and end <= start + outputs]
                begin, end = max(begin, -(-low // stride)), min(end, -(-high // stride))
                if members and begin < end:
                    found.append(_Piece(origin + stride * begin, end - begin, stride, shift, members))
    return found


def _product(geometry: Geometry, rows: _Piece, columns: _Piece) -> Product:
    first, second = (
        Window(*((axis.start + shifted * axis.shift, axis.length, axis.step) for axis in (rows, columns)))
        for shifted in (0, 1)
    )
    width = geometry.kernel_size[1]
    blocks = tuple(
        (i * width + j, (i + rows.shift) * width + j + columns.shift) for i in rows.places for j in columns.places
    )
    return Product(first, second, blocks)
