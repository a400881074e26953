"""Zero mean and unit standard deviation, from the training rows alone; constant columns become zero."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


class Standardiser(NamedTuple):
    """x -> (x - mean) / std, column by column, computed in float64.

    Arguments:
        mean: Mean of each column.
        std: Its standard deviation; 1 for a constant column, so that it becomes zero and not NaN.

    Example:
        >>> import inducing, torch
        >>> x = 5 + 2 * torch.randn(100, 3)
        >>> scale = inducing.Standardiser.of(x)
        >>> scale.apply(x).std(0).round(decimals=1)
        tensor([1., 1., 1.])
    """

    mean: Float[Tensor, " D"]
    std: Float[Tensor, " D"]

    @classmethod
    def of(cls, rows: Tensor | np.ndarray, weights: Tensor | np.ndarray | None = None) -> Standardiser:
        """Take the moments of the training rows; a row of weight 2 counts as two."""
        given = torch.as_tensor(rows)
        if given.ndim != 2 or len(given) == 0:
            raise ValueError(f"rows must be a table (N, D) with at least one row, got shape {tuple(given.shape)}")
        resolution = torch.finfo(given.dtype).eps if given.is_floating_point() else 0.0
        columns = given.double()
        shares = torch.ones(len(columns)).double() if weights is None else torch.as_tensor(weights).double()
        shares = (shares / shares.sum())[:, None]
        mean = (shares * columns).sum(0)
        std = (shares * (columns - mean).square()).sum(0).sqrt()
        # rounding gives a constant column a tiny standard deviation
        constant = std <= 100 * resolution * columns.abs().amax(0)
        return cls(mean, torch.where(constant, 1.0, std))

    def apply(self, rows: Tensor | np.ndarray, dtype: torch.dtype = torch.float32) -> Float[Tensor, "N D"]:
        """Standardise rows into a tensor for a network."""
        return ((torch.as_tensor(rows).double() - self.mean) / self.std).to(dtype)
