"""Quantiles of integers: the smallest k with P(Y <= k) >= q, by doubling and bisection of the distribution function."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.nn.likelihoods.base import Likelihood

# Relative tolerance of comparisons with the level, so that rounding does not decide ties. Ties are common: if the components
# of a mixture are far apart, P(Y <= k) is a multiple of 1 / components for many k.
TIE = 1e-12
# float64 does not represent all integers up to 2^64.
MAX_DOUBLINGS = 64


def integer_quantile(likelihood: Likelihood, outputs: Float[Tensor, "S B *O"], level: float) -> Float[Tensor, "B *O"]:
    """Return the quantile of the mixture over the first axis, in float64. It is NaN where the outputs are NaN."""
    outputs = outputs.double()
    # log P(Y <= k) against log q, or in the upper half log P(Y > k) against log(1 - q)
    upper = level > 0.5
    wanted = math.log1p(-level) + TIE if upper else math.log(level) - TIE

    def reached(k: Tensor) -> Tensor:
        tail = likelihood.log_survival(outputs, k) if upper else likelihood.log_cdf(outputs, k)
        mass = tail.logsumexp(0) - math.log(len(outputs))
        return mass <= wanted if upper else mass >= wanted

    # invariant: low is below the quantile, high is not
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
