"""What a fitted network predicts: functions drawn from its posterior, and files for other programs."""

from __future__ import annotations

import copy
import os
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.utils.validation import check_is_fitted

from inducing.checks import check_whole
from inducing.estimators.exporting import export_estimator
from inducing.estimators.functions import SampledFunctions
from inducing.estimators.predictions import Predictions
from inducing.estimators.state import FittedEstimator
from inducing.prediction.running import draw_functions


class PredictingEstimator(Predictions, FittedEstimator):
    """The predictions of one network."""

    # posterior draws in a prediction
    n_samples: int

    @abstractmethod
    def _encode(
        self, X: Any, reset: bool, y: np.ndarray | None = None, weights: Float[np.ndarray, " N"] | None = None
    ) -> Float[np.ndarray, "N D"]:
        """Convert arrays and tables to numbers, and check them against the inputs of the fit. Training rows have targets."""

    @abstractmethod
    def _width(self) -> int:
        """Approximate number of values that a prediction holds for each row and draw."""

    @property
    def built(self) -> str:
        """A description of the fitted network: its likelihood and its inducing points."""
        check_is_fitted(self, "network_")
        points, likelihood = self.network_.num_inducing, type(self.likelihood_).__name__
        if points is None:
            return f"{likelihood} likelihood, no global inducing points"
        kind = "all distinct rows, with an exact last layer" if self.network_.optimal_last is not None else "learned"
        return f"{likelihood} likelihood, {points} global inducing points: {kind}"

    def export(self, path: str | os.PathLike[str], quantiles: Sequence[float] | None = None) -> None:
        """Write the predictions to a file that other programs run: ONNX (.onnx), or `torch.export` (.pt2).

        The input ``x`` is (N, D) in float64: the columns of the fit, with text columns already encoded by the schema. The
        outputs are ``mean``, ``std``, ``aleatoric_std``, ``epistemic_std`` and ``quantiles``, in the shapes of `predict`
        and `predict_quantiles`; or ``probabilities`` in the order of ``classes_``. An ONNX file also holds the names of the
        inputs, the classes and the levels.

        Arguments:
            path: File to write.
            quantiles: Levels of the quantiles. Default: 0.05, 0.5 and 0.95, and none for classes and counts.
        """
        export_estimator(self, path, quantiles)

    def _draw(self, n_samples: int | None = None, seed: int | None = None) -> SampledFunctions:
        check_is_fitted(self, "network_")
        n_samples = self.n_samples if n_samples is None else check_whole("n_samples", n_samples)
        seed = self.seed_ if seed is None else seed
        likelihood = copy.deepcopy(self.likelihood_).requires_grad_(False).cpu()
        functions = draw_functions(self.predictor, self.likelihood_, n_samples, seed)
        # another fit of the estimator leaves the functions as they are
        return SampledFunctions(copy.copy(self), functions, likelihood, n_samples, seed)
