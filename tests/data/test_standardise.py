import numpy as np
import pytest
import torch

from inducing.data.standardise import Standardiser


@pytest.mark.parametrize("kind", [torch.as_tensor, np.asarray])
def test_zero_mean_and_unit_deviation(kind):
    rows = kind(np.random.default_rng(0).normal(5, 3, (50, 2)))
    standard = Standardiser.of(rows).apply(rows, torch.float64)
    torch.testing.assert_close(standard.mean(0), torch.zeros(2).double(), rtol=0, atol=1e-12)
    torch.testing.assert_close(standard.std(0, correction=0), torch.ones(2).double())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("value", [0.0, 0.1, 1e6, -1e-6, 288.15])
def test_a_constant_column_becomes_zero(value, dtype):
    # the mean of many equal numbers is not always that number
    rows = np.full((7919, 1), value, dtype=dtype)
    standardiser = Standardiser.of(rows)
    assert standardiser.std == 1.0
    assert standardiser.apply(rows).abs().max() < 1e-6 * max(abs(value), 1)


@pytest.mark.parametrize("rows", [1e-8 * np.arange(3.0), 1.7e12 + 0.5 * np.arange(100.0)])
def test_small_and_large_are_not_constant(rows):
    torch.testing.assert_close(Standardiser.of(rows[:, None]).apply(rows[:, None]).std(correction=0).item(), 1.0)


def test_only_the_training_rows_count():
    train, test = np.array([[0.0], [2.0]]), np.array([[100.0]])
    assert Standardiser.of(train).apply(test) == 99.0


@pytest.mark.parametrize("rows", [np.zeros(3), np.zeros((0, 2))])
def test_bad_rows_are_refused(rows):
    with pytest.raises(ValueError, match="rows must be a table"):
        Standardiser.of(rows)


def test_whole_weights_are_repeated_rows():
    x, weights = torch.randn(6, 2), torch.tensor([0, 1, 2, 0, 3, 1])
    weighted, repeated = Standardiser.of(x, weights), Standardiser.of(x.repeat_interleave(weights, 0))
    torch.testing.assert_close(weighted.mean, repeated.mean)
    torch.testing.assert_close(weighted.std, repeated.std)


def test_reversed_rows():
    rows, weights = np.random.default_rng(0).normal(size=(5, 2)), np.arange(1.0, 6.0)
    forward, backward = Standardiser.of(rows, weights), Standardiser.of(rows[::-1], weights[::-1])
    torch.testing.assert_close(forward.mean, backward.mean)
    torch.testing.assert_close(forward.apply(rows[::-1]), forward.apply(rows).flip(0))


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e160, 1e300])
def test_sizes_whose_squares_are_out_of_range(size):
    rows = np.array([[1.0], [2.0], [6.0]])
    expected = Standardiser.of(rows)
    found = Standardiser.of(size * rows)
    np.testing.assert_allclose(found.mean / size, expected.mean)
    np.testing.assert_allclose(found.std / size, expected.std)
    torch.testing.assert_close(found.apply(size * rows), expected.apply(rows))


def test_sizes_whose_differences_are_out_of_range():
    with pytest.raises(ValueError, match="column 1 has values of size"):
        Standardiser.of(np.array([[1.0, 1.5e308], [1.0, -1.5e308]]))
