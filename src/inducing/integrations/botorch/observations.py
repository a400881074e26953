"""New data of a model, real or fantasised."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Observations:
    """New data, in the units of the network.

    Arguments:
        x: The points, transformed.
        y: The observations, transformed.
        variance: Variances of their noise, or NaN where the likelihood gives them.
        noise: Standard normal noise of each draw.
    """

    x: Float[Tensor, "*batch n d"]
    y: Float[Tensor, "*batch n m"]
    variance: Float[Tensor, "*batch n m"]
    noise: Float[Tensor, "S n m"]

    def join(self, other: Observations) -> Observations:
        """Return both sets of observations as one."""
        batch = torch.broadcast_shapes(self.y.shape[:-2], other.y.shape[:-2])

        def stack(*parts: Tensor) -> Tensor:
            return torch.cat([part.expand(*batch, -1, -1) for part in parts], -2)

        x, y, variance = stack(self.x, other.x), stack(self.y, other.y), stack(self.variance, other.variance)
        return Observations(x, y, variance, torch.cat([self.noise, other.noise], 1))
