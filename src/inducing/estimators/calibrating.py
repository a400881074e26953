"""Factors of the noise and of the posterior's precisions, chosen by held-out rows.

Training with one posterior sample a step ends with too much noise and too wide a posterior on tables that have hardly any
noise: a network whose draws differ needs noise, and with much noise there is little reason for the draws to agree. On other
tables the posterior of a small weight of the KL is too narrow. Both are corrected by two numbers for the whole network.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from inducing.estimators.noise import multiply_noise, noise_of
from inducing.inference.held_out import HeldOut
from inducing.inference.parallel.ranks import join
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.nn.parameterisation import LOG_PRECISION_SCALE

# nats per held-out row that another factor must bring, and at least one standard error of them
LEAST_GAIN = 0.005
# factors are between 1/64 and 64
MOST_DOUBLINGS = 6


class Factors(NamedTuple):
    """How often the noise variance and the precisions of the posterior are doubled. Halved, if negative."""

    noise: int = 0
    precision: int = 0

    def apply(self, network: Network, likelihood: Likelihood) -> None:
        """Multiply the precisions and the noise variance, if the likelihood has one."""
        with torch.no_grad():
            for parameter in precisions_of(network):
                parameter.add_(self.precision * math.log(2) / LOG_PRECISION_SCALE)
        multiply_noise(likelihood, self.noise * math.log(2))

    def neighbours(self, has_noise: bool) -> list[Factors]:
        """The factors with one of the two doubled or halved."""
        moves = ((0, 1), (0, -1), *(((1, 0), (-1, 0)) if has_noise else ()))
        found = [Factors(self.noise + noise, self.precision + precision) for noise, precision in moves]
        return [each for each in found if max(map(abs, each)) <= MOST_DOUBLINGS]


def find_factors(network: Network, likelihood: Likelihood, rows: HeldOut, seed: int) -> Factors:
    """Find the factors of the highest log-likelihood of held-out rows, going to the best neighbour as long as it helps."""
    scores: dict[Factors, Tensor] = {}

    def score(factors: Factors) -> Tensor:
        if factors not in scores:
            trial, noise = copy.deepcopy(network), copy.deepcopy(likelihood)
            factors.apply(trial, noise)
            scores[factors] = rows.log_likelihoods(trial, noise, seed)
        return scores[factors]

    best, found, has_noise = Factors(), None, bool(noise_of(likelihood))
    while found != best:
        found = best
        neighbour = max(
            found.neighbours(has_noise), key=lambda factors: float(rows.mean(score(factors))), default=found
        )
        gains = score(neighbour) - score(found)
        if rows.mean(gains) > max(LEAST_GAIN, float(rows.standard_error(gains))):
            best = neighbour
    # the same on all machines of torchrun, whatever they round
    return Factors(*join().broadcast(list(best)))


@contextmanager
def freeze_noise_and_precisions(network: Network, likelihood: Likelihood) -> Iterator[None]:
    """Do not learn the precisions and the noise."""
    parameters = [*precisions_of(network), *(each for each, _ in noise_of(likelihood))]
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)


def precisions_of(network: Network) -> list[nn.Parameter]:
    """The logarithms of the precisions of all layers."""
    return [each for name, each in network.named_parameters() if name.endswith("scaled_log_precision")]
