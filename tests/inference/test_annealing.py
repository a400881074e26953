"""Annealed importance sampling against the closed-form evidence of a linear layer, in both directions."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import MultivariateNormal

import inducing
from inducing.inference.annealing import Annealing, Evidence, choose_step_sizes, log_likelihood, tempered
from inducing.inference.hmc.whitened import WhitenedPosterior, start_at_prior
from inducing.inference.importance import ImportanceWeightedBound
from inducing.linalg.noise import seeded

X = torch.linspace(-2, 2, 24, dtype=torch.float64).mul(7).sin().reshape(8, 3)
Y = (2 * X[:, :1]).sin() + X[:, 1:2]
NOISE = 0.3


def gaussian():
    return inducing.Gaussian(NOISE, learn_variance=False).double()


def exact():
    """One linear layer with its exact posterior."""
    posterior = inducing.GlobalInducing(log_precision=math.log(1 / NOISE))
    points = {"inducing_points": X, "inducing_targets": Y, "learn_inducing_locations": False}
    return inducing.Network([inducing.Linear(3, 1, posterior=posterior)], **points)


def log_evidence():
    rows = torch.cat([X, torch.ones(8, 1)], 1)
    covariance = rows @ rows.mT / 4 + NOISE * torch.eye(8)
    return MultivariateNormal(torch.zeros(8).double(), covariance).log_prob(Y[:, 0]).item()


def test_weights_are_unbiased_in_both_directions_with_few_temperatures():
    """E[v] = p(y) and E[1 / v] = 1 / p(y), with an exact posterior sample for each chain."""
    network = exact()
    target = WhitenedPosterior(network, gaussian(), (X, Y))
    # with fewer temperatures or larger steps the tail of 1 / v is heavy, and its mean cannot be tested
    annealing = Annealing(target, [0.0, *(1.3 ** (index - 20) for index in range(21))], [0.4] * 22, 3)
    start = start_at_prior(target, 20_000, seeded(0, "prior")).position
    forward = ImportanceWeightedBound(annealing.log_weights(start, seeded(0, "forward"))[0], 8)
    samples = network.draw(20_000, seeded(0, "posterior"))
    start = target.position([samples.layers[0].variables.values])
    log_weights, acceptance = annealing.reverse().log_weights(start, seeded(0, "backward"))
    backward = ImportanceWeightedBound(-log_weights, 8)
    for found, expected in ((forward, log_evidence()), (backward, -log_evidence())):
        assert found.log_weights.std() > 0.5
        assert found.standard_error < 0.1
        assert abs(found.value - expected) < 4 * found.standard_error
    # by Jensen's inequality
    assert forward.log_weights.mean() < log_evidence() < log_weights.mean()
    assert 0.5 < acceptance < 1


def test_the_bounds_of_a_linear_layer_meet_at_its_evidence():
    network = exact()
    sample = network.draw(1, seeded(0, "posterior"))
    settings = {"num_temperatures": 200, "progress": False}
    found = inducing.evidence(network, gaussian(), (X, Y), posterior_sample=sample, **settings)
    assert abs(found.lower - log_evidence()) < 4 * found.standard_error
    assert abs(found.upper - log_evidence()) < 4 * found.upper_standard_error
    assert found.standard_error < 0.2
    assert 15 < found.effective_sample_size <= 32
    assert 0.6 < found.acceptance < 0.99
    again = inducing.evidence(network, gaussian(), (X, Y), **settings)
    assert torch.equal(again.log_weights, found.log_weights)
    assert again.upper is again.upper_standard_error is None
    assert "upper" in repr(found)
    assert "upper" not in repr(again)


def test_the_bounds_of_a_network_are_close_for_simulated_data():
    network = inducing.models.mlp(3, 1, [3], posterior="prior", activation=nn.Tanh).double()
    draw = network.draw(1, seeded(0, "weights"))
    y = gaussian().sample(draw(X), seeded(0, "noise"))[0]
    weights = [layer.variables.values for layer in draw.layers]
    found = inducing.evidence(
        network, gaussian(), (X, y), posterior_sample=weights, num_temperatures=200, progress=False
    )
    error = math.hypot(found.standard_error, found.upper_standard_error)
    assert abs(found.upper - found.lower) < 4 * error < 1
    # the same evidence from draws of the prior
    outputs = network.draw(20_000, seeded(0, "prior"))(X)
    prior = ImportanceWeightedBound(gaussian().log_prob(outputs, y).sum(-1), 8)
    assert abs(found.lower - prior.value) < 4 * math.hypot(found.standard_error, prior.standard_error)


def test_the_tempered_potential_and_its_gradient():
    target = WhitenedPosterior(exact(), gaussian(), (X, Y))
    position = start_at_prior(target, 2, seeded(0, "prior")).position.requires_grad_()
    point = tempered(target(position), 0.3)
    potential = position.square().sum(-1) / 2 - 0.3 * target.log_likelihood(position)
    (gradient,) = torch.autograd.grad(potential.sum(), position)
    assert torch.allclose(point.potential, potential)
    assert torch.allclose(point.gradient, gradient)
    assert torch.allclose(log_likelihood(target(position)), target.log_likelihood(position))


def test_step_sizes_decrease_towards_the_posterior():
    likelihood = inducing.Gaussian(1e-4, learn_variance=False).double()
    target = WhitenedPosterior(exact(), likelihood, (X, Y))
    generator = seeded(0, "pilot")
    temperatures = [(index / 400) ** 4 for index in range(401)]
    found = choose_step_sizes(target, start_at_prior(target, 16, generator), temperatures, 5, generator)
    assert len(found) == 401
    assert found[-1] < found[1] / 3


def test_positions_and_weights_are_inverse():
    target = WhitenedPosterior(
        inducing.models.mlp(3, 1, [4], posterior="prior"), gaussian().float(), (X.float(), Y.float())
    )
    position = start_at_prior(target, 2, seeded(0, "prior")).position
    assert torch.allclose(target.position([layer.weights for layer in target.functions(position)]), position)


def test_one_number_for_each_bound():
    found = Evidence(torch.tensor([1.0, 1.0]), torch.tensor([2.0, 2.0]), 0.8, 8)
    assert (found.lower, found.upper) == (1, 2)


def test_wrong_arguments():
    quick = {"num_temperatures": 2, "progress": False}
    images = inducing.Network([inducing.Conv2d(1, 1, 3, posterior="prior"), nn.Flatten()], input_shape=(1, 3, 3))
    with pytest.raises(TypeError, match="Gaussian process"):
        inducing.evidence(images.double(), gaussian(), (torch.zeros(2, 1, 3, 3).double(), Y[:2]), **quick)
    with pytest.raises(ValueError, match="pair"):
        inducing.evidence(exact(), gaussian(), (X, Y, Y[:, 0]), **quick)
    with pytest.raises(ValueError, match="shapes"):
        inducing.evidence(exact(), gaussian(), (X, Y), posterior_sample=[torch.zeros(1, 3, 1)], **quick)
    with pytest.raises(ValueError, match="one sample"):
        inducing.evidence(exact(), gaussian(), (X, Y), posterior_sample=exact().draw(2), **quick)
    with pytest.raises(ValueError, match="num_chains"):
        inducing.evidence(exact(), gaussian(), (X, Y), num_chains=0, **quick)
