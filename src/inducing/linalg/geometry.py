"""The shape of a convolution: which pixels of a map its patches hold."""

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
