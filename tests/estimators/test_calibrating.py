"""Factors of the noise and of the precisions, chosen by held-out rows."""

import copy
import math

import pytest
import torch

import inducing
from inducing.estimators.calibrating import MOST_DOUBLINGS, Factors, find_factors

X = torch.randn(400, 2, generator=torch.Generator().manual_seed(0))


def network_of(log_precision: float) -> inducing.Network:
    """One linear layer whose function is x1 + x2, with a precision at each of 50 inducing points."""
    posterior = inducing.GlobalInducing(log_precision=log_precision)
    points = X[:50]
    layer = inducing.Linear(2, 1, posterior=posterior)
    return inducing.Network([layer], inducing_points=points, inducing_targets=points.sum(1, keepdim=True))


@pytest.mark.parametrize(
    ("likelihood", "doublings"),
    [
        (inducing.Gaussian(0.16), -4),
        (inducing.Gaussian(0.01), 0),
        (inducing.Gaussian(0.01 / 8), 3),
        (inducing.StudentT(0.4, 1000.0), -4),
    ],
    ids=str,
)
def test_the_noise_variance_is_that_of_held_out_rows(likelihood, doublings):
    """A precise posterior has only its noise to correct, and 0.01 is a power of two times the noise."""
    noise = 0.1 * torch.randn(400, 1, generator=torch.Generator().manual_seed(1))
    rows = inducing.HeldOut(X, X.sum(1, keepdim=True) + noise)
    assert find_factors(network_of(14.0), likelihood, rows, 0).noise == doublings


def test_weights_decide_which_noise_counts():
    """Half of the rows have eight times the noise variance of the others."""
    noise = 0.1 * torch.randn(400, 1, generator=torch.Generator().manual_seed(1))
    noise[200:] *= 8**0.5
    y = X.sum(1, keepdim=True) + noise
    for weights, doublings in ((torch.arange(400) < 200, 0), (torch.arange(400) >= 200, 3)):
        rows = inducing.HeldOut(X, y, weights=weights.float())
        assert find_factors(network_of(14.0), inducing.Gaussian(0.01), rows, 0).noise == doublings


def test_draws_that_are_too_far_apart_come_closer():
    """The noise alone explains the rows, so a wide posterior costs log-likelihood."""
    noise = 0.1 * torch.randn(400, 1, generator=torch.Generator().manual_seed(1))
    rows = inducing.HeldOut(X, X.sum(1, keepdim=True) + noise)
    network, likelihood = network_of(0.0), inducing.Gaussian(0.01)
    before = rows.score(network, likelihood, 0)
    factors = find_factors(network, likelihood, rows, 0)
    assert factors.precision > 2
    factors.apply(network, likelihood)
    assert rows.score(network, likelihood, 0) > before + 0.1


def test_factors_multiply_the_precisions_and_the_noise():
    network, likelihood = network_of(3.0), inducing.Gaussian(0.5)
    Factors(noise=2, precision=-1).apply(network, likelihood)
    assert likelihood.noise_variance.item() == pytest.approx(2.0)
    expected = (3.0 - math.log(2)) / 3
    (precisions,) = (each for name, each in network.named_parameters() if name.endswith("scaled_log_precision"))
    assert torch.allclose(precisions, torch.full_like(precisions, expected))


def test_classes_have_no_noise():
    network, likelihood = inducing.models.mlp(2, 3, [5], inducing_points=X[:10]), inducing.Categorical()
    rows = inducing.HeldOut(X, (X[:, 0] > 0).long())
    before = copy.deepcopy(network.state_dict())
    assert all(each.noise == 0 for each in Factors().neighbours(has_noise=False))
    assert find_factors(network, likelihood, rows, 0).noise == 0
    assert all(torch.equal(each, before[name]) for name, each in network.state_dict().items()), "unchanged"


def test_the_factors_have_limits():
    limit = Factors(MOST_DOUBLINGS, -MOST_DOUBLINGS)
    assert set(limit.neighbours(has_noise=True)) == {
        limit._replace(noise=MOST_DOUBLINGS - 1),
        limit._replace(precision=1 - MOST_DOUBLINGS),
    }
