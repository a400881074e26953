"""Annealed importance sampling of Gaussian processes against their closed-form evidence, in both directions."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import MultivariateNormal

import inducing
from inducing.inference.annealing import Annealing
from inducing.inference.hmc import whitened
from inducing.inference.hmc.whitened import WhitenedPosterior, start_at_prior
from inducing.inference.importance import ImportanceWeightedBound
from inducing.linalg.noise import seeded

X = torch.linspace(-1.5, 1.5, 8, dtype=torch.float64)[:, None]
NOISE, JITTER = 0.1, 1e-6
QUICK = {"num_temperatures": 200, "progress": False}


def gaussian():
    return inducing.Gaussian(NOISE, learn_variance=False).double()


def process(posterior="prior", **targets):
    return inducing.Network([inducing.GPLayer(1, 1, posterior=posterior)], inducing_points=X, **targets)


def deep(posterior="prior"):
    return inducing.models.deep_gp(1, 1, posterior=posterior, inducing_points=X)


def simulated(network):
    """One draw at the rows of x, and targets with noise."""
    draw = network.draw(1, seeded(0, "function"))
    return draw, gaussian().sample(draw.inducing, seeded(0, "noise"))[0].detach()


def log_evidence(y):
    # k(x, x') = exp(-(x - x')^2 / 2)
    covariance = (-(X - X.mT).square() / 2).exp() + (JITTER + NOISE) * torch.eye(8)
    return MultivariateNormal(torch.zeros(8).double(), covariance).log_prob(y[:, 0]).item()


def test_weights_are_unbiased_in_both_directions_with_few_temperatures():
    """E[v] = p(y) and E[1 / v] = 1 / p(y), with an exact posterior sample for each chain."""
    _, y = simulated(process())
    exact = process(inducing.GlobalInducing(log_precision=-math.log(NOISE)), inducing_targets=y)
    target = WhitenedPosterior(exact, gaussian(), (X, y))
    annealing = Annealing(target, [0.0, *(1.3 ** (index - 20) for index in range(21))], [0.3] * 22, 4)
    start = start_at_prior(target, 10_000, seeded(0, "prior")).position
    forward = ImportanceWeightedBound(annealing.log_weights(start, seeded(0, "forward"))[0], 8)
    samples = exact.draw(10_000, seeded(0, "posterior"))
    start = target.position([samples.layers[0].variables])
    log_weights, _ = annealing.reverse().log_weights(start, seeded(0, "backward"))
    backward = ImportanceWeightedBound(-log_weights, 8)
    for found, expected in ((forward, log_evidence(y)), (backward, -log_evidence(y))):
        assert found.standard_error < 0.1
        assert abs(found.value - expected) < 4 * found.standard_error
    # by Jensen's inequality
    assert forward.log_weights.mean() < log_evidence(y) < log_weights.mean()


def test_the_bounds_of_one_process_meet_at_its_evidence():
    network = process()
    draw, y = simulated(network)
    found = inducing.evidence(network, gaussian(), (X, y), posterior_sample=draw, **QUICK)
    assert abs(found.lower - log_evidence(y)) < 4 * found.standard_error
    assert abs(found.upper - log_evidence(y)) < 4 * found.upper_standard_error
    assert found.standard_error < 0.2


def test_the_bounds_of_a_deep_process_are_close_for_simulated_data():
    network = deep()
    draw, y = simulated(network)
    found = inducing.evidence(network, gaussian(), (X, y), posterior_sample=draw, **QUICK)
    error = math.hypot(found.standard_error, found.upper_standard_error)
    assert abs(found.upper - found.lower) < 4 * error < 2
    # the same evidence from draws of the prior at the data
    outputs = network.draw(20_000, seeded(0, "prior")).inducing.detach()
    prior = ImportanceWeightedBound(gaussian().log_prob(outputs, y).sum(-1), 8)
    assert abs(found.lower - prior.value) < 4 * math.hypot(found.standard_error, prior.standard_error)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_positions_and_draws_are_inverse_in_a_mixed_network(dtype):
    layers = [inducing.Linear(1, 3, posterior="prior"), nn.Tanh(), inducing.GPLayer(3, 2, posterior="prior")]
    network = inducing.Network([*layers, inducing.Linear(2, 1, posterior="prior")], inducing_points=X.to(dtype))
    draw = network.draw(1, seeded(0, "function"))
    target = WhitenedPosterior(network, gaussian().to(dtype), (X.to(dtype), torch.zeros_like(X, dtype=dtype)))
    assert target.shapes == [(2, 3), (8, 2), (3, 1)]
    position = target.position([layer.variables for layer in draw.layers])
    torch.testing.assert_close(target.outputs(position), draw.inducing.double(), rtol=1e-4, atol=1e-4)


def test_the_gradient_is_that_of_finite_differences():
    network = deep()
    target = WhitenedPosterior(network, gaussian(), (X, simulated(network)[1]))
    position = start_at_prior(target, 2, seeded(0, "prior")).position
    direction = torch.linspace(-1, 1, target.size, dtype=torch.float64)
    ahead, behind = (target(position + step * direction).potential for step in (1e-5, -1e-5))
    torch.testing.assert_close((ahead - behind) / 2e-5, target(position).gradient @ direction, rtol=1e-4, atol=1e-4)


def test_wrong_arguments(monkeypatch):
    network = process()
    draw, y = simulated(network)
    elsewhere = inducing.Network([inducing.GPLayer(1, 1, posterior="prior")], inducing_points=2 * X).draw(1)
    for sample, error, message in (
        (elsewhere, ValueError, "other rows"),
        ([draw.inducing], TypeError, "Pass the draw"),
    ):
        with pytest.raises(error, match=message):
            inducing.evidence(network, gaussian(), (X, y), posterior_sample=sample, **QUICK)
    monkeypatch.setattr(whitened, "MAX_PROCESS_ROWS", 5)
    with pytest.raises(ValueError, match="at most 5"):
        inducing.evidence(network, gaussian(), (X, y), **QUICK)
