"""The better one of several estimators, chosen by the log-likelihood of held-out rows.

The rows are held out of the training rows, and return at the end: the chosen estimator is fitted again to all rows, unless
they are so few that it would hardly change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from inducing.checks import check_kind
from inducing.estimators.base import NetworkEstimator
from inducing.estimators.classification import BNNClassifier, DeepGPClassifier
from inducing.estimators.functions import SampledFunctions
from inducing.estimators.regression import BNNRegressor, DeepGPRegressor
from inducing.estimators.rows import hold_out_rows
from inducing.estimators.stacking import TreeBNNClassifier, TreeBNNRegressor
from inducing.estimators.targets import LabelTargets
from inducing.prediction.predictive import Predictive
from inducing.tables.schema import EncodedTable

# held-out rows: a fifth, at most as many as a comparison needs
HELD_OUT_SHARE, MOST_HELD_OUT = 0.2, 2000
# a smaller share of held-out rows is not worth a second fit
SHARE_TO_RETURN = 0.05
# with fewer, no row would be held out
FEWEST_ROWS = 3


class Auto(BaseEstimator):
    """What the automatic choice of an estimator shares for regression and classification."""

    defaults: ClassVar[Mapping[str, type[NetworkEstimator]]]
    estimator_: Any

    def __init__(
        self,
        candidates: Mapping[str, NetworkEstimator] | None = None,
        *,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.candidates, self.random_state, self.verbose = candidates, random_state, verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit all candidates to a part of the rows, and the best one to all rows.

        Arguments:
            X: Inputs (N, D): an array or a pandas.DataFrame.
            y: Targets.
            sample_weight: Weights of the rows.
        """
        first = next(iter(self.defaults.values())).__name__
        example = f"{{'bnn': {first}()}}"
        if self.candidates is not None:
            check_kind("candidates", self.candidates, Mapping, f"estimators by name, e.g. {example}")
        if self.candidates is not None and not self.candidates:
            raise ValueError(f"candidates is empty. Leave it out, or pass estimators by name, e.g. {example}")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        settings = {"random_state": seed, "verbose": self.verbose}
        given = self.candidates or {name: cls() for name, cls in self.defaults.items()}
        candidates = {name: clone(each).set_params(**settings) for name, each in given.items()}
        weights = _check_sample_weight(sample_weight, X)
        rows = np.flatnonzero(weights > 0)
        if not (num_rows := len(rows)):
            raise ValueError("all sample weights are zero")
        if num_rows < FEWEST_ROWS:
            raise ValueError(
                f"{num_rows} sample(s) are too few to hold some out: at least {FEWEST_ROWS} are required. "
                f"Fit one estimator, e.g. {first}"
            )
        number = min(MOST_HELD_OUT, round(HELD_OUT_SHARE * num_rows))
        train, held_out = (rows[part] for part in hold_out_rows(self._groups(y)[rows], number, seed))
        if not len(held_out):
            raise ValueError("each class has only one row, so no row can be held out. For numbers, use AutoRegressor")
        self.scores_: dict[str, float] = {}
        for name, candidate in candidates.items():
            candidate.fit(_take(X, train), _take(y, train), weights[train])
            self.scores_[name] = self._score(candidate, _take(X, held_out), _take(y, held_out), weights[held_out])
        self.chosen_ = max(self.scores_, key=lambda name: self.scores_[name])
        self.estimator_ = candidates[self.chosen_]
        if len(held_out) > SHARE_TO_RETURN * num_rows:
            self.estimator_ = clone(self.estimator_).fit(X, y, sample_weight)
        self.n_features_in_ = self.estimator_.n_features_in_
        return self

    def predict(self, X: Any, **settings: Any) -> Any:
        """Predict the targets, as the chosen estimator does."""
        return self._chosen().predict(X, **settings)

    def predict_distribution(self, X: Any) -> Predictive:
        """The predictive distribution of each row."""
        return self._chosen().predict_distribution(X)

    def sample_functions(self, n_samples: int = 1, random_state: Any = 0) -> SampledFunctions:
        """Draw functions from the posterior of the chosen estimator."""
        return self._chosen().sample_functions(n_samples, random_state)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draw targets with their noise."""
        return self._chosen().sample_y(X, n_samples, random_state)

    def update(self, X: Any, y: Any, num_steps: int | None = None) -> Self:
        """Condition the chosen estimator on new rows, without a new fit. See its own `update`."""
        self._chosen().update(X, y, num_steps)
        return self

    def _chosen(self) -> Any:
        check_is_fitted(self, "estimator_")
        return self.estimator_

    def _groups(self, y: Any) -> np.ndarray:
        """The group of each row. Some rows of each group are held out."""
        return np.zeros(len(y))

    def _score(self, candidate: Any, X: Any, y: Any, weights: np.ndarray) -> float:
        """The mean log-likelihood of held-out rows with weights."""
        found = candidate.predict_distribution(X).log_prob(np.asarray(y, dtype=float).reshape(len(y), -1))
        return float(np.average(found.numpy(), weights=weights))


class AutoRegressor(RegressorMixin, Auto):
    """Regression with the model that predicts held-out rows best: a network, a deep Gaussian process, a network with trees.

    Save the chosen estimator: ``inducing.save(model.estimator_, path)``.

    Arguments:
        candidates: Estimators to choose from, by name. Default: `BNNRegressor` ("bnn"), `DeepGPRegressor` ("dgp") and
            `TreeBNNRegressor` ("trees") with default settings.
        random_state: Seed of the held-out rows and of all fits.
        verbose: Whether to show progress bars.

    Attributes: ``estimator_`` (the chosen estimator, fitted), ``chosen_`` (its name), ``scores_`` (the mean log-likelihood
    of held-out rows by name).

    Example:
        >>> import numpy as np, inducing
        >>> X = np.random.default_rng(0).normal(size=(60, 2))
        >>> small = {"wide": inducing.BNNRegressor([20], max_steps=20), "deep": inducing.BNNRegressor([5, 5], max_steps=20)}
        >>> model = inducing.AutoRegressor(small, random_state=0).fit(X, X[:, 0] ** 2)
        >>> model.chosen_ in small, model.predict(X[:3]).shape
        (True, (3,))
    """

    defaults: ClassVar = {"bnn": BNNRegressor, "dgp": DeepGPRegressor, "trees": TreeBNNRegressor}

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The coefficient of determination R^2, the mean over the targets. Missing targets (NaN) are left out."""
        return float(self._chosen().score(X, y, sample_weight))

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Predict the lower and upper ends of the central interval that holds the target with this probability."""
        low, high = self._chosen().predict_interval(X, coverage)
        return low, high

    def predict_quantiles(self, X: Any, q: Any) -> np.ndarray:
        """Predict quantiles of the targets."""
        return self._chosen().predict_quantiles(X, q)


class AutoClassifier(ClassifierMixin, Auto):
    """Classification with the model that predicts held-out rows best, of the same kinds.

    The arguments and attributes are those of `AutoRegressor`.

    Example:
        >>> import numpy as np, inducing
        >>> X = np.random.default_rng(0).normal(size=(60, 2))
        >>> small = {"bnn": inducing.BNNClassifier([5], max_steps=10), "dgp": inducing.DeepGPClassifier(max_steps=5)}
        >>> model = inducing.AutoClassifier(small, random_state=0).fit(X, X[:, 0] > 0)
        >>> model.predict_proba(X[:3]).shape
        (3, 2)
    """

    defaults: ClassVar = {"bnn": BNNClassifier, "dgp": DeepGPClassifier, "trees": TreeBNNClassifier}

    @property
    def classes_(self) -> np.ndarray:
        """The labels in ascending order."""
        return self._chosen().classes_

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predict the probabilities of the classes, in the order of ``classes_``."""
        return self._chosen().predict_proba(X)

    def _groups(self, y: Any) -> np.ndarray:
        return LabelTargets.check(y, type(self).__name__)

    def _score(self, candidate: Any, X: Any, y: Any, weights: np.ndarray) -> float:
        labels = LabelTargets(candidate.classes_).encode(np.asarray(y))
        return float(np.average(candidate.predict_distribution(X).log_prob(labels).numpy(), weights=weights))


def _take(values: Any, rows: np.ndarray) -> Any:
    """Some rows of an array or a table."""
    return values.take(rows) if isinstance(values, EncodedTable) else _safe_indexing(values, rows)
