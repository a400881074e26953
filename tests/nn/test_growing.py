"""More inducing points without a change of the posterior."""

import pytest
import torch
from torch import nn

import inducing
from inducing.nn.growing import add_inducing_points, can_grow

X = torch.randn(12, 2, generator=torch.Generator().manual_seed(0)).double()
Y = torch.stack([X[:, 0].sin(), X.prod(1)], 1)
PRECISIONS = ["shared", "per_output", "full", "full_per_output"]


def network_of(last, rows=7, **settings):
    torch.manual_seed(0)
    layers = [inducing.Linear(2, 3), nn.Tanh(), last]
    return inducing.Network(layers, inducing_points=X[:rows], **settings)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_density_of_weights_stays_the_same(precision):
    network = network_of(inducing.Linear(3, 2, posterior=inducing.GlobalInducing(precision)))
    grown = add_inducing_points(network, X[7:])
    draw = network.draw(4)
    found, expected = grown.log_density(draw), network.log_density(draw)
    torch.testing.assert_close(found.posterior, expected.posterior, rtol=0, atol=1e-9)
    assert grown.num_inducing == 12
    assert network.num_inducing == 7


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_moments_of_a_gaussian_process_stay_the_same(precision):
    torch.manual_seed(0)
    layer = inducing.GPLayer(2, 2, posterior=inducing.GlobalInducing(precision))
    network = inducing.Network([layer], inducing_points=X[:7], inducing_targets=Y[:7])
    moments = [
        each.draw(1).function.steps[0].moments(1.5 * X[None]) for each in (network, add_inducing_points(network, X[7:]))
    ]
    torch.testing.assert_close(moments[1][0], moments[0][0], rtol=0, atol=1e-6)
    torch.testing.assert_close(moments[1][1].expand_as(moments[0][1]), moments[0][1], rtol=0, atol=1e-6)


def test_convolutions_grow():
    torch.manual_seed(0)
    images = torch.randn(6, 1, 5, 5).double()
    layers = [inducing.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), inducing.Linear(18, 2)]
    network = inducing.Network(layers, inducing_points=images[:4])
    draw = network.draw(2)
    found, expected = add_inducing_points(network, images[4:]).log_density(draw), network.log_density(draw)
    torch.testing.assert_close(found.posterior, expected.posterior, rtol=0, atol=1e-8)


def test_networks_that_do_not_grow():
    assert can_grow(network_of(inducing.Linear(3, 2)))
    assert not can_grow(network_of(inducing.GPLayer(3, 2, posterior="dsvi")))
    assert not can_grow(network_of(inducing.GPLayer(3, 2, posterior="coupled")))
    assert not can_grow(inducing.models.mlp(2, 1, posterior="factorised"))
    layers = [inducing.Conv2d(1, 2, 3), inducing.InducingNorm(), nn.Flatten(), inducing.Linear(8, 2)]
    assert not can_grow(inducing.Network(layers, inducing_points=torch.randn(3, 1, 4, 4)))


def test_inducing_images_of_another_size_do_not_grow():
    points, images, labels = torch.randn(3, 1, 4, 4), torch.randn(5, 1, 8, 8), torch.randint(0, 2, (5,))
    network = inducing.models.resnet8((1, 8, 8), 2, channels=2, inducing_points=points)
    assert not can_grow(network)
    updated = inducing.update(network, inducing.Categorical(), (images, labels), num_steps=2, progress=False)
    assert updated.inducing_points.shape == points.shape


def test_a_grown_network_is_saved(tmp_path):
    grown = add_inducing_points(network_of(inducing.GPLayer(3, 2)), X[7:])
    inducing.save((grown, inducing.Gaussian().double()), tmp_path / "grown.safetensors")
    again, _ = inducing.load(tmp_path / "grown.safetensors")
    assert torch.equal(again.sample_functions(2)(X), grown.sample_functions(2)(X))
