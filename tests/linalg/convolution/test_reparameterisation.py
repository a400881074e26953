"""Gradients of convolution weights, compared with a regression on extracted patches."""

import pytest
import torch
from torch.nn import functional

from inducing.linalg.convolution.geometry import Geometry
from inducing.linalg.convolution.patches import patches
from inducing.linalg.precision import Dense
from inducing.linalg.pseudo_likelihood import PseudoOutputs
from inducing.linalg.regression import regress
from inducing.nn.context import DrawContext
from inducing.nn.posteriors.convolution import ConvolvedWeights

IMAGES, CHANNELS, HEIGHT, WIDTH, OUTPUTS, SAMPLES = 6, 2, 7, 6, 4, 3
GEOMETRIES = {
    "circular": Geometry((3, 3)),
    "zeros": Geometry((3, 3), (1, 1), (1, 1), "exact"),
    "stride": Geometry((3, 3), (2, 2), (1, 1), "exact"),
    "pixels": Geometry((1, 1), (2, 2), (0, 0), "exact"),
}


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("num_inputs", [1, SAMPLES], ids=["shared images", "images of each sample"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("precision", ["shared", "per_output"])
@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES)
def test_gradients_are_those_of_a_regression_on_patches(geometry, precision, bias, num_inputs, monkeypatch):
    x = random(num_inputs, IMAGES, CHANNELS, HEIGHT, WIDTH, seed=0).requires_grad_()
    # four images at a time, then two
    monkeypatch.setattr("inducing.linalg.convolution.patches.CHUNK", 4 * x[:, 0].numel())
    pixels = geometry.output_shape(HEIGHT, WIDTH)
    posterior = ConvolvedWeights(random(IMAGES, OUTPUTS, *pixels, seed=1), geometry, bias, precision, 0.3, False)
    posterior.double()
    features = CHANNELS * len(geometry.places) + bias
    root = random(SAMPLES, features, features, seed=2) / features**0.5
    prior = (root @ root.mT + torch.eye(features)).requires_grad_()
    parameters = [x, prior, *posterior.parameters()]

    def convolve(generator):
        return posterior(x, Dense(prior), DrawContext(SAMPLES, generator))

    def regress_patches(generator):
        rows = patches(x, geometry).flatten(1, 3)
        rows = functional.pad(rows, (0, 1), value=1.0) if bias else rows
        values = posterior.pseudo_outputs.permute(0, 2, 3, 1).reshape(-1, OUTPUTS)
        roots = posterior.precision_root().repeat_interleave(pixels[0] * pixels[1], 1)
        data = PseudoOutputs(values, roots)
        return regress(rows, data, Dense(prior), SAMPLES, generator=generator, form="primal")

    found = []
    for sample in (convolve, regress_patches):
        weights, kl = sample(torch.Generator().manual_seed(3))
        objective = (weights.square() * torch.arange(1.0, OUTPUTS + 1)).sum() + kl @ torch.arange(
            1.0, SAMPLES + 1
        ).double()
        found.append([weights, kl, *torch.autograd.grad(objective, parameters)])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("part", ["weights", "kl"])
def test_either_gradient_alone(part):
    """The weights without their KL, and the KL without the weights."""
    x = random(1, IMAGES, CHANNELS, HEIGHT, WIDTH, seed=0)
    values = random(IMAGES, OUTPUTS, HEIGHT, WIDTH, seed=1)
    posterior = ConvolvedWeights(values, GEOMETRIES["circular"], True, "shared", 0.3, False).double()
    prior = Dense(torch.eye(CHANNELS * 9 + 1, dtype=torch.float64)[None])
    gradients = []
    for weight_of_other in (0.0, None):
        sampled = posterior(x, prior, DrawContext(SAMPLES, torch.Generator().manual_seed(3)))
        parts = {"weights": sampled.weights.square().sum(), "kl": sampled.kl.sum()}
        objective = parts.pop(part)
        if weight_of_other is not None:
            objective = objective + weight_of_other * sum(parts.values())
        gradients.append(torch.autograd.grad(objective, posterior.pseudo_outputs)[0])
    assert gradients[0].abs().max() > 1e-3
    torch.testing.assert_close(*gradients)
