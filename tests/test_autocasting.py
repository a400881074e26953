"""Draws under `torch.autocast`. No data are run: some versions of torch crash in bfloat16 on some processors."""

from contextlib import nullcontext

import torch
from torch import nn

import inducing
from inducing.autocasting import log_prob_of
from inducing.nn.draw import Chain, Function


def test_draws_and_their_gradients_are_never_autocast():
    x = torch.randn(5, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    layers = [inducing.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.Flatten(), inducing.Linear(72, 3)]
    network = inducing.Network(layers, inducing_points=x, generator=torch.Generator().manual_seed(0))
    found = []
    for context in (nullcontext(), torch.autocast("cpu", torch.bfloat16)):
        network.zero_grad()
        with context:
            draw = network.draw(2, torch.Generator().manual_seed(1))
            sum(layer.kl.sum() for layer in draw.layers).backward()
        found.append(
            [layer.kl.detach() for layer in draw.layers] + [each.grad.clone() for each in network.parameters()]
        )
    assert all(torch.equal(plain, cast) for plain, cast in zip(*found, strict=True))


def test_it_is_on_again_after_a_draw():
    network = inducing.models.mlp(2, 1, [3], num_inducing=4)
    with torch.autocast("cpu", torch.bfloat16):
        network.draw(1)
        assert torch.is_autocast_enabled("cpu")


def test_draws_of_an_updated_network_are_not_autocast():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20, 2, generator=generator)
    network = inducing.models.mlp(2, 1, [5], inducing_points=x[:8], inducing_targets=x[:8, :1])
    likelihood = inducing.Gaussian(0.01)
    updated = inducing.update(network, likelihood, (x, x[:, :1]))
    with torch.autocast("cpu", torch.bfloat16):
        functions = updated.sample_functions(2, 0)
    assert {tensor.dtype for tensor in functions.buffers() if tensor.is_floating_point()} == {torch.float32}
    torch.testing.assert_close(functions(x), updated.sample_functions(2, 0)(x))


def test_likelihoods_are_in_the_precision_of_the_network():
    """A layer of the data that was run in bfloat16 gives outputs in bfloat16, whose sum over rows would have two digits."""
    network, likelihood = inducing.models.mlp(2, 1, [3], num_inducing=4), inducing.Gaussian()
    x, y = torch.randn(200, 2), torch.randn(200, 1)
    draw = network.draw(1)
    rounded = draw._replace(function=Chain((*draw.function.steps, _Rounded())))
    with torch.no_grad():
        found = inducing.ELBO(network, likelihood, 200).log_likelihood(rounded, x, y)
        expected = likelihood.log_prob(draw(x).bfloat16().float(), y).sum(-1)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected)
    outputs, labels = torch.randn(1, 200, 3).bfloat16(), torch.arange(200) % 3
    found = log_prob_of(inducing.Categorical(), outputs, labels, torch.float32)
    torch.testing.assert_close(found, inducing.Categorical().log_prob(outputs.float(), labels))


class _Rounded(Function):
    consistent = True

    def __call__(self, x):
        return x.bfloat16()
