"""How good a prediction is, on the scale of the targets."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from inducing.nn.likelihoods import Bernoulli, Categorical, Gaussian, HeteroscedasticGaussian
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
    # importing it takes as long as importing torch
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(labels.numpy(), torch.cat([known, unknown]).cpu().numpy()))


def _probabilities(predictive: Predictive) -> Float[Tensor, "B K"]:
    """The probability of each class; two of them for a Bernoulli likelihood with one output."""
    mean = predictive.mean
    if isinstance(predictive.likelihood, Bernoulli) and mean.shape[1:] == (1,):
        return torch.cat([1 - mean, mean], -1)
    if not isinstance(predictive.likelihood, Categorical):
        raise TypeError(f"this is for one class a row, not for a {type(predictive.likelihood).__name__} likelihood")
    return mean


def crps(predictive: Predictive, y: Tensor) -> float:
    """Continuous ranked probability score, the mean over rows and outputs: in the units of the targets, smaller is better.

    It is the integral over t of (P(Y <= t) - [y <= t])^2, and the absolute error of a prediction that is a point. For
    Gaussian noise it is exact for the mixture of draws; for others an unbiased estimate from one sample of each draw.
    """
    if predictive.likelihood.support == "classes":
        raise TypeError("classes have no order and no CRPS; use accuracy or log_likelihood")
    scale = torch.as_tensor(predictive.scale)
    y = predictive.check_targets(y).to(predictive.outputs.dtype)
    if not isinstance(predictive.likelihood, Gaussian | HeteroscedasticGaussian):
        samples = predictive.samples.sort(0).values
        number = len(samples)
        if number < 2:
            raise ValueError("an estimate of the CRPS needs at least two draws")
        # E|Y - y| - E|Y - Y'| / 2, the mean over pairs from the order: sum_i (2 i - S - 1) y_(i) / (S (S - 1))
        ranks = torch.arange(1, number + 1).to(samples).view(-1, *[1] * (samples.ndim - 1))
        spread = ((2 * ranks - number - 1) * samples).sum(0) / (number * (number - 1))
        return float(((samples - y).abs().mean(0) - spread).mean())
    means = predictive.location + scale * predictive.likelihood.mean(predictive.outputs)
    variances = scale**2 * predictive.likelihood.variance(predictive.outputs)
    # 1/S sum_s A(y - m_s, v_s) - 1/(2 S^2) sum_st A(m_s - m_t, v_s + v_t)
    error = _absolute_moment(y - means, variances).mean(0)
    pairs = zip(means, variances, strict=True)
    spread = torch.stack([_absolute_moment(m - means, v + variances).mean(0) for m, v in pairs]).mean(0)
    return float((error - spread / 2).detach().mean())


def coverage(predictive: Predictive, y: Tensor, level: float = 0.9) -> float:
    """Fraction of rows and outputs inside the central interval that should hold this share of them."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}; 0.9 is that of 90 % intervals")
    y = predictive.check_targets(y)
    low, high = predictive.quantile([(1 - level) / 2, (1 + level) / 2])
    return float(((low <= y) & (y <= high)).double().mean())


def _absolute_moment(mean: Tensor, variance: Tensor) -> Tensor:
    """E|X| of X ~ N(mean, variance)."""
    std = variance.sqrt()
    ratio = mean / std
    density = torch.exp(-ratio.square() / 2) / math.sqrt(2 * math.pi)
    return 2 * std * density + mean * torch.erf(ratio / math.sqrt(2))
