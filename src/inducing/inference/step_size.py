"""Step sizes of Hamiltonian Monte Carlo: a first guess, and dual averaging towards a wanted acceptance rate.

One step size serves all chains, adapted to their mean acceptance probability.
"""

from __future__ import annotations

import math

from torch import Generator

from inducing.inference.hamiltonian import Point, Target, transition


class DualAveraging:
    """Step sizes whose acceptance rate approaches a wanted one.

    References:
        Hoffman & Gelman, The No-U-Turn Sampler (2014), Section 3.2; the constants are theirs.

    Arguments:
        first: First step size.
        wanted: The acceptance rate to approach.
    """

    GAMMA, T0, KAPPA = 0.05, 10.0, 0.75

    def __init__(self, first: float, wanted: float) -> None:
        self.wanted = wanted
        self.centre = math.log(10 * first)
        self.step_size = first
        self.log_average = math.log(first)
        self.error = 0.0
        self.count = 0

    def update(self, acceptance: float) -> None:
        """Take the acceptance rate that `step_size` had, and choose the next one."""
        self.count += 1
        weight = 1 / (self.count + self.T0)
        # H_t = (1 - 1/(t + t0)) H_{t-1} + (wanted - acceptance) / (t + t0)
        self.error += weight * (self.wanted - acceptance - self.error)
        # log e_t = mu - sqrt(t) / gamma H_t
        log_step = self.centre - math.sqrt(self.count) / self.GAMMA * self.error
        # the average forgets the beginning, with weights t^-kappa
        self.log_average += self.count**-self.KAPPA * (log_step - self.log_average)
        self.step_size = math.exp(log_step)

    @property
    def average(self) -> float:
        """The step size to keep."""
        return math.exp(self.log_average)


def first_step_size(target: Target, start: Point, generator: Generator, first: float = 0.1) -> float:
    """Double or halve a step size until a single step is accepted about every second time."""
    step_size, direction = first, 0
    # 2^-100 is nowhere, and so is 2^100
    for _ in range(100):
        accepted = float(transition(target, start, step_size, 1, generator).acceptance.mean()) > 0.5
        if direction not in (0, 1 if accepted else -1):
            break
        direction = 1 if accepted else -1
        step_size *= 2.0**direction
    return step_size
