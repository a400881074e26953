"""What fitted estimators predict, whatever they are: numbers with intervals, or probabilities of classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import _check_sample_weight

from inducing.estimators.functions import Functions
from inducing.estimators.targets import LabelTargets, NumericTargets
from inducing.prediction.predictive import Predictive


class Predictions(ABC):
    """The predictions that regressors and classifiers share. They are those of functions drawn from the posterior."""

    targets_: NumericTargets | LabelTargets

    @abstractmethod
    def _draw(self, n_samples: int | None = None, seed: int | None = None) -> Functions:
        """Draw functions. By default, the functions that predictions use."""

    def predict_distribution(self, X: Any) -> Predictive:
        """The predictive distribution of each row: epistemic and aleatoric variance, densities, quantiles.

        It holds the outputs of all draws, ``n_samples`` numbers for each row and output.
        """
        return self._draw().predict(X)

    def sample_functions(self, n_samples: int = 1, random_state: Any = 0) -> Functions:
        """Draw functions from the posterior, which can be evaluated at any rows.

        A function gives the mean of the targets, without noise; for classes their probabilities.

        Arguments:
            n_samples: Number of functions.
            random_state: Seed of the draws. None: a new seed at each call.
        """
        is_seed = isinstance(random_state, int | np.integer)
        seed = random_state if is_seed else check_random_state(random_state).randint(2**31 - 1)
        return self._draw(n_samples, int(seed))


class PredictionsOfNumbers(RegressorMixin, Predictions):
    """The predictions of regressors."""

    encoding: ClassVar[type[NumericTargets] | type[LabelTargets]] = NumericTargets

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Predict the mean of the targets, and optionally its uncertainty.

        Arguments:
            X: Inputs as in `fit`.
            return_std: Return also the standard deviation of the targets, with their noise.
            return_cov: Return also the covariance of the targets of all rows, (N, N) or (N, N, O), as scikit-learn's
                GaussianProcessRegressor does. It is a Monte Carlo estimate from ``n_samples`` draws plus the noise on the
                diagonal: without noise its rank is below ``n_samples``, and the error of an entry is about
                1 / sqrt(n_samples) of the variances.
        """
        if return_std and return_cov:
            raise RuntimeError("at most one of return_std and return_cov can be True")
        if return_cov:
            return self._predict_covariance(X)
        if not return_std:
            return self._draw().collect(X, lambda predictive: predictive.mean)
        mean, std = self._draw().collect(X, lambda predictive: torch.stack([predictive.mean, predictive.stddev]), 1)
        return mean, std

    def predict_quantiles(self, X: Any, q: Any) -> np.ndarray:
        """Predict quantiles of the targets: shaped as `predict` for one number, (Q, N, ...) for several."""
        levels = np.atleast_1d(np.asarray(q, dtype=float)).tolist()
        found = self._draw().collect(X, lambda predictive: predictive.quantile(levels), 1)
        return found[0] if np.ndim(q) == 0 else found

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Predict the lower and upper ends of the central interval that holds the target with this probability."""
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must be between 0 and 1, got {coverage}. For a 90 % interval use 0.9.")
        low, high = self.predict_quantiles(X, [(1 - coverage) / 2, (1 + coverage) / 2])
        return low, high

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The coefficient of determination R^2, the mean over the targets. Missing targets (NaN) are left out."""
        y = self.encoding.check(y, type(self).__name__)
        truth, predicted = (values.reshape(len(y), -1) for values in (y, self.predict(X)))
        weights = _check_sample_weight(sample_weight, y)
        seen = ~np.isnan(truth)
        columns = zip(truth.T, predicted.T, seen.T, strict=True)
        return float(np.mean([r2_score(a[known], b[known], sample_weight=weights[known]) for a, b, known in columns]))

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draw targets with their noise, (N, n_samples) or (N, O, n_samples).

        The rows of one sample come from one function, so they have the correlations of the posterior.
        """
        samples = self.sample_functions(n_samples, random_state).predict(X).samples
        return np.moveaxis(self.targets_.decode(samples.numpy()), 0, -1)

    def _predict_covariance(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        predictive = self.predict_distribution(X)
        means = predictive.function_means
        centred = (means - means.mean(0)).numpy()
        # Cov[y] = Cov_s E[y | f_s] + diag(E_s V[y | f_s])
        covariance = np.einsum("sno,smo->nmo", centred, centred) / len(centred)
        rows = np.arange(len(covariance))
        covariance[rows, rows] += predictive.aleatoric.numpy()
        return self.targets_.decode(predictive.mean.numpy()), self.targets_.decode(covariance)


class PredictionsOfClasses(ClassifierMixin, Predictions):
    """The predictions of classifiers."""

    encoding: ClassVar[type[NumericTargets] | type[LabelTargets]] = LabelTargets

    @property
    def classes_(self) -> np.ndarray:
        """The labels in ascending order."""
        targets = self.targets_
        assert isinstance(targets, LabelTargets)
        return targets.classes

    def predict(self, X: Any) -> np.ndarray:
        """Predict the most probable label of each row."""
        most_probable = self.predict_proba(X).argmax(1)
        return self.classes_[most_probable]

    def predict_proba(self, X: Any) -> Float[np.ndarray, "N C"]:
        """Predict the probabilities of the classes, in the order of ``classes_``: the mean over the posterior draws."""
        return self._draw().collect(X, lambda predictive: predictive.mean)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draw labels, (N, n_samples). The rows of one sample come from one function."""
        samples = self.sample_functions(n_samples, random_state).predict(X).samples
        return self.classes_[samples.numpy().T]
