"""How good a prediction is, on the scale of the targets."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from sklearn.metrics import roc_auc_score
from torch import Tensor

from inducing.nn.likelihoods import Bernoulli, Categorical
from inducing.prediction.predictive import Predictive


def rmse(predictive: Predictive, y: Float[Tensor, "B *O"] | Int[Tensor, "B *O"] | Bool[Tensor, "B *O"]) -> float:
    """Root of the mean squared error of the predictive mean, over rows and outputs.

    For a Bernoulli likelihood it is the root of the Brier score.
    """
    if predictive.likelihood.support == "classes":
        raise TypeError("classes have no squared error; use accuracy or log_likelihood")
    mean = predictive.mean
    return float((mean - predictive.check_targets(y).to(mean.dtype)).square().mean().sqrt())


def log_likelihood(predictive: Predictive, y: Tensor) -> float:
    """Mean over rows of log p(y | x), in nats: a density for real targets, a probability for classes and counts."""
    return float(predictive.log_prob(y).mean())


def accuracy(predictive: Predictive, y: Tensor) -> float:
    """Fraction of rows whose most probable class is the true one; for a Bernoulli likelihood, of rows and outputs."""
    if isinstance(predictive.likelihood, Bernoulli):
        return float(((predictive.mean > 0.5) == predictive.check_targets(y).bool()).float().mean())
    if not isinstance(predictive.likelihood, Categorical):
        raise TypeError(
            f"accuracy is for classes, not for a {type(predictive.likelihood).__name__} likelihood; use rmse"
        )
    return float((predictive.mean.argmax(-1) == predictive.check_targets(y)).float().mean())


class CalibrationCurve(NamedTuple):
    """How often the most probable class is right, by how probable it is said to be.

    Arguments:
        confidence: Mean probability of the most probable class in each bin; NaN in an empty one.
        accuracy: Fraction of its rows where that class is the true one; NaN in an empty one.
        num_rows: Number of its rows.
    """

    confidence: Float[Tensor, " bins"]
    accuracy: Float[Tensor, " bins"]
    num_rows: Int[Tensor, " bins"]


def calibration_curve(predictive: Predictive, y: Int[Tensor, " B"], num_bins: int = 20) -> CalibrationCurve:
    """Compare confidence with accuracy in bins of equal width from 0 to 1."""
    if num_bins < 1:
        raise ValueError(f"num_bins must be at least 1, got {num_bins}")
    confidence, predicted = _probabilities(predictive).double().max(-1)
    right = (predicted == predictive.check_targets(y).reshape(-1).to(predicted.device)).double()
    bins = (confidence * num_bins).long().clamp(0, num_bins - 1)
    count = torch.bincount(bins, minlength=num_bins)
    return CalibrationCurve(
        torch.bincount(bins, confidence, num_bins) / count, torch.bincount(bins, right, num_bins) / count, count
    )


def expected_calibration_error(predictive: Predictive, y: Int[Tensor, " B"], num_bins: int = 20) -> float:
    """The mean over rows of |confidence - accuracy| of their bin (Guo et al., 2017): 0 is perfect."""
    curve = calibration_curve(predictive, y, num_bins)
    # without the empty bins, whose NaN is no error; that of a prediction is one, and stays
    filled = curve.num_rows > 0
    gaps = (curve.confidence - curve.accuracy).abs()[filled]
    return float((gaps * curve.num_rows[filled]).sum() / curve.num_rows.sum())


def entropy(predictive: Predictive) -> Float[Tensor, " B"]:
    """Entropy of the predicted class of each row, in nats: how unsure the prediction is, whatever the reason."""
    return torch.special.entr(_probabilities(predictive)).sum(-1)


def auroc(known: Float[Tensor, " N"], unknown: Float[Tensor, " M"]) -> float:
    """How well a score tells unknown inputs from known ones: P(score of an unknown > score of a known), ties half.

    With the `entropy` of predictions as the score, 1 says that all unknown inputs are met with more doubt.
    """
    labels = torch.cat([torch.zeros(len(known)), torch.ones(len(unknown))])
    return float(roc_auc_score(labels.numpy(), torch.cat([known, unknown]).cpu().numpy()))


def _probabilities(predictive: Predictive) -> Float[Tensor, "B K"]:
    """The probability of each class; two of them for a Bernoulli likelihood with one output."""
    mean = predictive.mean
    if isinstance(predictive.likelihood, Bernoulli) and mean.shape[1:] == (1,):
        return torch.cat([1 - mean, mean], -1)
    if not isinstance(predictive.likelihood, Categorical):
        raise TypeError(f"this is for one class a row, not for a {type(predictive.likelihood).__name__} likelihood")
    return mean
