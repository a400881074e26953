"""Metrics of predictions, on the original scale of the targets."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from inducing.checks import check_finite
from inducing.nn.likelihoods import Bernoulli, Gaussian, HeteroscedasticGaussian
from inducing.prediction.predictive import Predictive

# bins of predicted probability in calibration curves and calibration errors, as in the paper
NUM_BINS = 20


def rmse(
    predictive: Predictive,
    y: Float[Tensor, "B *O"] | Int[Tensor, "B *O"] | Bool[Tensor, "B *O"],
    units: Float[Tensor, " O"] | float = 1.0,
) -> float:
    """Root mean squared error of the predictive mean, over rows and outputs. Missing targets (NaN) are left out.

    For a Bernoulli likelihood it is the root of the Brier score. The errors of each output are divided by its unit.
    """
    if predictive.likelihood.support == "classes":
        raise TypeError("rmse is not defined for classes. Use accuracy or log_likelihood")
    mean = predictive.mean
    y = predictive.check_targets(y).to(mean.dtype)
    return float(_mean_of_observed(((mean - y) / units).square(), y).sqrt())


def log_likelihood(predictive: Predictive, y: Tensor) -> float:
    """Mean over rows of log p(y | x), in nats: log-density for real targets, log-probability for classes and counts."""
    return float(predictive.log_prob(y).mean())


def accuracy(predictive: Predictive, y: Tensor) -> float:
    """Fraction of rows whose most probable class is correct. For a Bernoulli likelihood, all outputs of a row count."""
    if isinstance(predictive.likelihood, Bernoulli):
        return float(((predictive.mean > 0.5) == predictive.check_targets(y).bool()).float().mean())
    if predictive.likelihood.support != "classes":
        raise TypeError(
            f"accuracy is for classes, not for a {type(predictive.likelihood).__name__} likelihood. Use rmse"
        )
    return float((predictive.mean.argmax(-1) == predictive.check_targets(y)).float().mean())


class CalibrationCurve(NamedTuple):
    """Accuracy of the most probable class against its predicted probability, in bins.

    Arguments:
        confidence: Mean probability of the most probable class in each bin. NaN in an empty bin.
        accuracy: Fraction of rows in each bin whose most probable class is correct. NaN in an empty bin.
        num_rows: Number of rows in each bin.
    """

    confidence: Float[Tensor, " bins"]
    accuracy: Float[Tensor, " bins"]
    num_rows: Int[Tensor, " bins"]


def calibration_curve(predictive: Predictive, y: Int[Tensor, " B"], num_bins: int = NUM_BINS) -> CalibrationCurve:
    """Return confidence and accuracy in bins of equal width from 0 to 1."""
    if num_bins < 1:
        raise ValueError(f"num_bins must be at least 1, got {num_bins}")
    confidence, predicted = _probabilities(predictive).double().max(-1)
    right = (predicted == predictive.check_targets(y).reshape(-1).to(predicted.device)).double()
    bins = (confidence * num_bins).long().clamp(0, num_bins - 1)
    count = torch.bincount(bins, minlength=num_bins)
    return CalibrationCurve(
        torch.bincount(bins, confidence, num_bins) / count, torch.bincount(bins, right, num_bins) / count, count
    )


def expected_calibration_error(predictive: Predictive, y: Int[Tensor, " B"], num_bins: int = NUM_BINS) -> float:
    """Expected calibration error (Guo et al., 2017): the mean over rows of |confidence - accuracy| of their bin."""
    curve = calibration_curve(predictive, y, num_bins)
    # empty bins are NaN and are left out; NaN predictions are not left out
    filled = curve.num_rows > 0
    gaps = (curve.confidence - curve.accuracy).abs()[filled]
    return float((gaps * curve.num_rows[filled]).sum() / curve.num_rows.sum())


def entropy(predictive: Predictive) -> Float[Tensor, " B"]:
    """Entropy of the predicted class probabilities of each row, in nats."""
    return torch.special.entr(_probabilities(predictive)).sum(-1)


def auroc(known: Float[Tensor, " N"], unknown: Float[Tensor, " M"]) -> float:
    """Area under the ROC curve of a score that should be larger for unknown inputs than for known ones.

    It is P(score of an unknown input > score of a known input), where ties count one half. For example, the score is the
    `entropy` of predictions, and the unknown inputs are images of another dataset.
    """
    for name, scores in (("known", known), ("unknown", unknown)):
        check_finite(name, scores)
    ordered = known.sort().values
    smaller, not_larger = torch.searchsorted(ordered, unknown), torch.searchsorted(ordered, unknown, right=True)
    return float((smaller + not_larger).double().mean() / (2 * len(known)))


def _probabilities(predictive: Predictive) -> Float[Tensor, "B K"]:
    """Return class probabilities. For a Bernoulli likelihood with one output, return those of both classes."""
    mean = predictive.mean
    if isinstance(predictive.likelihood, Bernoulli) and mean.shape[1:] == (1,):
        return torch.cat([1 - mean, mean], -1)
    if predictive.likelihood.support != "classes":
        raise TypeError(
            f"this metric is for one class per row, not for a {type(predictive.likelihood).__name__} likelihood"
        )
    return mean


def crps(predictive: Predictive, y: Tensor, units: Float[Tensor, " O"] | float = 1.0) -> float:
    """Continuous ranked probability score, averaged over rows and outputs, in the units of the targets. Smaller is better.

    It is the integral over t of (P(Y <= t) - [y <= t])^2. For a point prediction it equals the absolute error. For Gaussian
    noise it is computed exactly for the mixture of draws. For other noise it is an unbiased estimate from one sample of each
    of the S draws. For a blend of models the estimate is too small by a fraction of about 1 / S. Missing targets (NaN) are
    left out. The score of each output is divided by its unit.
    """
    if predictive.likelihood.support == "classes":
        raise TypeError("the CRPS is not defined for classes. Use accuracy or log_likelihood")
    y = predictive.check_targets(y).to(predictive.outputs.dtype)
    # E|Y - y| - E|Y - Y'| / 2
    score = absolute_error(predictive, y) - absolute_difference(predictive) / 2
    return float(_mean_of_observed(score / units, y).detach())


def absolute_error(predictive: Predictive, y: Float[Tensor, "B *O"]) -> Float[Tensor, "B *O"]:
    """Return E|Y - y| of each target: exact for Gaussian noise, else estimated from one sample of each draw."""
    if not isinstance(predictive.likelihood, Gaussian | HeteroscedasticGaussian):
        return (predictive.samples - y).abs().mean(0)
    variances = predictive.scale**2 * predictive.likelihood.variance(predictive.outputs)
    # 1/S sum_s A(y - m_s, v_s)
    return _absolute_moment(y - predictive.function_means, variances).mean(0)


def absolute_difference(predictive: Predictive) -> Float[Tensor, "B *O"]:
    """Return E|Y - Y'| of two independent draws of each target, in the same way as `absolute_error`."""
    if not isinstance(predictive.likelihood, Gaussian | HeteroscedasticGaussian):
        samples = predictive.samples.sort(0).values
        number = len(samples)
        if number < 2:
            raise ValueError(f"an estimate of the CRPS needs at least two draws, got {number}")
        # with sorted samples, E|Y - Y'| / 2 = sum_i (2 i - S - 1) y_(i) / (S (S - 1))
        ranks = torch.arange(1, number + 1).to(samples).view(-1, *[1] * (samples.ndim - 1))
        return 2 * ((2 * ranks - number - 1) * samples).sum(0) / (number * (number - 1))
    means = predictive.function_means
    variances = predictive.scale**2 * predictive.likelihood.variance(predictive.outputs)
    # 1/S^2 sum_st A(m_s - m_t, v_s + v_t)
    pairs = zip(means, variances, strict=True)
    return torch.stack([_absolute_moment(m - means, v + variances).mean(0) for m, v in pairs]).mean(0)


def coverage(predictive: Predictive, y: Tensor, level: float = 0.9) -> float:
    """Fraction of targets inside the central predictive interval of probability ``level``. Missing targets are left out."""
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, e.g. 0.9 for 90 % intervals, got {level}")
    y = predictive.check_targets(y)
    low, high = predictive.quantile([(1 - level) / 2, (1 + level) / 2])
    return float(_mean_of_observed(((low <= y) & (y <= high)).double(), y))


def _mean_of_observed(values: Tensor, y: Tensor) -> Tensor:
    """Return the mean over the targets that are not missing. Predictions that are NaN are not left out."""
    return values[~y.isnan()].mean()


def _absolute_moment(mean: Tensor, variance: Tensor) -> Tensor:
    """Return E|X| of X ~ N(mean, variance)."""
    std = variance.sqrt()
    ratio = mean / std
    density = torch.exp(-ratio.square() / 2) / math.sqrt(2 * math.pi)
    return 2 * std * density + mean * torch.erf(ratio / math.sqrt(2))
