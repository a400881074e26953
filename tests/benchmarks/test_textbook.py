"""The other side of the benchmarks must be right, too: the oracle, and the law of what the library draws."""

import pytest
import torch

import inducing
from benchmarks.textbook import TextbookNetwork
from tests.oracles import linear_regression as oracle


@pytest.mark.parametrize("expand", [True, False])
@pytest.mark.parametrize("per_output", [True, False])
def test_every_elbo_sample_of_one_layer_equals_the_evidence(per_output, expand):
    """Inducing points at the data, V = y and Lambda = the noise precision: no variance, and the exact posterior."""
    x, y = torch.randn(8, 3, dtype=torch.float64), torch.randn(8, 2, dtype=torch.float64)
    network = TextbookNetwork([3, 2], x, y, per_output, expand).double()
    with torch.no_grad():
        network.log_variance.zero_()
        elbo = network.elbo(x, y, 5)
    with_bias = torch.cat([x, torch.ones(8, 1, dtype=torch.float64)], 1)
    evidence = oracle.log_evidence(with_bias, y, 4 * torch.eye(4, dtype=torch.float64), 1.0)
    torch.testing.assert_close(elbo, evidence.expand(5), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("precision", ["shared", "per_output"])
def test_the_elbo_is_that_of_the_library(precision):
    """With the same parameters, |z| < 4 over 2,000 samples of each."""
    x, y = torch.randn(12, 2, dtype=torch.float64), torch.randn(12, 1, dtype=torch.float64)
    posterior = inducing.GlobalInducing(precision)
    network = inducing.models.mlp(2, 1, [4], posterior=posterior, inducing_points=x[:6], inducing_targets=y[:6])
    textbook = TextbookNetwork([2, 4, 1], x[:6], y[:6], precision == "per_output").double()
    with torch.no_grad():
        textbook.layers[0].pseudo_outputs.copy_(network.layers[0].posterior.pseudo_outputs.mT[..., None])
        theirs = textbook.elbo(x, y, 2000)
    ours = inducing.evaluate(network, inducing.Gaussian().double(), (x, y), 2000).samples
    error = (ours.var() / 2000 + theirs.var() / 2000).sqrt()
    assert abs(ours.mean() - theirs.mean()) < 4 * error
