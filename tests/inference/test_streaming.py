"""New data by gradient steps: where the steps start."""

import math

import pytest
import torch
from torch import nn

import inducing
from inducing.inference.streaming import NUM_DRAWS, start_new_points
from inducing.linalg.noise import seeded
from inducing.nn.growing import add_inducing_points

NOISE = 0.3
X = torch.randn(12, 2, generator=torch.Generator().manual_seed(0)).double()
Y = torch.stack([X[:, 0].sin(), X.prod(1)], 1)


@pytest.mark.parametrize("kind", ["linear", "gp"])
def test_the_start_at_targets_is_the_exact_update(kind):
    layer = inducing.Linear(2, 2) if kind == "linear" else inducing.GPLayer(2, 2, jitter=1e-9)
    likelihood = inducing.Gaussian(NOISE).double()
    few = inducing.Network([layer], inducing_points=X[:7], inducing_targets=Y[:7])
    posterior = few.layers[0].posterior
    with torch.no_grad():
        posterior.scaled_log_precision.fill_(-math.log(NOISE) / 3)
    grown = add_inducing_points(few, X[7:])
    start_new_points(grown, 5, likelihood, Y[7:])
    posterior = grown.layers[0].posterior
    torch.testing.assert_close(posterior.pseudo_outputs.detach(), Y)
    # precisions are stored as logarithms divided by 3
    precision = (3 * posterior.scaled_log_precision).exp()
    torch.testing.assert_close(precision.detach(), torch.full_like(precision, 1 / NOISE))


def test_hidden_layers_start_at_their_mean_outputs_and_missing_targets_at_the_mean():
    torch.manual_seed(0)
    layers, likelihood = [inducing.Linear(2, 3), nn.Tanh(), inducing.Linear(3, 2)], inducing.Gaussian().double()
    network = inducing.Network(layers, inducing_points=X[:7])
    grown, targets = add_inducing_points(network, X[7:]), Y[7:].clone()
    targets[0, 1] = torch.nan
    draw = grown.draw(NUM_DRAWS, seeded(0, "new inducing points"), consistent=True)
    start_new_points(grown, 5, likelihood, targets)
    hidden, last = grown.layers[0].posterior, grown.layers[2].posterior
    torch.testing.assert_close(hidden.pseudo_outputs[7:], draw.layers[0].inducing[:, 7:].mean(0))
    log_precision = 3 * hidden.scaled_log_precision[:, 7:]
    torch.testing.assert_close(log_precision.detach(), torch.full((1, 5), -4.0).double())
    torch.testing.assert_close(last.pseudo_outputs[7, 1], draw(X[7:8])[:, 0, 1].mean())
    torch.testing.assert_close(last.pseudo_outputs[8:].detach(), Y[8:])


def test_a_missing_target_starts_with_a_low_precision():
    layer = inducing.Linear(2, 2, posterior=inducing.GlobalInducing("per_output"))
    network, targets = inducing.Network([layer], inducing_points=X[:7]), Y[7:].clone()
    targets[0, 1] = torch.nan
    grown = add_inducing_points(network, X[7:])
    start_new_points(grown, 5, inducing.Gaussian(NOISE).double(), targets)
    log_precision = 3 * grown.layers[0].posterior.scaled_log_precision[:, 7:].detach()
    expected = torch.full((2, 5), -math.log(NOISE)).double()
    expected[1, 0] = -4
    torch.testing.assert_close(log_precision, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("settings", [{}, {"stride": 2, "padding": 1}, {"padding": 1}, {"boundary": "exact"}])
def test_convolutions_learn_new_classes_of_images(settings):
    torch.manual_seed(0)
    images, labels = torch.randn(12, 1, 6, 6), torch.arange(12) % 3
    convolution = inducing.Conv2d(1, 2, 3, **settings)
    size = torch.nn.Conv2d(1, 2, 3, **{key: value for key, value in settings.items() if key != "boundary"})(images)
    layers = [convolution, nn.ReLU(), nn.Flatten(), inducing.Linear(size[0].numel(), 3)]
    network = inducing.Network(layers, inducing_points=images[:5])
    data, settings = (images, labels), {"num_steps": 2, "progress": False}
    assert inducing.update(network, inducing.Categorical(), data, **settings).num_inducing == 17


def test_a_row_with_one_of_two_targets_updates_by_steps():
    network, y = inducing.models.mlp(2, 2, [3], inducing_points=X[:7]), torch.tensor([[torch.nan, 1.0]]).double()
    trained = inducing.update(network, inducing.Gaussian().double(), (X[:1], y), 2, progress=False)
    assert all(parameter.isfinite().all() for parameter in trained.parameters())


def test_the_points_of_an_inducing_norm_stay():
    layers = [inducing.Linear(2, 4), inducing.InducingNorm(), nn.Tanh(), inducing.Linear(4, 2)]
    network = inducing.Network(layers, inducing_points=X[:7])
    trained = inducing.update(network, inducing.Gaussian().double(), (X, Y), 3, progress=False)
    assert torch.equal(trained.inducing_points, network.inducing_points)
    assert trained.inducing_points.requires_grad
