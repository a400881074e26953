import numpy as np
import pytest
import torch

import inducing
from inducing.inference.hmc.hamiltonian import DIVERGENCE, Point, leapfrog, transition
from inducing.inference.hmc.whitened import WhitenedPosterior
from inducing.linalg.noise import seeded

MEAN = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
COVARIANCE = torch.tensor([[1.0, 0.6, 0.0], [0.6, 0.8, -0.2], [0.0, -0.2, 0.3]], dtype=torch.float64)


def normal(position):
    error = position - MEAN
    gradient = torch.linalg.solve(COVARIANCE, error.mT).mT
    return Point(position, (error * gradient).sum(-1) / 2, gradient)


def smooth_network():
    x, y = torch.randn(10, 2), torch.randn(10, 1)
    network = inducing.models.mlp(2, 1, [4], posterior="prior", activation=torch.nn.Tanh)
    return WhitenedPosterior(network, inducing.Gaussian(0.1), (x, y))


def energy(point, momentum):
    return point.potential + momentum.square().sum(-1) / 2


def start_of(target, chains=3):
    position, momentum = torch.randn(2, chains, target.size, dtype=torch.float64)
    return target(position), momentum


def test_leapfrog_is_reversible():
    target = smooth_network()
    start, momentum = start_of(target)
    step_size = torch.tensor([[0.01], [0.02], [0.03]])
    end, end_momentum = leapfrog(target, start, momentum, step_size, 25)
    assert (end.position - start.position).abs().max() > 0.1
    back, back_momentum = leapfrog(target, end, -end_momentum, step_size, 25)
    torch.testing.assert_close(back.position, start.position, rtol=0, atol=1e-9)
    torch.testing.assert_close(-back_momentum, momentum, rtol=0, atol=1e-9)


def test_the_energy_error_falls_with_the_square_of_the_step_size():
    target = smooth_network()
    start, momentum = start_of(target, 20)
    errors = []
    for num_leapfrog in (50, 100, 200):
        step_size = torch.full((20, 1), 0.4 / num_leapfrog, dtype=torch.float64)
        end = leapfrog(target, start, momentum, step_size, num_leapfrog)
        errors.append((energy(*end) - energy(start, momentum)).abs())
    assert errors[0].min() > 1e-8, "far above rounding"
    ratios = torch.stack([errors[0] / errors[1], errors[1] / errors[2]])
    torch.testing.assert_close(ratios.median(1).values, torch.full((2,), 4.0, dtype=torch.float64), rtol=0.05, atol=0)


def test_leapfrog_preserves_volume():
    target = smooth_network()
    start, momentum = start_of(target, 1)
    size = target.size

    def flow(both):
        point = start_at(both[None, :size])
        end, end_momentum = leapfrog(start_at, point, both[None, size:], torch.full((1, 1), 0.05), 3)
        return torch.cat([end.position, end_momentum], 1)[0]

    def start_at(position):
        """The target with a gradient that can be differentiated again."""
        position = position if position.requires_grad else position.detach().requires_grad_()
        potential = position.square().sum(-1) / 2 - target.log_likelihood(position)
        (gradient,) = torch.autograd.grad(potential.sum(), position, create_graph=True)
        return Point(position, potential, gradient)

    jacobian = torch.autograd.functional.jacobian(flow, torch.cat([start.position, momentum], 1)[0])
    assert torch.linalg.slogdet(jacobian).logabsdet.abs() < 1e-9


def test_moments_of_a_normal_target():
    """Chains are independent, so the spread of their means is the error of the whole."""
    generator = seeded(0, "test")
    chains = 200
    point = normal(torch.randn(chains, 3, dtype=torch.float64, generator=generator))
    positions = []
    for iteration in range(300):
        point, acceptance, divergent = transition(normal, point, 0.5, 4, generator)
        assert not divergent.any()
        if iteration >= 50:
            positions.append(point.position)
    assert 0.5 < acceptance.mean() < 0.99, "some are refused, or it would prove little"
    draws = torch.stack(positions, 1) - MEAN
    products = (draws[..., :, None] * draws[..., None, :]).flatten(2) - COVARIANCE.flatten()
    for errors in (draws.mean(1), products.mean(1)):
        assert (errors.mean(0) / (errors.std(0) / chains**0.5)).abs().max() < 4


def test_a_chain_that_leaves_the_numbers_does_so_alone():
    def broken(position):
        point = normal(position)
        away = (position != 0).any(1) & (torch.arange(len(position)) == 1)
        return Point(
            position, *(tensor.masked_fill(away.view(-1, *[1] * (tensor.ndim - 1)), np.nan) for tensor in point[1:])
        )

    start = broken(torch.zeros(3, 3, dtype=torch.float64))
    end = transition(broken, start, 0.1, 3, seeded(1, "test"))
    whole = transition(normal, start, 0.1, 3, seeded(1, "test"))
    assert end.divergent.tolist() == [False, True, False]
    assert end.acceptance[1] == 0
    assert torch.equal(end.point.position[1], start.position[1])
    assert torch.isfinite(torch.cat([end.point.position, end.point.gradient])).all()
    for chain in (0, 2):
        assert torch.equal(end.point.position[chain], whole.point.position[chain])


@pytest.mark.parametrize(("step_size", "expected"), [(0.1, False), (50.0, True)])
def test_a_trajectory_that_loses_its_energy_is_divergent_and_refused(step_size, expected):
    start = normal(torch.zeros(5, 3, dtype=torch.float64))
    done = transition(normal, start, step_size, 10, seeded(0, "test"))
    assert DIVERGENCE == 1000
    assert done.divergent.tolist() == [expected] * 5
    assert torch.equal(done.point.position, start.position) == expected
