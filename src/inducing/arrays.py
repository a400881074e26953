"""Conversion of arrays to tensors, and numbers of rows."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def as_tensor(values: object, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Tensor:
    """Convert numbers, lists, arrays and pandas objects to a tensor. Tensors are not copied.

    Arrays are copied unless they are contiguous, writable and in the byte order of this machine. So reversed views
    (``x[::-1]``) and read-only arrays are accepted.
    """
    if not isinstance(values, Tensor):
        array = np.asarray(values)
        values = np.require(array, array.dtype.newbyteorder("="), ["C_CONTIGUOUS", "WRITEABLE"])
    return torch.as_tensor(values, dtype=dtype, device=device)


def evenly_spaced(num_rows: int, most: int) -> Tensor:
    """Return the indices of at most `most` evenly spaced rows."""
    return torch.linspace(0, num_rows - 1, min(most, num_rows), dtype=torch.float64).long()
