"""Special functions that are accurate where the usual formulas overflow or cancel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

# Logarithms of rates, variances etc. are not changed up to this limit: e^20 is 5e8.
LOG_LIMIT = 20.0
# From this value on the Stirling series is accurate to float64 precision.
SERIES_FROM = 16.0


def soft_limit(logarithm: Tensor) -> Tensor:
    """Compress a logarithm beyond +-LOG_LIMIT so that its exponential grows linearly.

    The exponential, a rate or a variance, is then finite for all outputs of a network. The gradient is finite and keeps its
    sign, so training can return from extreme values. Values within the limit are not changed.
    """
    excess = functional.relu(logarithm.abs() - LOG_LIMIT)
    return logarithm.clamp(-LOG_LIMIT, LOG_LIMIT) + logarithm.sign() * excess.log1p()


def stirling_remainder(x: Tensor) -> Tensor:
    """Return log x! - (x log x - x) for x >= 0: the remainder of log x! without its large terms."""
    # log(2 pi x) / 2 + 1/12x - 1/360x^3 + 1/1260x^5 - 1/1680x^7 + 1/1188x^9
    large = x.clamp_min(SERIES_FROM)
    square = large.square().reciprocal()
    series = 1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188)))
    small = x.clamp_max(SERIES_FROM)
    exact = torch.lgamma(small + 1) - torch.special.xlogy(small, small) + small
    return torch.where(x < SERIES_FROM, exact, (2 * math.pi * large).log() / 2 + series / large)


def from_scipy(function: Callable[..., Any], *arguments: Tensor) -> Tensor:
    """Apply a function of scipy.special in float64. The result has no gradient."""
    arrays = [argument.detach().double().cpu().numpy() for argument in arguments]
    return torch.as_tensor(function(*arrays), dtype=torch.float64, device=arguments[0].device)
