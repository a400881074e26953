"""Posteriors that start at given weights."""

import pytest
import torch
from torch import nn

import inducing
from inducing.nn.starting import point_weights, start_at

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def plain_and_global(make, **settings):
    generator = torch.Generator().manual_seed(1)
    return (
        make(inducing.PointEstimate(), generator=generator).double(),
        make(inducing.GlobalInducing(), inducing_points=settings.pop("points"), generator=generator).double(),
    )


def dense(posterior, **settings):
    return inducing.models.mlp(3, 2, [8, 6], posterior=posterior, **settings)


def test_precise_pseudo_outputs_return_the_weights():
    plain, network = plain_and_global(dense, points=X[:30])
    start_at(network, point_weights(plain), log_precision=25.0)
    torch.testing.assert_close(network.sample_functions(3)(X), plain.sample_functions(3)(X), atol=1e-4, rtol=1e-4)


def test_the_default_is_close_and_not_equal():
    plain, network = plain_and_global(dense, points=X[:30])
    start_at(network, point_weights(plain))
    wanted, outputs = plain.sample_functions(1)(X)[0], network.sample_functions(200)(X)
    assert 0.02 < (outputs - wanted).square().mean().sqrt() / wanted.std() < 0.5
    assert (outputs.mean(0) - wanted).square().mean().sqrt() / wanted.std() < 0.2


def test_convolutions_and_residual_blocks():
    def make(posterior, **settings):
        body = [inducing.Conv2d(2, 2, 3, padding=1, posterior=posterior), nn.ReLU()]
        layers = [
            inducing.Conv2d(1, 2, 3, padding=1, posterior=posterior),
            nn.ReLU(),
            inducing.Residual(*body),
            nn.Flatten(),
        ]
        return inducing.Network(
            [*layers, inducing.Linear(2 * 16, 2, posterior=posterior)], input_shape=(1, 4, 4), **settings
        )

    images = torch.randn(60, 1, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain, network = plain_and_global(make, points=images[:50])
    start_at(network, point_weights(plain), log_precision=25.0)
    torch.testing.assert_close(
        network.sample_functions(2)(images), plain.sample_functions(2)(images), atol=1e-3, rtol=1e-3
    )


def test_factorised_posteriors_and_point_estimates():
    plain, network = plain_and_global(dense, points=X[:30])
    weights = point_weights(plain)
    narrow = inducing.Factorised(initial_variance=1e-16)
    for posterior in ([narrow, "global", narrow], [narrow, narrow, inducing.Factorised(True, 1e-16)], "point->global"):
        points = None if "global" not in posterior and "->" not in posterior else X[:30]
        network = dense(posterior, inducing_points=points).double()
        start_at(network, weights, log_precision=25.0)
        torch.testing.assert_close(network.sample_functions(3)(X), plain.sample_functions(3)(X), atol=1e-4, rtol=1e-4)


def test_what_cannot_start_at_weights_is_refused_and_unchanged():
    plain, network = plain_and_global(dense, points=X[:30])
    weights = point_weights(plain)
    before = [parameter.clone() for parameter in network.parameters()]
    with pytest.raises(ValueError, match="weights of 2 layers for a network of 3"):
        start_at(network, weights[:2])
    with pytest.raises(ValueError, match=r"has weights \(4, 8\), with the bias in the last row, but got \(3, 8\)"):
        start_at(network, [weights[0][:-1], *weights[1:]])
    assert all(map(torch.equal, before, network.parameters()))
    with pytest.raises(TypeError, match="LocalInducing posterior; only GlobalInducing"):
        start_at(dense("local->global", inducing_points=X[:5]).double(), weights)
    with pytest.raises(TypeError, match="only networks whose layers all have a PointEstimate"):
        point_weights(network)
    # the hooks are gone
    assert not torch.equal(network.sample_functions(1)(X), plain.sample_functions(1)(X))


def test_the_global_generator_is_left_alone():
    x = torch.randn(6, 2)
    network = inducing.models.mlp(2, 1, [3], inducing_points=x)
    state = torch.get_rng_state()
    start_at(network, [torch.zeros(3, 3), torch.zeros(4, 1)])
    assert torch.equal(torch.get_rng_state(), state)
