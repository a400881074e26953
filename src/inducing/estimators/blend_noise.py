"""The factor of the noise variances of a blend, chosen by rows that none of its models was fitted to.

The variance of a mixture is the mean of the variances of its models, plus the variance of their means. So a mixture of
models with accurate error bars has error bars that are too wide (Gneiting & Ranjan, 2013). In predictions of the blend, all
noise variances are multiplied by one factor phi <= 1. It maximises the log-likelihood of held-out rows under the mixture,
with a normal prior on log phi:

    sum_i log sum_k w_k p_k(y_i | x_i; phi)  -  (log phi)^2 / (2 s^2)

w_k are the weights of the models. Row i counts as often as its weight. The models themselves, with the noise that they have
learned, do not change.

References:
    Gneiting and Ranjan, Combining predictive distributions (2013).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from inducing.checks import check_kind
from inducing.estimators.model_weights import IMPOSSIBLE
from inducing.estimators.noise import multiply_noise, noise_of
from inducing.nn.likelihoods import Likelihood
from inducing.prediction.predictive import Predictive
from inducing.saving.values import shorten

# s, the standard deviation of log phi under the prior
PRIOR_STD = 0.5
# the factors that are tried, from 1 to 1/4 in steps of 2^(1/8)
FACTORS = [2.0 ** (-step / 8) for step in range(17)]


def find_noise_factor(
    predictions: Sequence[Predictive],
    weights: Float[np.ndarray, " K"],
    targets: np.ndarray | Tensor,
    row_weights: Float[np.ndarray, " N"],
) -> float:
    """Find the factor with the highest objective among `FACTORS`. It is 1 for one model, and without a learned noise.

    Arguments:
        predictions: The predictions of held-out rows by each model of the blend.
        weights: The weights of the models, positive.
        targets: The targets of these rows.
        row_weights: Weights of the rows.
    """
    if len(predictions) == 1 or not any(noise_of(each.likelihood) for each in predictions):
        return 1.0

    def objective(factor: float) -> float:
        noisy = [replace(each, likelihood=with_noise(each.likelihood, factor)) for each in predictions]
        return float(row_weights @ _log_mixture(noisy, weights, targets)) - (math.log(factor) / PRIOR_STD) ** 2 / 2

    return max(FACTORS, key=objective)


def with_noise(likelihood: Likelihood, factor: float) -> Likelihood:
    """A copy of the likelihood, with its learned noise variance multiplied by a factor."""
    copied = copy.deepcopy(likelihood)
    multiply_noise(copied, math.log(factor))
    return copied


def check_noise_factor(factor: float) -> None:
    """Raise an error if a given factor is not one that could be found."""
    check_kind("noise_factor", factor, Real, "a number")
    if not min(FACTORS) <= factor <= 1:
        raise ValueError(f"noise_factor must be between {min(FACTORS)} and 1, got {shorten(factor)}")


def _log_mixture(
    predictions: Sequence[Predictive], weights: Float[np.ndarray, " K"], targets: np.ndarray | Tensor
) -> Float[np.ndarray, " N"]:
    """The log-density of each row under the mixture."""
    with torch.no_grad():
        densities = torch.stack([each.log_prob(targets) for each in predictions], 1).double()
    return np.logaddexp.reduce(densities.nan_to_num(nan=IMPOSSIBLE).clamp_min(IMPOSSIBLE).numpy() + np.log(weights), 1)
