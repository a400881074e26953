"""The scores that a table of results shows, by name, for regression and for classes."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.prediction import metrics
from inducing.prediction.predictive import Predictive

COVERAGES = (50, 90, 95)
BINS = 10
# how many digits are worth printing
FORMATS = {"RMSE": ".4g", "log-likelihood": ".3f", "CRPS": ".4g", "accuracy": ".3f", "ECE": ".3f"}


SEVERAL_TARGETS = "With several targets RMSE and CRPS are in standard deviations of each, by the training rows."


def scores(predictive: Predictive, y: Tensor, units: Float[Tensor, " O"] | None = None) -> dict[str, float]:
    """Scores of predictions on the scale of the targets; for labels accuracy, log-likelihood and ECE in ten bins.

    Arguments:
        predictive: Predictions for test rows.
        y: Their targets (H, O), or labels (H,) as integers.
        units: What RMSE and CRPS of real targets are divided by; None leaves them in the units of the targets.
    """
    if predictive.likelihood.support == "classes":
        return {
            "accuracy": metrics.accuracy(predictive, y),
            "log-likelihood": metrics.log_likelihood(predictive, y),
            "ECE": metrics.expected_calibration_error(predictive, y, BINS),
        }
    measured, truth = predictive, y
    if units is not None and predictive.likelihood.support == "real":
        location, scale = torch.as_tensor(predictive.location), torch.as_tensor(predictive.scale)
        measured, truth = replace(predictive, location=location / units, scale=scale / units), y / units
    return {
        "RMSE": metrics.rmse(measured, truth),
        "log-likelihood": metrics.log_likelihood(predictive, y),
        "CRPS": metrics.crps(measured, truth),
        **{f"in {level} %": metrics.coverage(predictive, y, level / 100) for level in COVERAGES},
    }


def shown(name: str, value: float) -> str:
    """A score as text: shares of rows in per cent."""
    return f"{100 * value:.0f} %" if name.startswith("in ") else format(value, FORMATS[name])
