import math

import numpy as np
import pytest
import torch
from scipy import stats

import inducing
from inducing.nn.likelihoods import integer_quantile

# a prime number of draws: no level is a whole share of them
OUTPUTS = (2 + 1.5 * torch.randn(31, 8, 2, generator=torch.Generator().manual_seed(0))).double()


@pytest.mark.parametrize("level", [1e-9, 0.05, 0.5, 0.9, 1 - 1e-9])
def test_the_smallest_integer_that_reaches_the_level(level):
    """By a table of the mixture's probabilities."""
    found = integer_quantile(inducing.Poisson(), OUTPUTS, level)
    ks = np.arange(5000.0)
    law = stats.poisson(OUTPUTS.exp().numpy()[..., None])
    # the nearer tail, so that no digits are lost
    reached = law.cdf(ks).mean(0) >= level if level <= 0.5 else law.sf(ks).mean(0) <= 1 - level
    np.testing.assert_array_equal(found.numpy(), reached.argmax(-1))


def test_ties_are_not_decided_by_rounding():
    """P(Y <= 0) is exactly 0.5 for an even number of opposite logits, and 1/4 for p = 3/4."""
    outputs = torch.linspace(-3, 3, 50).double()[:, None, None]
    assert integer_quantile(inducing.Bernoulli(), outputs, 0.5).item() == 0
    assert (
        integer_quantile(inducing.Bernoulli(), torch.full((7, 1, 1), math.log(3), dtype=torch.float64), 0.25).item()
        == 0
    )


def test_a_plateau_at_the_level_is_left_at_its_lower_end():
    """Nine of ten draws are far below the last: P(Y <= k) is 0.9 to 12 digits from the end of the nine on."""
    outputs = torch.tensor([1.0] * 9 + [10.0]).double()[:, None, None]
    of_nine = stats.poisson(math.e).isf(1e-12)
    assert abs(integer_quantile(inducing.Poisson(), outputs, 0.9).item() - of_nine) <= 2
    assert integer_quantile(inducing.Poisson(), outputs, 0.9001).item() > 20_000


def test_large_counts():
    outputs = torch.full((3, 1, 1), 19.0).double()
    exact = stats.poisson(math.exp(19)).ppf([0.01, 0.99])
    found = [integer_quantile(inducing.Poisson(), outputs, level).item() for level in (0.01, 0.99)]
    np.testing.assert_array_equal(found, exact)


def test_missing_outputs_give_missing_quantiles():
    outputs = torch.tensor([0.0, float("nan")]).double()[None, :, None]
    found = integer_quantile(inducing.Poisson(), outputs, 0.5)
    assert found[0, 0] == 1
    assert math.isnan(found[1, 0])
