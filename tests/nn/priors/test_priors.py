import json
import math
from dataclasses import asdict

import pytest
import torch
from torch.distributions import Gamma, kl_divergence

import inducing
from inducing.nn.priors import PRIORS, as_prior
from inducing.nn.priors.base import WeightLayout


@pytest.mark.parametrize(("name", "scale"), [("neal", 7.0), ("standard", 1.0)])
def test_fixed_priors(name, scale):
    precision, kl = as_prior(name).build(WeightLayout(3, 2, bias=True))(num_samples=3)
    torch.testing.assert_close(precision.dense(), scale * torch.eye(7)[None])
    assert (kl == 0).all()


def test_scale_prior_samples_its_posterior_and_gives_its_kl():
    module = inducing.ScalePrior().build(WeightLayout(3, 2, bias=True))
    with torch.no_grad():
        module.log_alpha.fill_(1.0)
        module.log_beta.fill_(-0.5)
    posterior = Gamma(2 + torch.tensor(1.0).exp(), 2 + torch.tensor(-0.5).exp())
    precision, kl = module(100_000, torch.Generator().manual_seed(0))
    scale = precision.scale / 7
    torch.testing.assert_close(kl[0], kl_divergence(posterior, Gamma(torch.tensor(2.0), torch.tensor(2.0))))
    assert abs((scale.mean() - posterior.mean) / (posterior.stddev / 100_000**0.5)) < 4
    # the KL in closed form is the mean of log Q - log P
    ratio = posterior.log_prob(scale) - Gamma(2.0, 2.0).log_prob(scale)
    assert abs((ratio.mean() - kl[0]) / (ratio.std() / 100_000**0.5)) < 4


def test_scale_prior_gradients_are_those_of_the_expectation():
    # d E[s] / d log alpha = alpha / rate,  d E[s] / d log beta = -beta shape / rate^2
    module = inducing.ScalePrior(initial=1.0).build(WeightLayout(1)).double()
    scale = module(400_000, torch.Generator().manual_seed(0)).precision.scale
    scale.mean().backward()
    torch.testing.assert_close(module.log_alpha.grad.item(), 1 / 3, rtol=0.01, atol=0)
    torch.testing.assert_close(module.log_beta.grad.item(), -3 / 9, rtol=0.01, atol=0)


def test_scale_prior_at_its_prior_has_no_kl():
    module = inducing.ScalePrior(shape=3.0, rate=1.0).build(WeightLayout(1))
    with torch.no_grad():
        module.log_alpha.fill_(-30.0)
        module.log_beta.fill_(-30.0)
    assert abs(module(1).kl.item()) < 1e-6


def test_scale_prior_starts_where_it_is_told():
    module = inducing.ScalePrior(initial=math.exp(6.0)).build(WeightLayout(1))
    scale = module(100_000, torch.Generator().manual_seed(0)).precision.scale
    # the relative spread of Gamma(a, b) is a^(-1/2)
    torch.testing.assert_close((scale.std() / scale.mean()).item(), (2 + math.exp(6.0)) ** -0.5, rtol=0.02, atol=0)
    torch.testing.assert_close(scale.mean().item(), 1.0, rtol=1e-3, atol=0)


@pytest.mark.parametrize(
    "arguments", [{"shape": 0.0}, {"rate": -1.0}, {"shape": float("nan")}, {"initial": 0.0}, {"initial": math.inf}]
)
def test_scale_prior_refuses_impossible_settings(arguments):
    with pytest.raises(ValueError, match="shape > 0, rate > 0"):
        inducing.ScalePrior(**arguments)


def test_unknown_priors_are_refused_with_the_known_names():
    names = '"neal", "standard", "scale", "spatial-iw", "channel-iw", "kronecker-iw"'
    with pytest.raises(ValueError, match=f"unknown prior 'cauchy'.*{names}"):
        inducing.Linear(1, 1, prior="cauchy")
    with pytest.raises(ValueError, match="pass an instance"):
        inducing.Linear(1, 1, prior=inducing.NealPrior)


@pytest.mark.parametrize("cls", PRIORS.values())
def test_specifications_are_values(cls):
    """Equal, hashable, immutable, JSON."""
    assert cls() == cls()
    assert hash(cls()) == hash(cls())
    assert cls(**json.loads(json.dumps(asdict(cls())))) == cls()
    with pytest.raises(AttributeError):
        cls().shape = 3.0
