import numpy as np
import pytest

from inducing.data.standardise import Standardiser


def test_zero_mean_and_unit_deviation():
    rows = np.random.default_rng(0).normal(5, 3, (50, 2))
    standard = Standardiser.of(rows).apply(rows)
    np.testing.assert_allclose(standard.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(standard.std(0), 1)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6, -1e-6, 288.15])
def test_a_constant_column_becomes_zero(value):
    # the mean of many equal numbers is not always that number
    rows = np.full((7919, 1), value)
    standardiser = Standardiser.of(rows)
    assert standardiser.std == 1.0
    np.testing.assert_allclose(standardiser.apply(rows), 0, atol=1e-9 * max(abs(value), 1))


def test_small_is_not_constant():
    rows = 1e-8 * np.array([[1.0], [2.0], [3.0]])
    np.testing.assert_allclose(Standardiser.of(rows).apply(rows).std(0), 1)


def test_only_the_training_rows_count():
    train, test = np.array([[0.0], [2.0]]), np.array([[100.0]])
    assert Standardiser.of(train).apply(test) == 99.0
