"""A fitted estimator in a file that other programs run, from rows to predictions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from inducing.estimators.functions import BlendedFunctions, SampledFunctions
from inducing.estimators.targets import LabelTargets
from inducing.exporting import check_path, export_module
from inducing.linalg.noise import seeded
from inducing.prediction.module import WITH_QUANTILES, ModelModule, PredictionModule

if TYPE_CHECKING:
    from inducing.estimators.auto import Auto
    from inducing.estimators.predicting import PredictingEstimator

QUANTILES = (0.05, 0.5, 0.95)
EXAMPLE_ROWS = 8


def export_estimator(
    estimator: PredictingEstimator | Auto,
    path: str | os.PathLike[str],
    quantiles: Sequence[float] | None = None,
    targets: Sequence[str] | None = None,
) -> None:
    """Write the predictions of a fitted estimator as a function of the encoded rows. See `NetworkEstimator.export`."""
    # also raises an error if it is not fitted
    drawn = estimator._draw()
    check_path(path)
    members = drawn.members if isinstance(drawn, BlendedFunctions) else (drawn,)
    encoding, first = drawn.targets, members[0].estimator
    if any(each.estimator.schema_ != first.schema_ for each in members):
        raise ValueError(
            "models that encode the columns differently cannot be exported as one file. Fit them with the same schema, "
            "e.g. AutoRegressor(schema=inducing.Schema.of(table))"
        )
    reason = _why_no_quantiles(members)
    if quantiles is None:
        quantiles = () if reason else QUANTILES
    elif len(quantiles) and reason:
        raise ValueError(
            f"quantiles of {reason} cannot be exported. Pass quantiles=(), and use the mean and standard deviation, or the "
            "probabilities of classes"
        )
    squeeze = not isinstance(encoding, LabelTargets) and encoding.ndim == 1
    module = PredictionModule([_module(each) for each in members], quantiles, squeeze)
    names = first.input_names if first.schema_ is None else list(first.schema_.encoded_names)
    num_inputs = first.num_encoded
    noise = torch.randn(EXAMPLE_ROWS, num_inputs, dtype=torch.float64, generator=seeded(0, "example rows"))
    rows = first.inputs_.mean[:num_inputs] + first.inputs_.std[:num_inputs] * noise
    description: dict[str, Any] = {"inputs": names}
    if targets is not None:
        description["targets"] = list(targets)
    if isinstance(encoding, LabelTargets):
        description["classes"] = encoding.classes.tolist()
    if len(quantiles):
        description["quantiles"] = list(quantiles)
    export_module(module, rows, path, module.names, description)


def _why_no_quantiles(members: Sequence[SampledFunctions]) -> str | None:
    """What the quantiles would be of, if they cannot be exported."""
    without = [type(each.likelihood).__name__ for each in members if not isinstance(each.likelihood, WITH_QUANTILES)]
    if without:
        return f"a {without[0]} likelihood"
    scales = {getattr(each.estimator.targets_, "is_log", ()) for each in members}
    return "a blend of models with and without a log scale" if len(scales) > 1 else None


def _module(drawn: SampledFunctions) -> ModelModule:
    estimator = drawn.estimator
    scales = estimator.targets_.to_original_scale(drawn.likelihood)
    return ModelModule(estimator.inputs_, drawn.functions.cpu(), *scales, estimator._further_inputs)
