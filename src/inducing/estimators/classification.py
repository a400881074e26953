"""Classification: labels of two or more classes."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float
from pandas.api.extensions import ExtensionArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d
from torch import Tensor

from inducing.arrays import as_tensor
from inducing.estimators.architectures import BNN, DeepGP
from inducing.estimators.base import NetworkEstimator
from inducing.estimators.state import labels_from_json, labels_to_json
from inducing.estimators.targets import CLASSIFICATION, Choice, choose
from inducing.nn.likelihoods import Likelihood
from inducing.prediction.predictive import Predictive
from inducing.saving import register
from inducing.saving.specifications import take


class Classification(ClassifierMixin, NetworkEstimator):
    """What classifiers offer."""

    likelihoods: ClassVar[dict[str, Choice]] = CLASSIFICATION
    classes_: np.ndarray

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Classification:
        """Fit the network to data.

        Arguments:
            X: Inputs (N, D): an array, or a pandas.DataFrame. Text columns of a table become one-hot by a `Schema`.
            y: Labels (N,), of any type.
            sample_weight: Multiplies the log-likelihood of each row: a row of weight 2 counts as two. Classes of which
                every row has weight zero are not there.
        """
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        y = column_or_1d(_as_labels(y), warn=True)
        missing = np.flatnonzero(pd.isna(y))
        if len(missing):
            # in the words that scikit-learn's checks look for
            raise ValueError(
                f"y contains NaN or None in {len(missing)} rows, the first of them row {missing[0]}; remove them"
            )
        check_classification_targets(y)
        check_consistent_length(X, y)
        self._fit(X, y, sample_weight)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each row."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(1)]

    def predict_proba(self, X: Any) -> Float[np.ndarray, "N C"]:
        """Probabilities of the classes in the order of ``classes_``: the mean over the posterior draws."""
        return self._collect(X, lambda predictive: predictive.mean)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draw labels, (N, n_samples). The rows of one sample come from one function."""
        labels = self._sample(X, n_samples, random_state).numpy().T
        return self.classes_[labels]

    def _choice(self) -> Choice:
        return choose(self.likelihood, self.likelihoods)

    def _learn_targets(self, y: Any, weights: Float[np.ndarray, " N"] | None) -> tuple[Tensor, int]:
        if self.warm_start and "network_" in self.__dict__:
            unknown = np.setdiff1d(y, self.classes_)
            if len(unknown):
                raise ValueError(
                    f"y holds the label {unknown.tolist()[0]!r}, but the fit that warm_start continues had the classes "
                    f"{self.classes_.tolist()}"
                )
            labels = np.searchsorted(self.classes_, y)
        else:
            self.classes_, labels = np.unique(y, return_inverse=True)
        return as_tensor(labels.astype(np.int64)), len(self.classes_)

    def _target_state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        return {"classes": labels_to_json(self.classes_)}, {}

    def _restore_targets(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> int:
        (classes,) = take(state, "targets", classes=dict)
        self.classes_ = labels_from_json(classes)
        return len(self.classes_)

    def _predictive(self, outputs: Float[Tensor, "S B O"], likelihood: Likelihood) -> Predictive:
        return Predictive(outputs, likelihood, seed=self.seed_)

    def _values(self, predictive: Predictive) -> Float[np.ndarray, "S B *O"]:
        return predictive.likelihood.mean(predictive.outputs).numpy()


def _as_labels(y: Any) -> Any:
    """Labels of pandas, and Python objects, as the narrowest type of NumPy; all else is returned as it is.

    scikit-learn would turn truth values and whole numbers of pandas into floats, which merges numbers above 2^53.
    """
    array = np.asarray(y, dtype=object) if isinstance(y, pd.Series | pd.Index | ExtensionArray) else y
    if not (isinstance(array, np.ndarray) and array.dtype == object and array.ndim == 1) or pd.isna(array).any():
        return array
    return pd.Series(array, dtype=object).infer_objects().to_numpy()


@register
class BNNClassifier(Classification, BNN):
    """Classification with a Bayesian neural network.

    Arguments:
        hidden: Widths of the hidden layers. All other arguments are those of `BNNRegressor`, but that "auto" is always
            the "global" posterior, with 100 inducing points, and that the KL weighs 0.1 in the "fast" recipe.
        likelihood: "categorical" ("auto"), for two classes as for more.

    Example:
        >>> import numpy as np, inducing
        >>> X = np.random.default_rng(0).normal(size=(50, 3))
        >>> model = inducing.BNNClassifier(max_steps=20, random_state=0).fit(X, np.where(X[:, 0] > 0, "yes", "no"))
        >>> model.classes_.tolist(), model.predict_proba(X[:5]).shape
        (['no', 'yes'], (5, 2))
    """


@register
class DeepGPClassifier(Classification, DeepGP):
    """Classification with a deep Gaussian process.

    Arguments:
        num_layers: Layers of Gaussian processes. All other arguments are those of `DeepGPRegressor`.
        likelihood: "categorical" ("auto"), for two classes as for more.

    Example:
        >>> import numpy as np, inducing
        >>> X = np.random.default_rng(0).normal(size=(50, 3))
        >>> model = inducing.DeepGPClassifier(max_steps=10, random_state=0).fit(X, X[:, 0] > 0)
        >>> model.predict(X[:5]).dtype
        dtype('bool')
    """
