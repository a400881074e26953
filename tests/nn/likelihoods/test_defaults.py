"""A likelihood with log_prob and sample alone, against formulas."""

import math

import pytest
import torch
from torch.distributions import Laplace

import inducing
from inducing.nn.likelihoods.base import NUM_DRAWS

SCALE = 0.3


class Plain(inducing.nn.Likelihood):
    """Laplace noise."""

    def log_prob(self, outputs, y):
        return Laplace(outputs, SCALE).log_prob(y).sum(-1)

    def sample(self, outputs, generator=None):
        uniform = 0.999999 * (torch.rand(outputs.shape, dtype=outputs.dtype, generator=generator) - 0.5)
        return outputs - SCALE * uniform.sign() * torch.log1p(-2 * uniform.abs())


OUTPUTS = torch.tensor([[[-1.0], [0.0], [2.0]]], dtype=torch.float64)


def test_moments_are_those_of_samples():
    deviation = math.sqrt(2) * SCALE
    assert ((Plain().mean(OUTPUTS) - OUTPUTS) / (deviation / NUM_DRAWS**0.5)).abs().max() < 4
    # the fourth moment of a Laplace distribution is 6 times its squared variance
    assert ((Plain().variance(OUTPUTS) - deviation**2) / (deviation**2 * (5 / NUM_DRAWS) ** 0.5)).abs().max() < 4


def test_defaults_are_the_same_at_each_call():
    assert torch.equal(Plain().mean(OUTPUTS), Plain().mean(OUTPUTS))


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
def test_distribution_function_and_quantiles(level):
    likelihood, law = Plain(), Laplace(OUTPUTS, SCALE)
    y = law.icdf(torch.tensor(level))[0]
    error = 4 * (level * (1 - level) / NUM_DRAWS) ** 0.5
    assert (likelihood.log_cdf(OUTPUTS, y).exp() - level).abs().max() < error
    assert (likelihood.log_survival(OUTPUTS, y).exp() - (1 - level)).abs().max() < error
    assert (law.cdf(likelihood.icdf(OUTPUTS, level)) - level).abs().max() < error


def test_it_is_trained_and_predicts():
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 40)[:, None]
    y = 2 * x + Plain().sample(torch.zeros(40, 1), torch.Generator().manual_seed(0))
    network = inducing.models.mlp(1, 1, [10], inducing_points=x[::4], inducing_targets=y[::4])
    inducing.fit(network, Plain(), (x, y), num_steps=200, progress=False)
    predictive = inducing.predict(network, Plain(), x, 20)
    assert (predictive.mean - 2 * x).abs().mean() < 0.3
    low, high = predictive.quantile([0.05, 0.95])
    assert 0.8 <= ((low < y) & (y < high)).float().mean() <= 1
    assert predictive.log_prob(y).mean() > -1


def test_classes_need_their_probabilities():
    class Labels(Plain):
        support = "classes"

    with pytest.raises(NotImplementedError, match="mean"):
        Labels().mean(OUTPUTS)
    with pytest.raises(TypeError, match="no order"):
        Labels().log_cdf(OUTPUTS, OUTPUTS[0])


@pytest.mark.parametrize("level", [0.001, 0.05, 0.5, 0.95, 0.999])
def test_quantiles_of_a_mixture_are_right_in_the_tails(level):
    outputs = torch.zeros(100, 2, 1, dtype=torch.float64)
    found = inducing.Predictive(outputs, Plain()).quantile(level)
    law = Laplace(torch.zeros(()).double(), SCALE)
    error = 5 * (level * (1 - level) / (100 * NUM_DRAWS)) ** 0.5
    assert (law.cdf(found) - level).abs().max() < error


def test_targets_are_not_broadcast():
    outputs, y = torch.zeros(2, 5, 1), torch.zeros(5)
    with pytest.raises(ValueError, match="shape"):
        inducing.Predictive(outputs, Plain()).log_prob(y)


def test_integers_are_not_negative():
    class Steps(Plain):
        support = "integers"

    with pytest.raises(ValueError, match="real"):
        Steps().check_targets(torch.tensor([[1.0], [-2.0]]), (1,))
