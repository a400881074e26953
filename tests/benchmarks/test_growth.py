import math

import pytest

from benchmarks import growth


def test_exponents_are_slopes_of_logarithms():
    assert growth.exponent([1, 2, 4], [3.0, 12.0, 48.0]) == pytest.approx(2.0)


def test_sizes_have_a_step_and_a_number_of_operations():
    sizes = growth.Sizes(num_data=10, num_inducing=3, width=2, num_samples=1)
    sizes.step()()
    assert math.isfinite(sizes.operations())
