"""The Gram matrix of a circular convolution. Its block for two kernel positions d and e depends only on s = e - d."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn import functional

from inducing.linalg.convolution.geometry import Geometry, Place, wrap
from inducing.linalg.long_products import long_product


class CircularGram:
    """The products that make up the Gram matrix, one for each difference of kernel positions, and its gradient.

    Arguments:
        geometry: The convolution.
    """

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        same: dict[Place, list[tuple[int, int]]] = {}
        for (d, (i, j)), (e, (k, n)) in itertools.combinations_with_replacement(enumerate(geometry.places), 2):
            same.setdefault((k - i, n - j), []).append((d, e))
        self.differences, self.blocks = list(same), list(same.values())

    def add_products(
        self, products: Float64[Tensor, "D S C C"], x: Float[Tensor, "S m C H W"], weights: Float[Tensor, "m 1 1 1"]
    ) -> None:
        """Add G_s = sum_u lambda X_u X_{u+s}' of a few images.

        All pixels of all images are flattened into one row. Images are padded, so that a shift (i, j) never leaves its
        image and equals an offset of i * width + j. The shifted maps are then slices, and no shift needs a copy.
        """
        down, across = (size - 1 for size in self.geometry.kernel_size)
        wrapped = wrap(x.transpose(1, 2), (0, down), (across, across))
        # zero where the other factor is wrapped, so that each pixel counts once
        scaled, width = torch.zeros_like(wrapped), wrapped.shape[-1]
        inner = scaled[..., : x.shape[-2], across : across + x.shape[-1]]
        torch.mul(x.transpose(1, 2), weights[:, 0], out=inner)
        length = wrapped[0, 0].numel() - down * width - 2 * across
        left, right = scaled.flatten(2)[..., across : across + length], wrapped.flatten(2)
        for product, (i, j) in zip(products, self.differences, strict=True):
            start = across + i * width + j
            product += long_product(left, right[..., start : start + length])

    def multiplier(self, blocks: Float[Tensor, "S K K C C"]) -> Callable[[Tensor], Tensor]:
        """Return X_u -> sum_s K_s X_{u+s}, a convolution with a wider kernel. K_s is the sum of the blocks e - d = s."""
        rows, columns = self.geometry.kernel_size
        sums = blocks.new_zeros(2 * rows - 1, 2 * columns - 1, *blocks[:, 0, 0].shape)
        for (d, (i, j)), (e, (k, n)) in itertools.product(enumerate(self.geometry.places), repeat=2):
            sums[k - i + rows - 1, n - j + columns - 1] += blocks[:, d, e]
        kernels = sums.permute(2, 3, 4, 0, 1).contiguous()

        def multiply(x: Float[Tensor, "S m C H W"]) -> Float[Tensor, "S m C H W"]:
            wrapped = wrap(x, (rows - 1, rows - 1), (columns - 1, columns - 1))
            return torch.stack([functional.conv2d(maps, kernel) for maps, kernel in zip(wrapped, kernels, strict=True)])

        return multiply
