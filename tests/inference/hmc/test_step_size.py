import math

import pytest
import torch

from inducing.inference.hmc.hamiltonian import Point, transition
from inducing.inference.hmc.step_size import DualAveraging, initial_step_size
from inducing.linalg.noise import seeded


def narrow(position):
    """N(0, 0.01^2) in ten dimensions."""
    return Point(position, (position / 0.01).square().sum(-1) / 2, position / 0.01**2)


def test_dual_averaging_finds_the_step_size_of_a_known_curve():
    """Acceptance exp(-step) is 0.8 at -log 0.8."""
    adaptation = DualAveraging(5.0, 0.8)
    for _ in range(2000):
        adaptation.update(math.exp(-adaptation.step_size))
    assert adaptation.average == pytest.approx(-math.log(0.8), rel=0.05)


@pytest.mark.parametrize("first", [1e-6, 0.1, 1e4])
def test_the_initial_step_size_has_the_scale_of_the_target(first):
    """Leapfrog on N(0, s^2) is stable below 2 s."""
    start = narrow(0.01 * torch.randn(20, 10, dtype=torch.float64))
    assert 0.002 < initial_step_size(narrow, start, seeded(0, "test"), first) < 0.03


@pytest.mark.parametrize("wanted", [0.6, 0.9])
def test_the_acceptance_rate_is_what_was_asked_for(wanted):
    generator = seeded(0, "test")
    point = narrow(0.01 * torch.randn(10, 10, dtype=torch.float64))
    adaptation = DualAveraging(initial_step_size(narrow, point, generator), wanted)
    for _ in range(300):
        point, acceptance, _ = transition(narrow, point, adaptation.step_size, 5, generator)
        adaptation.update(float(acceptance.mean()))
    rates = []
    for _ in range(200):
        point, acceptance, _ = transition(narrow, point, adaptation.average, 5, generator)
        rates.append(acceptance.mean())
    assert torch.stack(rates).mean().item() == pytest.approx(wanted, abs=0.1)
