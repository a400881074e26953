import pytest
import torch
from torch.nn import functional

from inducing.linalg.convolution.geometry import Geometry


@pytest.mark.parametrize("kernel", [(1, 1), (3, 2), (5, 5)])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 1])
def test_the_output_is_that_of_torchs_convolution(kernel, stride, padding):
    geometry = Geometry(kernel, (stride, stride), (padding, padding), "exact")
    expected = functional.conv2d(torch.zeros(1, 1, 9, 6), torch.zeros(1, 1, *kernel), None, stride, padding).shape[2:]
    assert geometry.output_shape(9, 6) == tuple(expected)


@pytest.mark.parametrize("boundary", ["circular", "exact"])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (5, 3)])
def test_unwrap_is_the_transpose_of_wrap(boundary, kernel):
    geometry = Geometry(kernel, (2, 2), (1, 1), boundary)
    x = torch.randn(2, 7, 6, dtype=torch.float64)
    wrapped = geometry.wrap(x)
    values = torch.randn_like(wrapped)
    expected = (wrapped * values).sum()
    torch.testing.assert_close((x * geometry.unwrap(values)).sum(), expected)
