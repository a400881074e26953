import math

import numpy as np
import torch

from inducing.data.toy import composition, cubic


def test_the_data_are_the_papers():
    toy = cubic(2000)
    x = (toy.inputs.mean + toy.inputs.std * toy.x).numpy()
    y = (toy.targets.mean + toy.targets.std * toy.y).numpy()
    # x from U([-4, -2] u [2, 4])
    assert np.abs(x).min() > 1.999
    assert np.abs(x).max() < 4.001
    assert abs((np.abs(x).mean() - 3) / (np.sqrt(4 / 12) / np.sqrt(2000))) < 4
    assert abs((np.sign(x).mean()) * np.sqrt(2000)) < 4
    # y = x^3 + N(0, 9)
    residual = y - x**3
    assert abs(residual.mean() / (3 / np.sqrt(2000))) < 4
    assert abs((residual.var() / 9 - 1) / np.sqrt(2 / 2000)) < 4
    np.testing.assert_allclose(toy.noise_variance, 9 / toy.targets.std[0] ** 2)


def test_both_are_normalised():
    toy = cubic()
    assert toy.x.shape == toy.y.shape == (40, 1)
    for values in (toy.x, toy.y):
        assert abs(values.mean()) < 1e-6
        assert abs(values.std(correction=0) - 1) < 1e-5


def test_the_seed_decides():
    assert cubic(seed=1).x.equal(cubic(seed=1).x)
    assert not cubic(seed=1).x.equal(cubic(seed=2).x)


def test_a_composition_is_made_of_its_parts():
    data = composition(50, seed=3, noise_std=0.1, half_range=1.5)
    assert data.x.shape == data.y.shape == data.hidden.shape == data.function.shape == (50, 1)
    assert data.noise_variance == 0.1**2
    assert -1.5 < data.x.min() < -1.0 < 1.0 < data.x.max() < 1.5
    assert (data.x.diff(dim=0) > 0).all()
    data = composition(500, noise_std=0.1)
    noise = data.y - data.function
    assert abs((noise.var().item() / 0.01 - 1) / math.sqrt(2 / 500)) < 4


def test_the_layers_of_a_composition_have_the_covariance_of_their_kernel():
    """E[f(a) f(b)] = k(a, b) for the first layer, and for the second with the first layer's values as inputs."""
    draws = [composition(4, seed, lengthscale=0.7, variance=1.3) for seed in range(3000)]
    for inputs, outputs in (("x", "hidden"), ("hidden", "function")):
        z, f = (torch.stack([getattr(draw, name)[:, 0].double() for draw in draws]) for name in (inputs, outputs))
        expected = 1.3 * torch.exp(-0.5 * ((z[:, :, None] - z[:, None, :]) / 0.7) ** 2)
        difference = f[:, :, None] * f[:, None, :] - expected
        z_scores = difference.mean(0) / (difference.std(0) / math.sqrt(len(draws)))
        assert z_scores.abs().max() < 4


def test_the_seed_decides_a_composition():
    assert composition(seed=1).y.equal(composition(seed=1).y)
    assert not composition(seed=1).y.equal(composition(seed=2).y)
    before = torch.get_rng_state()
    composition()
    assert torch.equal(before, torch.get_rng_state())
