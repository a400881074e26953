"""The noise of the models of a blend, by rows that none of them was fitted to.

The variance of a mixture is the mean of the variances of its models, plus the variance of their means. So a mixture of
models with good error bars has error bars that are too wide (Gneiting & Ranjan, 2013). All noise variances are multiplied by
the factor phi of the highest log-likelihood of the mixture, with a normal prior on its logarithm:

    maximise over phi   sum_i log sum_k w_k p_k(y_i | x_i; phi)  -  (log phi)^2 / (2 s^2)

References:
    Gneiting and Ranjan, Combining predictive distributions (2013).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from inducing.estimators.model_weights import IMPOSSIBLE
from inducing.estimators.noise import multiply_noise, noise_of
from inducing.prediction.predictive import Predictive

# s, the standard deviation of log phi under the prior
PRIOR_STD = 0.5
# phi is a power of 2 with an exponent from -2 to 2
LOG_FACTORS = math.log(2) * np.arange(-16, 17) / 8


def find_noise_factor(
    predictions: Sequence[Predictive],
    weights: Float[np.ndarray, " K"],
    targets: np.ndarray | Tensor,
    row_weights: Float[np.ndarray, " N"],
) -> float:
    """Find log phi. It is 0 for one model, and without a learned noise.

    Arguments:
        predictions: The predictions of held-out rows by each model of the blend.
        weights: The weights of the models, positive.
        targets: The targets of these rows.
        row_weights: Weights of the rows.
    """
    if len(predictions) == 1 or not any(noise_of(each.likelihood) for each in predictions):
        return 0.0
    scores = np.array(
        [
            row_weights @ _log_mixture(predictions, weights, targets, log_factor) - (log_factor / PRIOR_STD) ** 2 / 2
            for log_factor in LOG_FACTORS
        ]
    )
    return float(LOG_FACTORS[scores.argmax()])


def _log_mixture(
    predictions: Sequence[Predictive],
    weights: Float[np.ndarray, " K"],
    targets: np.ndarray | Tensor,
    log_factor: float,
) -> Float[np.ndarray, " N"]:
    """The log-density of each row under the mixture, with all noise multiplied by a factor."""
    with torch.no_grad():
        densities = [_with_noise(each, log_factor).log_prob(targets) for each in predictions]
    found = torch.stack(densities, 1).double().nan_to_num(nan=IMPOSSIBLE).clamp_min(IMPOSSIBLE)
    return np.logaddexp.reduce(found.numpy() + np.log(weights), 1)


def _with_noise(prediction: Predictive, log_factor: float) -> Predictive:
    likelihood = copy.deepcopy(prediction.likelihood)
    multiply_noise(likelihood, log_factor)
    return replace(prediction, likelihood=likelihood)
