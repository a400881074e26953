import pytest
import torch
from torch import nn

import inducing

IMAGES = torch.randn(6, 1, 8, 8)


def network(posterior="global", **changes):
    layers = [
        inducing.Conv2d(1, 4, 3, padding=1, posterior=posterior),
        inducing.InducingNorm(**changes),
        nn.ReLU(),
        nn.Flatten(),
        inducing.Linear(256, 3),
    ]
    return inducing.Network(layers, inducing_points=IMAGES)


def test_it_is_batch_norm_over_the_inducing_points():
    inner = torch.randn(2, 6, 4, 5, 5) * 3 + 1
    found = inducing.InducingNorm().normalise(inner)(inner)
    expected = torch.stack([nn.BatchNorm2d(4, affine=False).train()(maps) for maps in inner])
    torch.testing.assert_close(found, expected)


def test_data_are_treated_as_the_inducing_points_are():
    inner, x = torch.randn(2, 6, 3), torch.randn(2, 10, 3)
    function = inducing.InducingNorm(eps=1e-3).normalise(inner)
    mean, variance = inner.mean(1, keepdim=True), inner.var(1, correction=0, keepdim=True)
    torch.testing.assert_close(function(x), (x - mean) / (variance + 1e-3).sqrt())


def test_a_drawn_network_is_a_function_of_each_row():
    functions = network().sample_functions(3, seed=1)
    x = torch.randn(10, 1, 8, 8)
    whole = functions(x)
    torch.testing.assert_close(functions(x[4:5]), whole[:, 4:5])
    assert not any(name.startswith("running") for name in functions.state_dict())


def test_inducing_points_and_data_go_the_same_way():
    drawn = network().draw(2)
    torch.testing.assert_close(drawn(IMAGES), drawn.inducing)


@pytest.mark.parametrize("posterior", ["factorised", "local", "global", "prior"])
def test_every_posterior_may_stand_below_and_gradients_reach_the_inducing_points(posterior):
    made = network(posterior)
    elbo = inducing.ELBO(made, inducing.Categorical(), 6)
    (-elbo(IMAGES, torch.arange(6) % 3).objective).backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in made.parameters())
    assert made.inducing_points.grad.abs().sum() > 0


def test_only_the_normalisation_uses_inducing_points():
    layers = [
        inducing.Linear(3, 5, posterior="factorised"),
        inducing.InducingNorm(),
        inducing.Linear(5, 1, posterior="factorised"),
    ]
    x = torch.randn(7, 3)
    assert inducing.Network(layers, inducing_points=x).inducing_points.shape == (7, 3)


def test_constant_channels_do_no_harm():
    inner = torch.ones(1, 6, 2)
    assert torch.equal(inducing.InducingNorm().normalise(inner)(inner), torch.zeros(1, 6, 2))


def test_normalisation_without_inducing_points_is_refused():
    make = [
        inducing.Linear(3, 5, posterior="factorised"),
        inducing.InducingNorm(),
        inducing.Linear(5, 1, posterior="factorised"),
    ]
    with pytest.raises(ValueError, match=r"layers\.1 is an InducingNorm.*inducing_points=x"):
        inducing.Network(make)
    with pytest.raises(ValueError, match=r"layers\.1 InducingNorm.*1 inducing points.*variance needs two"):
        inducing.Network(make, num_inducing=1)
    with pytest.raises(ValueError, match="eps must be positive"):
        inducing.InducingNorm(eps=0.0)


def test_local_reparameterisation_below_it_is_refused():
    below = inducing.Linear(3, 5, posterior=inducing.Factorised(local_reparameterisation=True))
    with pytest.raises(ValueError, match=r"below layers\.1"):
        inducing.Network([below, inducing.InducingNorm()], num_inducing=4)


def test_it_cannot_be_hidden_in_a_plain_module():
    with pytest.raises(ValueError, match="contains Bayesian layers"):
        inducing.Network([inducing.Linear(3, 5), nn.Sequential(inducing.InducingNorm())], num_inducing=4)
