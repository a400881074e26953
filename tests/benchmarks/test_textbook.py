"""The other side of the benchmarks must be right, too: the oracle, and the law of what the library draws."""

import pytest
import torch

import inducing
from benchmarks.textbook import TextbookNetwork, run
from tests.oracles import linear_regression as oracle


@pytest.mark.parametrize("per_output", [True, False])
def test_every_elbo_sample_of_one_layer_equals_the_evidence(per_output):
    """Inducing points at the data, V = y and Lambda = the noise precision: no variance, and the exact posterior."""
    x, y = torch.randn(8, 3, dtype=torch.float64), torch.randn(8, 2, dtype=torch.float64)
    network = TextbookNetwork([3, 2], x, y, per_output).double()
    with torch.no_grad():
        network.log_variance.zero_()
        elbo = network.elbo(x, y, 5)
    with_bias = torch.cat([x, torch.ones(8, 1, dtype=torch.float64)], 1)
    evidence = oracle.log_evidence(with_bias, y, 4 * torch.eye(4, dtype=torch.float64), 1.0)
    torch.testing.assert_close(elbo, evidence.expand(5), rtol=1e-8, atol=1e-8)


def both_networks(precision, num_data):
    """The library's network, its likelihood, the textbook's network with the same parameters, and data."""
    x, y = torch.randn(num_data, 2, dtype=torch.float64), torch.randn(num_data, 2, dtype=torch.float64)
    posterior = inducing.GlobalInducing(precision)
    network = inducing.models.mlp(2, 2, [4, 3], posterior=posterior, inducing_points=x[:6], inducing_targets=y[:6])
    textbook = TextbookNetwork([2, 4, 3, 2], x[:6], y[:6], precision == "per_output").double()
    likelihood = inducing.Gaussian().double()
    library_layers = [layer for layer in network.layers if isinstance(layer, inducing.Linear)]
    with torch.no_grad():
        textbook.log_variance.copy_(likelihood.noise_variance.log())
        for ours, theirs in zip(library_layers, textbook.layers, strict=True):
            pseudo_outputs = ours.posterior.pseudo_outputs
            # (M, O) to (groups, M, O / groups)
            groups = len(theirs.log_precision)
            theirs.pseudo_outputs.copy_(pseudo_outputs.unflatten(1, (groups, -1)).transpose(0, 1))
    return network, likelihood, textbook, x, y


@pytest.mark.parametrize("precision", ["shared", "per_output"])
def test_without_noise_weights_and_elbo_are_those_of_the_library(precision, monkeypatch):
    network, likelihood, textbook, x, y = both_networks(precision, 12)
    monkeypatch.setattr(torch, "randn", lambda *shape, generator=None, **options: torch.zeros(*shape, **options))
    with torch.no_grad():
        weights, _ = textbook.draw(3)
        torch.testing.assert_close(run(weights, x), network(x, num_samples=3))
        theirs = textbook.elbo(x, y, 3)
    torch.testing.assert_close(theirs, inducing.evaluate(network, likelihood, (x, y), 3).samples)


@pytest.mark.parametrize("precision", ["shared", "per_output"])
def test_the_elbo_is_that_of_the_library(precision):
    """With the same parameters, |z| < 4 over 2,000 samples of each."""
    torch.manual_seed(0)
    network, likelihood, textbook, x, y = both_networks(precision, 12)
    with torch.no_grad():
        theirs = textbook.elbo(x, y, 2000)
    ours = inducing.evaluate(network, likelihood, (x, y), 2000).samples
    error = (ours.var() / 2000 + theirs.var() / 2000).sqrt()
    assert abs(ours.mean() - theirs.mean()) < 4 * error


@pytest.mark.parametrize(("precision", "factorisations"), [("shared", [1, 5, 5]), ("per_output", [4, 15, 10])])
def test_what_outputs_or_samples_share_is_factorised_once(precision, factorisations, monkeypatch):
    _, _, textbook, _, _ = both_networks(precision, 12)
    matrices, cholesky = [], torch.linalg.cholesky
    monkeypatch.setattr(torch.linalg, "cholesky", lambda x: matrices.append(x.shape[:-2].numel()) or cholesky(x))
    textbook.draw(5)
    assert matrices == factorisations


@pytest.mark.parametrize("per_output", [True, False])
def test_every_parameter_gets_a_gradient(per_output):
    x, y = torch.randn(12, 2), torch.randn(12, 1)
    network = TextbookNetwork([2, 4, 1], x[:6], y[:6], per_output)
    network.elbo(x, y, 3).mean().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in network.parameters())
