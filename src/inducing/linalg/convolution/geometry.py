"""The shape of a convolution: which pixels of a feature map its patches contain."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

Boundary = Literal["circular", "exact"]
Place = tuple[int, int]


@dataclass(frozen=True)
class Geometry:
    """The shape of a convolution.

    Arguments:
        kernel_size: Height and width of the kernel.
        stride: Step between two outputs. Ignored if the boundary is circular.
        padding: Number of zeros around the map. Ignored if the boundary is circular: the kernel is centred on each pixel.
        boundary: "circular" or "exact" (zero padding and stride).
    """

    kernel_size: Place
    stride: Place = (1, 1)
    padding: Place = (0, 0)
    boundary: Boundary = "circular"

    @property
    def places(self) -> list[Place]:
        """Kernel positions in the order of features, as offsets from the pixel (circular) or from the patch's corner."""
        rows, columns = self.kernel_size
        shift = (rows // 2, columns // 2) if self.boundary == "circular" else (0, 0)
        return [(i - shift[0], j - shift[1]) for i, j in itertools.product(range(rows), range(columns))]

    def output_shape(self, height: int, width: int) -> Place:
        """Return the height and width of the output, one pixel for each patch."""
        if self.boundary == "circular":
            return height, width
        sizes = zip((height, width), self.kernel_size, self.stride, self.padding, strict=True)
        rows, columns = ((size + 2 * padding - kernel) // stride + 1 for size, kernel, stride, padding in sizes)
        return rows, columns

    def wrap(self, x: Float[Tensor, "*batch H W"]) -> Float[Tensor, "*batch P Q"]:
        """Extend the map periodically if the boundary is circular, so that a plain convolution gives the outputs."""
        if self.boundary == "exact":
            return x
        rows, columns = (size // 2 for size in self.kernel_size)
        return wrap(x, (rows, rows), (columns, columns))

    @property
    def plain(self) -> tuple[Place, Place]:
        """Stride and padding of the plain convolution of the map returned by `wrap`."""
        return ((1, 1), (0, 0)) if self.boundary == "circular" else (self.stride, self.padding)

    def prepare(self, x: Float[Tensor, "*batch H W"]) -> Float[Tensor, "*batch P Q"]:
        """Pad the map with zeros if the boundary is exact, as `take` needs it."""
        if self.boundary == "circular":
            return x
        return functional.pad(x, (self.padding[1], self.padding[1], self.padding[0], self.padding[0]))

    def take(self, x: Float[Tensor, "*batch P Q"], place: Place, shape: Place) -> Float[Tensor, "*batch h w"]:
        """Return the pixel of each patch at one kernel position."""
        if self.boundary == "circular":
            return x.roll((-place[0], -place[1]), (-2, -1))
        (i, j), (rows, columns), (down, across) = place, shape, self.stride
        return x[..., i : i + down * (rows - 1) + 1 : down, j : j + across * (columns - 1) + 1 : across]

    def unwrap(self, total: Float[Tensor, "*batch P Q"]) -> Float[Tensor, "*batch H W"]:
        """Transpose of `wrap`: add values outside the border to the pixels they were copied from."""
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


def wrap(
    x: Float[Tensor, "*batch H W"], rows: tuple[int, int], columns: tuple[int, int]
) -> Float[Tensor, "*batch P Q"]:
    """Extend the map periodically by the given numbers of rows and columns before and after it."""
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
