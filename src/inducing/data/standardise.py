"""Standardisation to zero mean and unit standard deviation, learned from the training rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from inducing.arrays import as_tensor

# differences of larger numbers overflow
LARGEST = 1e307


class Standardiser(NamedTuple):
    """x -> (x - mean) / std, column by column, computed in float64.

    Arguments:
        mean: Mean of each column.
        std: Standard deviation of each column, or 1 for a constant column, which becomes zero.

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
        """Compute mean and standard deviation of the training rows. A row with weight 2 counts as two rows.

        Missing values (NaN) are left out.
        """
        given = as_tensor(rows)
        if given.ndim != 2 or len(given) == 0:
            raise ValueError(f"rows must be a table (N, D) with at least one row, got shape {tuple(given.shape)}")
        resolution = torch.finfo(given.dtype if given.is_floating_point() else torch.float64).eps
        columns = given.double()
        missing = columns.isnan()
        columns = torch.where(missing, 0.0, columns)
        largest = columns.abs().amax(0)
        if (largest > LARGEST).any():
            column = int((largest > LARGEST).nonzero()[0])
            raise ValueError(f"column {column} has values of size {largest[column]:.2g}. Rescale it below 1e307.")
        # squares overflow above 1e154; division by a power of 2 is exact
        unit = as_tensor(np.ldexp(1.0, np.frexp(largest.cpu().numpy())[1] - 1)).to(columns.device)
        scaled = columns / unit
        shares = torch.ones(len(columns)).double() if weights is None else as_tensor(weights).double()
        if missing.any():
            shares = torch.where(missing, 0.0, shares.to(columns.device)[:, None])
            if (unknown := shares.sum(0) == 0).any():
                raise ValueError(f"column {int(unknown.nonzero()[0])} has only NaN. Remove this column")
            shares = shares / shares.sum(0)
        else:
            shares = (shares / shares.sum())[:, None]
        mean = (shares * scaled).sum(0)
        std = (shares * (scaled - mean).square()).sum(0).sqrt()
        # rounding gives a constant column a tiny standard deviation
        constant = std <= 100 * resolution * (largest / unit)
        std = std * unit
        return cls(mean * unit, torch.where(constant | (std == 0), 1.0, std))

    def apply(self, rows: Tensor | np.ndarray, dtype: torch.dtype = torch.float32) -> Float[Tensor, "N D"]:
        """Standardise rows into a tensor for a network."""
        return ((as_tensor(rows).double() - self.mean) / self.std).to(dtype)
