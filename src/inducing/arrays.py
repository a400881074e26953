"""Conversion of arrays to tensors."""

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
