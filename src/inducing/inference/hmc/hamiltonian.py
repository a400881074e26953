"""Hamiltonian dynamics of many chains in parallel: leapfrog integration and the Metropolis accept/reject step.

H(q, p) = U(q) + |p|^2 / 2,   U(q) = -log of the target density, up to a constant

The leading axis is the chain. Chains are independent: a chain that becomes non-finite does not affect the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from inducing.linalg.noise import standard_normal, uniform

# energy error above which a trajectory counts as divergent, as in Stan
DIVERGENCE = 1000.0
# relative random variation of the step size between trajectories, which avoids periodic trajectories
# (Neal, MCMC using Hamiltonian dynamics, 2011, Section 3.2)
STEP_JITTER = 0.1


class Point(NamedTuple):
    """Positions q of the chains, with the potential energy U and its gradient."""

    position: Float[Tensor, "S D"]
    potential: Float[Tensor, " S"]
    gradient: Float[Tensor, "S D"]


# computes U and its gradient at the positions of all chains
Target = Callable[[Float[Tensor, "S D"]], Point]


class Transition(NamedTuple):
    """Result of one iteration.

    Arguments:
        point: New positions.
        acceptance: Acceptance probability of each proposal.
        divergent: Whether the trajectory of each chain diverged.
    """

    point: Point
    acceptance: Float[Tensor, " S"]
    divergent: Bool[Tensor, " S"]


def leapfrog(
    target: Target, start: Point, momentum: Float[Tensor, "S D"], step_size: Float[Tensor, "S 1"], num_leapfrog: int
) -> tuple[Point, Float[Tensor, "S D"]]:
    """Leapfrog integration: reversible and volume preserving, with an energy error of O(step_size^2)."""
    point = start
    # p(t + e/2) = p(t) - e/2 dU/dq
    momentum = momentum - step_size / 2 * point.gradient
    for _ in range(num_leapfrog):
        # q(t + e) = q(t) + e p(t + e/2),  p(t + 3e/2) = p(t + e/2) - e dU/dq
        point = target(point.position + step_size * momentum)
        momentum = momentum - step_size * point.gradient
    # the last momentum step was half a step too long
    return point, momentum + step_size / 2 * point.gradient


def transition(target: Target, start: Point, step_size: float, num_leapfrog: int, generator: Generator) -> Transition:
    """Draw momenta, integrate, and accept each proposal with probability min(1, exp(-change of energy))."""
    momentum = standard_normal(tuple(start.position.shape), start.position, generator)
    factors = 1 + STEP_JITTER * (2 * uniform((len(momentum), 1), momentum, generator) - 1)
    end, end_momentum = leapfrog(target, start, momentum, step_size * factors, num_leapfrog)
    error = _energy(end, end_momentum) - _energy(start, momentum)
    divergent = ~(error < DIVERGENCE)
    acceptance = torch.where(divergent, 0.0, (-error).clamp_max(0.0).exp())
    accepted = uniform((len(error),), error, generator) < acceptance
    return Transition(_select(accepted, end, start), acceptance, divergent)


def _energy(point: Point, momentum: Float[Tensor, "S D"]) -> Float[Tensor, " S"]:
    return point.potential + momentum.square().sum(-1) / 2


def _select(accepted: Bool[Tensor, " S"], end: Point, start: Point) -> Point:
    column = accepted[:, None]
    return Point(
        torch.where(column, end.position, start.position),
        torch.where(accepted, end.potential, start.potential),
        torch.where(column, end.gradient, start.gradient),
    )
