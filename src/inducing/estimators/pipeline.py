"""Pipelines whose last step is an estimator of this package, and scores for scikit-learn's model selection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline as SklearnPipeline
from sklearn.utils.metaestimators import available_if

from inducing.arrays import as_tensor
from inducing.estimators.targets import LabelTargets
from inducing.prediction import metrics
from inducing.prediction.predictive import Predictive

Method = TypeVar("Method", bound=Callable[..., Any])


def _has(method: str) -> Callable[[Method], Method]:
    """Decorator of a method that exists if the last step has it."""
    return cast(Callable[[Method], Method], available_if(lambda self: hasattr(self.steps[-1][1], method)))


class Pipeline(SklearnPipeline):
    """scikit-learn's Pipeline with the predictions that only estimators of this package have.

    Rows are transformed by all steps but the last, as in `predict`.

    Example:
        >>> import numpy as np, inducing
        >>> from sklearn.preprocessing import QuantileTransformer
        >>> X = np.random.default_rng(0).normal(size=(50, 2))
        >>> last = inducing.BNNRegressor(max_steps=10, random_state=0)
        >>> model = inducing.Pipeline([("scale", QuantileTransformer(n_quantiles=10)), ("model", last)]).fit(X, X[:, 0])
        >>> low, high = model.predict_interval(X[:3], coverage=0.5)
        >>> low.shape
        (3,)
    """

    @_has("predict_distribution")
    def predict_distribution(self, X: Any) -> Predictive:
        """The predictive distribution of each row."""
        return self._last.predict_distribution(self._transformed(X))

    @_has("predict_interval")
    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """The lower and upper ends of the central interval that holds the target with this probability."""
        return self._last.predict_interval(self._transformed(X), coverage)

    @_has("predict_quantiles")
    def predict_quantiles(self, X: Any, q: Any) -> np.ndarray:
        """Quantiles of the targets."""
        return self._last.predict_quantiles(self._transformed(X), q)

    @_has("sample_y")
    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draw targets with their noise."""
        return self._last.sample_y(self._transformed(X), n_samples, random_state)

    @property
    def _last(self) -> Any:
        return self.steps[-1][1]

    def _transformed(self, X: Any) -> Any:
        return self[:-1].transform(X) if len(self.steps) > 1 else X


def log_likelihood_score(estimator: Any, X: Any, y: Any) -> float:
    """The mean log-likelihood of rows, for ``scoring`` in scikit-learn: higher is better.

    Example:
        >>> import numpy as np, inducing
        >>> from sklearn.model_selection import GridSearchCV
        >>> X = np.random.default_rng(0).normal(size=(40, 2))
        >>> model = inducing.BNNRegressor(max_steps=10, random_state=0)
        >>> search = GridSearchCV(model, {"prior": ["neal", "scale"]}, scoring=inducing.log_likelihood_score, cv=2)
        >>> search.fit(X, X[:, 0]).best_params_["prior"] in ("neal", "scale")
        True
    """
    return metrics.log_likelihood(estimator.predict_distribution(X), _targets(estimator, y))


def crps_score(estimator: Any, X: Any, y: Any) -> float:
    """Minus the continuous ranked probability score of rows, for ``scoring`` in scikit-learn: higher is better."""
    if is_classifier(estimator):
        raise ValueError("the CRPS is for numbers. Use log_likelihood_score for classes")
    return -metrics.crps(estimator.predict_distribution(X), _targets(estimator, y))


def _targets(estimator: Any, y: Any) -> Any:
    """Targets in the shape of the predictions."""
    if is_classifier(estimator):
        return LabelTargets(estimator.classes_).encode(np.asarray(y))
    return as_tensor(np.asarray(y, dtype=float).reshape(len(y), -1))
