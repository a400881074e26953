import pytest
import torch
from torch.nn import functional

from inducing.linalg.geometry import Geometry


@pytest.mark.parametrize("kernel", [(1, 1), (3, 2), (5, 5)])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 1])
def test_the_output_is_that_of_torchs_convolution(kernel, stride, padding):
    geometry = Geometry(kernel, (stride, stride), (padding, padding), "exact")
    expected = functional.conv2d(torch.zeros(1, 1, 9, 6), torch.zeros(1, 1, *kernel), None, stride, padding).shape[2:]
    assert geometry.output_shape(9, 6) == tuple(expected)


@pytest.mark.parametrize("boundary", ["circular", "exact"])
def test_put_and_unprepare_are_the_transposes_of_take_and_prepare(boundary):
    geometry = Geometry((3, 3), (2, 2), (1, 1), boundary)
    x, shape = torch.randn(2, 7, 6, dtype=torch.float64), geometry.output_shape(7, 6)
    for place in geometry.places:
        values = torch.randn(2, *shape, dtype=torch.float64)
        total = torch.zeros_like(geometry.prepare(x))
        geometry.put(total, place, values)
        taken = geometry.take(geometry.prepare(x), place, shape)
        torch.testing.assert_close((x * geometry.unprepare(total, 7, 6)).sum(), (taken * values).sum())
