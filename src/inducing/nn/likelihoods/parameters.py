"""The positive parameters of likelihoods: one number for all outputs or one for each, stored as scaled logarithms."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from inducing.arrays import as_tensor
from inducing.nn.likelihoods.special import LOG_LIMIT

# a number, or one for each output
Positive = float | Sequence[float] | Tensor

# the paper's first noise variance
FIRST_VARIANCE = math.exp(-3)
# stored divided by 10, so that Adam moves it faster (the paper's appendix on UCI experiments); so are the logarithms of
# all parameters of likelihoods
LOG_VARIANCE_SCALE = 10.0


def register_log(
    likelihood: nn.Module,
    attribute: str,
    name: str,
    value: Positive,
    learn: bool,
    above: float = 0.0,
    limited: bool = True,
) -> None:
    """Store log(value - above) / LOG_VARIANCE_SCALE, as a parameter if it is learned and as a buffer if not.

    Arguments:
        likelihood: The module that will have it.
        attribute: What it is called there.
        name: What the user calls the value.
        value: Its first value.
        learn: Whether it is learned.
        above: What it must exceed.
        limited: Whether the logarithm goes through `soft_limit`, so that a value beyond its limits would not be kept.
    """
    first = as_tensor(value, torch.get_default_dtype()).detach().clone()
    if first.ndim > 1 or not (torch.isfinite(first) & (first > above)).all():
        kind = f"a number above {above:g}" if above else "a positive number"
        raise ValueError(f"{name} must be {kind}, or one for each output, got {value}")
    logarithm = (first - above).log()
    if limited and not (logarithm.abs() <= LOG_LIMIT).all():
        low, high = above + math.exp(-LOG_LIMIT), above + math.exp(LOG_LIMIT)
        raise ValueError(
            f"{name} must lie between {low:.1g} and {high:.1g}, got {value}; are the targets standardised?"
        )
    stored = logarithm / LOG_VARIANCE_SCALE
    if learn:
        likelihood.register_parameter(attribute, nn.Parameter(stored))
    else:
        likelihood.register_buffer(attribute, stored)


def check_number(stored: Tensor, plural: str, y: Tensor) -> None:
    """Refuse targets with another number of outputs than a parameter has."""
    if stored.ndim == 1 and stored.shape[-1:] != y.shape[-1:]:
        raise ValueError(f"the likelihood has {len(stored)} {plural} but y has {y.shape[-1]} outputs")
