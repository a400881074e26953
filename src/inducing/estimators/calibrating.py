"""Factors of the noise and of the posterior's precisions, chosen by held-out rows.

Training with one posterior sample a step ends with too much noise and too wide a posterior on tables that have hardly any
noise: a network whose draws differ needs noise, and with much noise there is little reason for the draws to agree. On other
tables the posterior of a small weight of the KL is too narrow. Both are corrected by two numbers for the whole network.
"""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import torch

from inducing.inference.held_out import HeldOut
from inducing.nn.likelihoods import Likelihood
from inducing.nn.likelihoods.parameters import LOG_VARIANCE_SCALE
from inducing.nn.network import Network
from inducing.nn.parameterisation import LOG_PRECISION_SCALE

# nats per held-out row that another factor must bring
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
            for name, parameter in network.named_parameters():
                if name.endswith("scaled_log_precision"):
                    parameter.add_(self.precision * math.log(2) / LOG_PRECISION_SCALE)
            for name, parameter in likelihood.named_parameters():
                if name == "scaled_log_variance":
                    parameter.add_(self.noise * math.log(2) / LOG_VARIANCE_SCALE)

    def neighbours(self) -> list[Factors]:
        """The factors with one of the two doubled or halved."""
        moves = ((1, 0), (-1, 0), (0, 1), (0, -1))
        found = [Factors(self.noise + noise, self.precision + precision) for noise, precision in moves]
        return [each for each in found if max(map(abs, each)) <= MOST_DOUBLINGS]


def find_factors(network: Network, likelihood: Likelihood, rows: HeldOut, seed: int) -> Factors:
    """Find the factors of the highest log-likelihood of held-out rows, going to the best neighbour as long as it helps."""
    scores: dict[Factors, float] = {}

    def score(factors: Factors) -> float:
        if factors not in scores:
            trial, noise = copy.deepcopy(network), copy.deepcopy(likelihood)
            factors.apply(trial, noise)
            scores[factors] = rows.score(trial, noise, seed)
        return scores[factors]

    best, found = Factors(), None
    while found != best:
        found = best
        neighbour = max(found.neighbours(), key=score, default=found)
        if score(neighbour) > score(found) + LEAST_GAIN:
            best = neighbour
    return best
