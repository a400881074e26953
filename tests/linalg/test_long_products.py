"""Long products in blocks: the same numbers, with less rounding."""

import pytest
import torch

from inducing.linalg.long_products import BLOCK, long_product


@pytest.mark.parametrize("length", [1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 7])
def test_it_is_the_product(length):
    left, right = torch.randn(2, 3, length, dtype=torch.float64), torch.randn(2, 4, length, dtype=torch.float64)
    torch.testing.assert_close(long_product(left, right), left @ right.mT)


def test_slices_of_a_longer_row_need_no_copy():
    rows = torch.randn(1, 3, 4 * BLOCK, dtype=torch.float64)
    left, right = rows[..., 5 : 5 + 3 * BLOCK], rows[..., 9 : 9 + 3 * BLOCK]
    torch.testing.assert_close(long_product(left, right), left @ right.mT)


def test_the_error_does_not_grow_with_the_length():
    units = []
    for blocks in (1, 64):
        x = 1.0 + torch.rand(1, 4, blocks * BLOCK)
        exact = x.double() @ x.double().mT
        units.append(((long_product(x, x) - exact) / exact).abs().max().item() / 2**-24)
    assert max(units) < 32
