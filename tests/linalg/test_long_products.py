"""Long products in blocks: the same numbers, with less rounding."""

import pytest
import torch

from inducing.linalg.long_products import BLOCK, long_product


@pytest.mark.parametrize("length", [1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 7])
def test_it_is_the_product(length):
    left, right = torch.randn(2, 3, length, dtype=torch.float64), torch.randn(2, 4, length, dtype=torch.float64)
    torch.testing.assert_close(long_product(left, right), left @ right.mT)


def test_slices_of_a_longer_row():
    rows = torch.randn(1, 3, 4 * BLOCK, dtype=torch.float64)
    left, right = rows[..., 5 : 5 + 3 * BLOCK], rows[..., 9 : 9 + 3 * BLOCK]
    torch.testing.assert_close(long_product(left, right), left @ right.mT)


def test_blocks_are_added_up_in_float64():
    """A sum in float32 has a resolution of 2 here, so adding 1 would have no effect."""
    x = torch.ones(1, 1, 2**25 + 5 * BLOCK)
    assert long_product(x, x).item() == 2**25 + 5 * BLOCK
    one = torch.zeros(1, 1, 2 * BLOCK)
    one[..., 0], one[..., -1] = 2.0**12, 0.5
    # 2^24 + 1/4, which float32 does not have
    assert long_product(one, one).item() == 2**24 + 0.25
