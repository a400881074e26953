"""Hamiltonian dynamics of many chains at once: leapfrog steps, and the accept-or-reject step around them.

H(q, p) = U(q) + |p|^2 / 2,   U(q) = -log of the target's density, up to a constant

The chains lie along the leading axis and never meet: a chain that leaves the numbers does so alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from inducing.linalg.noise import standard_normal, uniform

# an error of the energy beyond which a trajectory is called divergent, as in Stan
DIVERGENCE = 1000.0
# step sizes vary by this much from trajectory to trajectory, so that none of them comes back to where it began
# (Neal, MCMC using Hamiltonian dynamics, 2011, Section 3.2)
STEP_JITTER = 0.1


class Point(NamedTuple):
    """Where the chains are: positions q, the potential U there, and its gradient."""

    position: Float[Tensor, "S D"]
    potential: Float[Tensor, " S"]
    gradient: Float[Tensor, "S D"]


# U and its gradient at the positions of all chains
Target = Callable[[Float[Tensor, "S D"]], Point]


class Transition(NamedTuple):
    """What one iteration did.

    Arguments:
        point: Where the chains are now.
        acceptance: The probability with which each proposal was accepted, whether or not it was.
        divergent: Where the energy was lost on the way.
    """

    point: Point
    acceptance: Float[Tensor, " S"]
    divergent: Bool[Tensor, " S"]


def leapfrog(
    target: Target, start: Point, momentum: Float[Tensor, "S D"], step_size: Float[Tensor, "S 1"], num_leapfrog: int
) -> tuple[Point, Float[Tensor, "S D"]]:
    """Follow the dynamics for some steps. Reversible, volume preserving, with an energy error of O(step_size^2)."""
    point = start
    # p(t + e/2) = p(t) - e/2 dU/dq
    momentum = momentum - step_size / 2 * point.gradient
    for _ in range(num_leapfrog):
        # q(t + e) = q(t) + e p(t + e/2),  p(t + 3e/2) = p(t + e/2) - e dU/dq
        point = target(point.position + step_size * momentum)
        momentum = momentum - step_size * point.gradient
    # half of the last step of the momentum was too much
    return point, momentum + step_size / 2 * point.gradient


def transition(target: Target, start: Point, step_size: float, num_leapfrog: int, generator: Generator) -> Transition:
    """Draw momenta, follow the dynamics, and accept each chain's end with probability min(1, exp(-change of energy))."""
    momentum = standard_normal(tuple(start.position.shape), start.position, generator)
    factors = 1 + STEP_JITTER * (2 * uniform((len(momentum), 1), momentum, generator) - 1)
    end, end_momentum = leapfrog(target, start, momentum, step_size * factors, num_leapfrog)
    error = _energy(end, end_momentum) - _energy(start, momentum)
    divergent = ~(error < DIVERGENCE)
    acceptance = torch.where(divergent, 0.0, (-error).clamp_max(0.0).exp())
    accepted = uniform((len(error),), error, generator) < acceptance
    return Transition(_choose(accepted, end, start), acceptance, divergent)


def _energy(point: Point, momentum: Float[Tensor, "S D"]) -> Float[Tensor, " S"]:
    return point.potential + momentum.square().sum(-1) / 2


def _choose(accepted: Bool[Tensor, " S"], end: Point, start: Point) -> Point:
    column = accepted[:, None]
    return Point(
        torch.where(column, end.position, start.position),
        torch.where(accepted, end.potential, start.potential),
        torch.where(column, end.gradient, start.gradient),
    )
