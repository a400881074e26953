"""Quantiles of integers: the smallest k with P(Y <= k) >= q, by doubling and bisection on the distribution function."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.nn.likelihoods.base import Likelihood

# A probability that misses the level by less than this share of it counts as reached: rounding must not decide ties. They
# are common: where the draws of a mixture lie far apart, P(Y <= k) stays at a whole share of them for many k.
TIE = 1e-12
# 2^64 is beyond the integers that float64 can tell apart.
MAX_DOUBLINGS = 64


def integer_quantile(likelihood: Likelihood, outputs: Float[Tensor, "S B *O"], level: float) -> Float[Tensor, "B *O"]:
    """Find the quantile of the mixture over the first axis, in float64; NaN where the outputs are."""
    outputs = outputs.double()
    # log P(Y <= k) against log q, or in the upper half log P(Y > k) against log(1 - q)
    upper = level > 0.5
    wanted = math.log1p(-level) + TIE if upper else math.log(level) - TIE

    def reached(k: Tensor) -> Tensor:
        tail = likelihood.log_survival(outputs, k) if upper else likelihood.log_cdf(outputs, k)
        mass = tail.logsumexp(0) - math.log(len(outputs))
        return mass <= wanted if upper else mass >= wanted

    # low is never reached, high always
    high = likelihood.mean(outputs).mean(0).detach().ceil()
    low = torch.full_like(high, -1)
    enough = reached(high)
    for _ in range(MAX_DOUBLINGS):
        if enough.all():
            break
        low, high = torch.where(enough, low, high), torch.where(enough, high, 2 * high + 1)
        enough = reached(high)
    for _ in range(2 * MAX_DOUBLINGS):
        if not (high - low > 1).any():
            break
        middle = ((low + high) / 2).floor()
        there = reached(middle)
        low, high = torch.where(there, low, middle), torch.where(there, middle, high)
    return torch.where(enough, high, torch.nan)
