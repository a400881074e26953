"""The learned noise of a likelihood, and its multiplication by a factor."""

from __future__ import annotations

import torch
from torch import nn

from inducing.nn.likelihoods import Likelihood
from inducing.nn.likelihoods.parameters import LOG_VARIANCE_SCALE

# parameters that store the logarithm of the noise variance (power 1), or of its square root (power 1/2)
POWERS = {"scaled_log_variance": 1.0, "scaled_log_scale": 0.5}


def noise_of(likelihood: Likelihood) -> list[tuple[nn.Parameter, float]]:
    """The parameters with the logarithm of the learned noise, each with its power of the variance."""
    named = [(name.rpartition(".")[2], each) for name, each in likelihood.named_parameters()]
    return [(each, POWERS[name]) for name, each in named if name in POWERS]


def multiply_noise(likelihood: Likelihood, log_factor: float) -> None:
    """Multiply the learned noise variance by exp(``log_factor``), in place. A fixed noise stays as it is."""
    with torch.no_grad():
        for parameter, power in noise_of(likelihood):
            parameter.add_(power * log_factor / LOG_VARIANCE_SCALE)
