"""Arrays as people have them become the same tensor."""

import numpy as np
import pandas as pd
import pytest
import torch

from inducing.arrays import as_tensor

ROWS = np.arange(6.0).reshape(3, 2)


def read_only(rows):
    rows = rows.copy()
    rows.setflags(write=False)
    return rows


@pytest.mark.parametrize(
    "convert",
    [
        lambda rows: rows[::-1].copy()[::-1],
        lambda rows: np.flip(np.flip(rows).copy()),
        lambda rows: pd.DataFrame(rows).iloc[::-1].iloc[::-1],
        lambda rows: rows.astype(">f8"),
        np.asfortranarray,
        read_only,
        np.ndarray.tolist,
        torch.from_numpy,
    ],
    ids=["reversed", "flipped", "table", "byte order", "columns first", "read-only", "list", "tensor"],
)
def test_all_kinds_of_arrays(convert):
    assert torch.equal(as_tensor(convert(ROWS)), torch.from_numpy(ROWS))
    assert torch.equal(as_tensor(convert(ROWS), torch.float32), torch.from_numpy(ROWS).float())


def test_numbers_have_no_axes():
    assert as_tensor(1.5).shape == ()
    assert as_tensor(np.float32(1.5)).dtype == torch.float32


def test_ordinary_arrays_are_not_copied():
    rows = np.zeros((2, 2))
    assert as_tensor(rows).data_ptr() == rows.ctypes.data
