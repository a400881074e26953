"""Positive parameters of likelihoods: one number for all outputs or one for each, stored as scaled logarithms."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from inducing.arrays import as_tensor
from inducing.nn.likelihoods.special import LOG_LIMIT

# a number, or one for each output
Positive = float | Sequence[float] | Tensor

# the paper's initial noise variance
FIRST_VARIANCE = math.exp(-3)
# logarithms of all likelihood parameters are stored divided by 10, so that Adam changes them faster (the paper's appendix on
# UCI experiments)
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
        likelihood: The module to add it to.
        attribute: Name of the attribute.
        name: Name of the value in error messages.
        value: Initial value.
        learn: Whether the value is learned.
        above: Lower bound, exclusive.
        limited: Whether `soft_limit` is applied to the logarithm. Values outside its limits are then an error.
    """
    first = as_tensor(value, torch.get_default_dtype()).detach().clone()
    if first.ndim > 1 or not (torch.isfinite(first) & (first > above)).all():
        kind = f"a number above {above:g}" if above else "a positive number"
        raise ValueError(f"{name} must be {kind}, or one for each output, got {value}")
    logarithm = (first - above).log()
    if limited and not (logarithm.abs() <= LOG_LIMIT).all():
        low, high = above + math.exp(-LOG_LIMIT), above + math.exp(LOG_LIMIT)
        raise ValueError(f"{name} must be between {low:.1g} and {high:.1g}, got {value}. Standardise the targets")
    stored = logarithm / LOG_VARIANCE_SCALE
    if learn:
        likelihood.register_parameter(attribute, nn.Parameter(stored))
    else:
        likelihood.register_buffer(attribute, stored)


def check_number(stored: Tensor, plural: str, y: Tensor) -> None:
    """Raise an error if a parameter has one value per output and the targets have another number of outputs."""
    if stored.ndim == 1 and stored.shape[-1:] != y.shape[-1:]:
        raise ValueError(f"the likelihood has {len(stored)} {plural} but y has {y.shape[-1]} outputs")
