"""The paper's section "Extension to DGPs": a Bayesian network is a deep Gaussian process with kernel phi(x) S phi(y)' / N.

And two claims about which functions of layers depend on each other: a posterior over inducing values is invariant to
rotations of its inputs, and posteriors with independent inducing values leave layers that are two apart independent.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import nn

import inducing

INPUTS, HIDDEN = 2, 4
SAMPLES = 20_000


@dataclass(frozen=True)
class NetworkKernel(inducing.nn.Kernel):
    """k(x, y) = (phi(x) phi(y)' + 1) / (D + 1), the covariance of a layer with the prior of Neal and a bias."""

    rectified: bool

    def initial_values(self, in_features):
        return {"variance": torch.tensor(1 / (in_features + 1))}

    def matrix(self, values, x, y):
        x, y = (rows.relu() if self.rectified else rows for rows in (x, y))
        return values[0] * (x @ y.mT + 1)

    def diagonal(self, values, x):
        return values[0] * ((x.relu() if self.rectified else x).square().sum(-1) + 1)

    def features(self, values, shape, generator=None):
        raise NotImplementedError


def both_networks(num_inducing):
    """A Bayesian network and the deep Gaussian process with the same pseudo-outputs and precisions."""
    torch.manual_seed(num_inducing)
    points, targets = torch.randn(num_inducing, INPUTS).double(), torch.randn(num_inducing, 1).double()
    posterior = inducing.GlobalInducing("shared", kl="closed_form")
    weights = [inducing.Linear(INPUTS, HIDDEN, posterior=posterior), inducing.Linear(HIDDEN, 1, posterior=posterior)]
    processes = [
        inducing.GPLayer(INPUTS, HIDDEN, NetworkKernel(rectified=False), posterior=posterior, jitter=1e-9),
        inducing.GPLayer(HIDDEN, 1, NetworkKernel(rectified=True), posterior=posterior, jitter=1e-9),
    ]
    known = {"inducing_points": points, "inducing_targets": targets}
    bnn = inducing.Network([weights[0], nn.ReLU(), weights[1]], **known).double()
    deep_gp = inducing.Network(processes, **known).double()
    for ours, theirs in zip(weights, processes, strict=True):
        ours.posterior.load_state_dict(
            {
                "pseudo_outputs": torch.randn_like(ours.posterior.pseudo_outputs),
                "scaled_log_precision": torch.rand_like(ours.posterior.scaled_log_precision),
            }
        )
        theirs.posterior.load_state_dict(ours.posterior.state_dict())
    return bnn, deep_gp


@pytest.mark.parametrize("num_inducing", [INPUTS + 1, 8])
def test_a_bayesian_network_is_a_deep_gaussian_process(num_inducing):
    """The KL of the first layer is equal. So are, in law, the outputs at each row and the KL of the second layer.

    With more inducing points than features the kernel matrix is singular, and the two are equal up to the jitter.
    """
    rows = torch.randn(3, INPUTS, generator=torch.Generator().manual_seed(0)).double()
    laws, first_kls = [], []
    for network in both_networks(num_inducing):
        with torch.no_grad():
            draw = network.draw(SAMPLES, torch.Generator().manual_seed(1))
            outputs = draw(rows)[..., 0]
        first_kls.append(draw.layers[0].kl[0])
        laws.append(torch.cat([outputs, outputs.square(), draw.layers[1].kl[:, None]], 1))
    torch.testing.assert_close(*first_kls, rtol=1e-6, atol=1e-6)
    assert_equal_means(*laws)


@pytest.mark.parametrize("kernel", [inducing.kernels.SquaredExponential(ard=False), inducing.kernels.ArcCosine()])
def test_a_layer_of_processes_is_invariant_to_rotations_of_its_inputs(kernel):
    """The same noise gives the same values."""
    torch.manual_seed(0)
    points, rotation = torch.randn(6, 3).double(), torch.linalg.qr(torch.randn(3, 3).double())[0]
    draws = []
    for inputs in (points, points @ rotation):
        torch.manual_seed(1)
        network = inducing.Network([inducing.GPLayer(3, 3, kernel), inducing.GPLayer(3, 1)], inducing_points=inputs)
        with torch.no_grad():
            draws.append(network.double().draw(5, torch.Generator().manual_seed(2)).layers[0])
    for found, expected in zip(draws[0][1:3], draws[1][1:3], strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


def test_a_layer_of_weights_is_invariant_to_rotations_of_its_inputs():
    """The closed-form KL is equal, and so are, in law, the values at the inducing points."""
    torch.manual_seed(0)
    points, rotation = torch.randn(6, 3).double(), torch.linalg.qr(torch.randn(3, 3).double())[0]
    laws, kls = [], []
    for inputs in (points, points @ rotation):
        torch.manual_seed(1)
        layer = inducing.Linear(3, 1, posterior=inducing.GlobalInducing(kl="closed_form"))
        network = inducing.Network([layer], inducing_points=inputs).double()
        nn.init.normal_(layer.posterior.pseudo_outputs)
        with torch.no_grad():
            draw = network.draw(SAMPLES, torch.Generator().manual_seed(2))
        values = draw.inducing[..., 0]
        kls.append(draw.layers[0].kl[0])
        laws.append(torch.cat([values, (values[:, :, None] * values[:, None]).flatten(1)], 1))
    torch.testing.assert_close(*kls, rtol=1e-10, atol=1e-10)
    assert_equal_means(*laws)


def correlations(posterior):
    """The largest correlation of the functions of layers 1 and 2, and of layers 1 and 3, at fixed inputs, or their squares."""
    torch.manual_seed(0)
    layers = [inducing.GPLayer(1, 1, inducing.kernels.Linear(), posterior=posterior) for _ in range(3)]
    network = inducing.Network(layers, inducing_points=torch.linspace(-1, 1, 4)[:, None]).double()
    rows = torch.linspace(-1.5, 1.5, 4).double()[None, :, None]
    with torch.no_grad():
        draw = network.draw(SAMPLES, torch.Generator().manual_seed(1))
        values = [layer.function(rows)[..., 0] for layer in draw.layers]
    first, *above = (torch.cat([each, each.square()], 1) for each in values)
    return [torch.corrcoef(torch.cat([first, each], 1).mT)[:8, 8:].abs().max().item() for each in above]


def test_functions_two_layers_apart_are_independent_under_coupled_inducing_values():
    """The paper's appendix on graphical models: q(u_l) independent of u_{l-1} correlates neighbouring layers only."""
    noise = SAMPLES**-0.5
    neighbours, two_apart = correlations(inducing.CoupledInducing(initial_scale=0.5))
    assert neighbours > 10 * noise
    assert two_apart < 5 * noise
    neighbours, two_apart = correlations(inducing.GlobalInducing(log_precision=1.0))
    assert neighbours > 10 * noise
    assert two_apart > 10 * noise


def assert_equal_means(first, second):
    """The means over samples are equal within five standard errors of their difference."""
    error = ((first.var(0) + second.var(0)) / len(first)).sqrt()
    assert ((first.mean(0) - second.mean(0)).abs() < 5 * error).all()
