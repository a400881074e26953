import math

import numpy as np
import pytest
import torch
from arviz_stats.base import array_stats

from inducing.inference.hmc.diagnostics import diagnose


def autoregressive(correlation, chains, length, numbers=6):
    """x_t = correlation x_{t-1} + e_t, from its stationary distribution."""
    noise = torch.randn(chains, length, numbers, dtype=torch.float64)
    draws = noise.clone()
    draws[:, 0] /= math.sqrt(1 - correlation**2)
    for step in range(1, length):
        draws[:, step] += correlation * draws[:, step - 1]
    return draws


@pytest.mark.parametrize("correlation", [-0.5, 0.0, 0.5, 0.9])
@pytest.mark.parametrize(("chains", "length"), [(2, 20), (4, 500), (3, 401)])
def test_they_are_those_of_arviz(correlation, chains, length):
    draws = autoregressive(correlation, chains, length)
    # with ties, as rejected proposals make them, with a chain elsewhere, and with a wider one
    draws[..., 1] = draws[..., 1].round()
    draws[0, :, 2] += 1
    draws[0, :, 3] *= 5
    found = diagnose(draws)
    axes = {"chain_axis": 0, "draw_axis": 1}
    np.testing.assert_allclose(found.r_hat, array_stats.rhat(draws.numpy(), method="rank", **axes), rtol=1e-12)
    np.testing.assert_allclose(found.ess, array_stats.ess(draws.numpy(), method="bulk", **axes), rtol=1e-10)


def test_the_effective_sample_size_of_an_autoregression_is_known():
    """N (1 - a) / (1 + a)."""
    ess = diagnose(autoregressive(0.8, 4, 5000, 40)).ess
    assert ess.mean().item() == pytest.approx(20000 * 0.2 / 1.8, rel=0.05)


def test_chains_that_disagree_are_noticed():
    draws = torch.randn(4, 200, 5)
    draws[0, :, 1] += 3  # elsewhere
    draws[0, :, 2] *= 5  # wider
    draws[:, :, 3] += torch.linspace(0, 4, 200)  # all of them drift
    r_hat = diagnose(draws).r_hat
    assert r_hat[[0, 4]].max() < 1.02
    assert r_hat[1:4].min() > 1.1


def test_shapes_and_numbers_that_never_change():
    draws = torch.randn(2, 20, 3, 2)
    draws[:, :, 1, 0] = 7.0
    found = diagnose(draws)
    assert found.r_hat.shape == found.ess.shape == (3, 2)
    assert found.r_hat.isnan().nonzero().tolist() == found.ess.isnan().nonzero().tolist() == [[1, 0]]
    stuck = torch.arange(3.0)[:, None, None].expand(3, 20, 1)
    assert diagnose(stuck).r_hat > 100
    with pytest.raises(ValueError, match="at least 8 draws from each chain, got 7"):
        diagnose(draws[:, :7])
