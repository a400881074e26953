"""A fitted estimator in a file that other programs run, from rows to predictions."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from sklearn.utils.validation import check_is_fitted

from inducing.estimators.targets import LabelTargets
from inducing.exporting import check_path, export_module
from inducing.linalg.noise import seeded
from inducing.prediction.module import WITH_QUANTILES, PredictionModule
from inducing.prediction.running import draw_functions

if TYPE_CHECKING:
    from inducing.estimators.predicting import PredictingEstimator

QUANTILES = (0.05, 0.5, 0.95)
EXAMPLE_ROWS = 8


def export_estimator(
    estimator: PredictingEstimator,
    path: str | os.PathLike[str],
    quantiles: Sequence[float] | None = None,
    targets: Sequence[str] | None = None,
) -> None:
    """Write the predictions of a fitted estimator as a function of the encoded rows. See `NetworkEstimator.export`."""
    check_is_fitted(estimator, "network_")
    check_path(path)
    likelihood = copy.deepcopy(estimator.likelihood_).requires_grad_(False).cpu()
    has_quantiles = isinstance(likelihood, WITH_QUANTILES)
    if quantiles is None:
        quantiles = QUANTILES if has_quantiles else ()
    elif len(quantiles) and not has_quantiles:
        raise ValueError(
            f"quantiles of a {type(likelihood).__name__} likelihood cannot be exported. Pass quantiles=(), and use the "
            "mean and standard deviation, or the probabilities of classes"
        )
    functions = draw_functions(estimator.predictor, estimator.likelihood_, estimator.n_samples, estimator.seed_).cpu()
    encoding, inputs = estimator.targets_, estimator.inputs_
    squeeze = not isinstance(encoding, LabelTargets) and encoding.ndim == 1
    scales = encoding.to_original_scale(likelihood)
    module = PredictionModule(inputs, functions, *scales, quantiles, squeeze, estimator._further_inputs)
    schema = estimator.schema_
    names = estimator.input_names if schema is None else list(schema.encoded_names)
    num_inputs = estimator.num_encoded
    noise = torch.randn(EXAMPLE_ROWS, num_inputs, dtype=torch.float64, generator=seeded(0, "example rows"))
    rows = inputs.mean[:num_inputs] + inputs.std[:num_inputs] * noise
    description: dict[str, Any] = {"inputs": names}
    if targets is not None:
        description["targets"] = list(targets)
    if isinstance(encoding, LabelTargets):
        description["classes"] = encoding.classes.tolist()
    if len(quantiles):
        description["quantiles"] = list(quantiles)
    export_module(module, rows, path, module.names, description)
