"""Functions that keep their digits where the textbook's would overflow or cancel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

# Logarithms of rates, variances and the like are used as they are up to here: e^20 is 5e8.
LOG_LIMIT = 20.0
# From here on the Stirling series has all digits of float64.
SERIES_FROM = 16.0


def soft_limit(logarithm: Tensor) -> Tensor:
    """Let a logarithm grow like a logarithm beyond +-LOG_LIMIT.

    Its exponential, a rate or a variance, then grows linearly: it stays finite for all outputs that a network can have, and
    the gradient stays finite and keeps its sign, so that training finds its way back. Within the limit nothing changes.
    """
    excess = functional.relu(logarithm.abs() - LOG_LIMIT)
    return logarithm.clamp(-LOG_LIMIT, LOG_LIMIT) + logarithm.sign() * excess.log1p()


def stirling_remainder(x: Tensor) -> Tensor:
    """log x! - (x log x - x), for x >= 0: what is left of log x! without its large terms."""
    # log(2 pi x) / 2 + 1/12x - 1/360x^3 + 1/1260x^5 - 1/1680x^7 + 1/1188x^9
    large = x.clamp_min(SERIES_FROM)
    square = large.square().reciprocal()
    series = 1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188)))
    small = x.clamp_max(SERIES_FROM)
    exact = torch.lgamma(small + 1) - torch.special.xlogy(small, small) + small
    return torch.where(x < SERIES_FROM, exact, (2 * math.pi * large).log() / 2 + series / large)


def from_scipy(function: Callable[..., Any], *arguments: Tensor) -> Tensor:
    """Apply a function of scipy.special in float64; it has no gradient."""
    arrays = [argument.detach().double().cpu().numpy() for argument in arguments]
    return torch.as_tensor(function(*arrays), dtype=torch.float64, device=arguments[0].device)
