"""Step size of Hamiltonian Monte Carlo: an initial value, and dual averaging towards a target acceptance rate.

One step size is used for all chains, and adapted to their mean acceptance probability.
"""

from __future__ import annotations

import math

from torch import Generator

from inducing.inference.hmc.hamiltonian import Point, Target, transition


class DualAveraging:
    """Adaptation of the step size by dual averaging.

    References:
        Hoffman & Gelman, The No-U-Turn Sampler (2014), Section 3.2, with the constants given there.

    Arguments:
        initial: Initial step size.
        target: Target acceptance rate.
    """

    GAMMA, T0, KAPPA = 0.05, 10.0, 0.75

    def __init__(self, initial: float, target: float) -> None:
        self.target = target
        self.centre = math.log(10 * initial)
        self.step_size = initial
        self.log_average = math.log(initial)
        self.error = 0.0
        self.count = 0

    def update(self, acceptance: float) -> None:
        """Choose the next step size, given the acceptance rate of the current one."""
        self.count += 1
        weight = 1 / (self.count + self.T0)
        # H_t = (1 - 1/(t + t0)) H_{t-1} + (target - acceptance) / (t + t0)
        self.error += weight * (self.target - acceptance - self.error)
        # log e_t = mu - sqrt(t) / gamma H_t
        log_step = self.centre - math.sqrt(self.count) / self.GAMMA * self.error
        # log e_bar_t = t^-kappa log e_t + (1 - t^-kappa) log e_bar_{t-1}
        self.log_average += self.count**-self.KAPPA * (log_step - self.log_average)
        self.step_size = math.exp(log_step)

    @property
    def average(self) -> float:
        """The averaged step size, for use after warm-up."""
        return math.exp(self.log_average)


def initial_step_size(target: Target, start: Point, generator: Generator, guess: float = 0.1) -> float:
    """Double or halve a step size until about half of the proposals of a single leapfrog step are accepted."""
    step_size, direction = guess, 0
    # at most by a factor of 2^100
    for _ in range(100):
        accepted = float(transition(target, start, step_size, 1, generator).acceptance.mean()) > 0.5
        if direction not in (0, 1 if accepted else -1):
            break
        direction = 1 if accepted else -1
        step_size *= 2.0**direction
    return step_size
