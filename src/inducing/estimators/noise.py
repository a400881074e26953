"""The noise of a likelihood, multiplied by a factor after training."""

from __future__ import annotations

import torch
from torch import nn

from inducing.nn.likelihoods import Likelihood
from inducing.nn.likelihoods.parameters import LOG_VARIANCE_SCALE

# names of the parameters that store the logarithm of the noise variance, or of its square root
NOISE = {"scaled_log_variance": 1.0, "scaled_log_scale": 0.5}


def noise_of(likelihood: Likelihood) -> list[tuple[nn.Parameter, float]]:
    """The logarithms of the learned noise, each with 1 if it is that of the variance, and 1/2 if it is that of the scale."""
    named = [(name.rpartition(".")[2], each) for name, each in likelihood.named_parameters()]
    return [(each, NOISE[name]) for name, each in named if name in NOISE]


def multiply_noise(likelihood: Likelihood, log_factor: float) -> None:
    """Multiply the noise variance by the exponential of ``log_factor``."""
    with torch.no_grad():
        for parameter, power in noise_of(likelihood):
            parameter.add_(power * log_factor / LOG_VARIANCE_SCALE)
