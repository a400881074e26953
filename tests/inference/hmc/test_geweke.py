"""Geweke's joint distribution test of Hamiltonian Monte Carlo.

Two simulators have the same joint distribution of weights and data if the sampler is right:

    marginal-conditional      w ~ p(w),  y ~ p(y | w), independent draws
    successive-conditional    y ~ p(y | w),  then w moves by a transition that leaves p(w | y) invariant, and so on

Many chains run in parallel, each with its own data. Means over a chain are independent of those of other chains, so their
standard error allows for the autocorrelation within chains.

References:
    Geweke, Getting it right: joint distribution tests of posterior simulators (2004).
"""

import pytest
import torch
from torch import nn

import inducing
from inducing.inference.hmc.hamiltonian import transition
from inducing.inference.hmc.whitened import WhitenedPosterior
from inducing.linalg.noise import seeded, standard_normal

X = torch.linspace(-1.5, 1.5, 6, dtype=torch.float64)[:, None]
NOISE, STEP_SIZE, NUM_LEAPFROG = 0.2, 0.15, 6


class ManyDatasets(WhitenedPosterior):
    """The posterior of each chain given its own targets (S, N, 1)."""

    def log_likelihood(self, position):
        rows = self.likelihood.log_prob(self.outputs(position).reshape(1, -1, 1), self.y.reshape(-1, 1))
        return rows.reshape(self.y.shape[:2]).sum(-1)


def posterior(noise=NOISE, prior_scale=1.0, activation=nn.Tanh):
    network = inducing.models.mlp(1, 1, [4], posterior="prior", activation=activation).double()
    target = ManyDatasets(network, inducing.Gaussian(noise).double(), (X, torch.zeros_like(X)))
    target.layers[0].root_variance = prior_scale * target.layers[0].root_variance
    return target


def functions(target, position, y):
    """Functions of weights and data whose means are compared: moments of the weights, the outputs and the targets."""
    outputs = target.outputs(position)[..., 0]
    weights = [part.square().mean(1) for part in position.split(target.sizes, -1)]
    products = (outputs * y[..., 0]).mean(1), (outputs - y[..., 0]).square().mean(1), outputs.square().square().mean(1)
    return torch.stack([*weights, outputs[:, 0], outputs[:, -1], outputs.square().mean(1), *products], -1)


def draw(target, num_chains, generator):
    """Independent draws of weights and data."""
    position = standard_normal((num_chains, target.size), X, generator)
    return position, target.likelihood.sample(target.outputs(position), generator)


def scores(simulator, sampler, num_chains, num_iterations):
    """The difference of means between the two simulators in standard errors."""
    generator = seeded(0, "Geweke")
    independent = functions(simulator, *draw(simulator, 20 * num_chains, generator))
    position, y = draw(simulator, num_chains, generator)
    visited = []
    for _ in range(num_iterations):
        sampler.y = y
        position = transition(sampler, sampler(position), STEP_SIZE, NUM_LEAPFROG, generator).point.position
        y = simulator.likelihood.sample(simulator.outputs(position), generator)
        visited.append(functions(simulator, position, y))
    # a wrong sampler needs time to move away from the right distribution
    means = torch.stack(visited[num_iterations // 4 :]).mean(0)
    variance = means.var(0) / num_chains + independent.var(0) / len(independent)
    return (means.mean(0) - independent.mean(0)) / variance.sqrt()


@pytest.mark.parametrize(
    ("num_chains", "num_iterations", "activation"),
    [(500, 40, nn.Tanh), pytest.param(2000, 150, nn.ReLU, marks=pytest.mark.slow)],
    ids=["quick", "long"],
)
def test_the_two_simulators_agree(num_chains, num_iterations, activation):
    target = posterior(activation=activation)
    assert scores(target, posterior(activation=activation), num_chains, num_iterations).abs().max() < 4


@pytest.mark.parametrize("wrong", [{"noise": 1.5 * NOISE}, {"noise": NOISE / 1.5}, {"prior_scale": 1.3}])
def test_a_sampler_with_a_wrong_density_is_found(wrong):
    assert scores(posterior(), posterior(**wrong), 500, 40).abs().max() > 6
