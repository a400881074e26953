"""Numbers are written as people write them in the column."""

import numpy as np
import pytest

from inducing.tables.numbers import decimals_of, decimals_of_predictions, format_number


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (61750.0, None, "61,750"),
        (61750.0, 2, "61,750.00"),
        (2015.0, 0, "2015"),
        (-12345.6, 1, "-12,345.6"),
        (0.012345, None, "0.01235"),
        (0.0, None, "0"),
        (3e-12, None, "3e-12"),
        (1e18, None, "1e+18"),
        (float("inf"), 2, "inf"),
        (float("nan"), 2, "nan"),
    ],
)
def test_a_number(value, decimals, text):
    assert format_number(value, decimals) == text


@pytest.mark.parametrize(
    ("values", "decimals"),
    [
        ([1, 200, 61750], 0),
        ([1.5, 2.0, np.nan], 1),
        (np.array([0.1, 0.25], dtype=np.float32), 2),
        (np.random.default_rng(0).normal(size=100) + 2.0 * np.arange(100), 2),
        ([5.015, 1.005], 3),
        ([np.nan], 0),
    ],
)
def test_the_decimals_of_a_column(values, decimals):
    assert decimals_of(values) == decimals


def test_predictions_have_the_decimals_of_the_target_or_four_digits_of_its_spread():
    assert decimals_of_predictions([100000, 250000]) == 0
    assert decimals_of_predictions([100000.25, 250000.5]) == 2
    assert decimals_of_predictions([0, 1, 2, 3]) == 3
