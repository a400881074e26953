"""Classification: labels of two or more classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from jaxtyping import Float
from sklearn.utils.class_weight import compute_sample_weight

from inducing.estimators.architectures import BNN, DeepGP
from inducing.estimators.base import NetworkEstimator, check_eval_set
from inducing.estimators.likelihoods import CLASSIFICATION, Choice
from inducing.estimators.predictions import PredictionsOfClasses
from inducing.estimators.targets import LabelTargets, label_effect_targets
from inducing.inference.callbacks import Callback
from inducing.saving import register


@dataclass(eq=False, repr=False, kw_only=True)
class Classifier(PredictionsOfClasses, NetworkEstimator):
    """The methods of classifiers."""

    class_weight: Any = None

    likelihoods: ClassVar[dict[str, Choice]] = CLASSIFICATION
    auto_likelihood: ClassVar[str] = "categorical"

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        eval_set: tuple[Any, ...] | None = None,
        callbacks: Callback | Sequence[Callback] = (),
    ) -> Self:
        if self.class_weight is not None and y is not None:
            by_class = self.class_weight if isinstance(self.class_weight, str) else dict(self.class_weight)
            labels = LabelTargets.check(y, type(self).__name__)
            weights = compute_sample_weight(by_class, labels)
            sample_weight = weights if sample_weight is None else weights * np.asarray(sample_weight)
            if eval_set is not None:
                eval_set = self._weigh(check_eval_set(eval_set), dict(zip(labels.tolist(), weights, strict=True)))
        return super().fit(X, y, sample_weight, eval_set, callbacks)

    fit.__doc__ = NetworkEstimator.fit.__doc__

    def _weigh(self, eval_set: tuple[Any, ...], by_class: dict[Any, float]) -> tuple[Any, Any, np.ndarray]:
        """Held-out rows with the weights that the training rows of their classes have."""
        x, y, *given = eval_set
        weights = np.array([by_class.get(label, 1.0) for label in np.asarray(y).tolist()])
        return x, y, weights * np.asarray(given[0]) if given else weights

    def _learn_targets(self, y: np.ndarray, weights: Float[np.ndarray, " N"], choice: Choice) -> LabelTargets:
        return LabelTargets.fit(y)

    def _effect_targets(self, y: np.ndarray, weights: Float[np.ndarray, " N"] | None = None) -> pd.DataFrame:
        return label_effect_targets(y)


@register
@dataclass(eq=False, repr=False)
class BNNClassifier(Classifier, BNN):
    """Classification with a Bayesian neural network.

    Arguments:
        hidden: Widths of the hidden layers. The other arguments are those of `BNNRegressor`, except that "auto" is always
            the "global" posterior, and that up to 1,000 rows the KL has weight 0.1 in the recipe "fast".
        likelihood: "categorical" (default), for two or more classes.
        class_weight: Weight of the rows of each class, {label: weight}, or "balanced" for equal total weights of the
            classes. It multiplies ``sample_weight``. Predicted probabilities include these weights.

    Example:
        >>> import numpy as np, inducing
        >>> X = np.random.default_rng(0).normal(size=(50, 3))
        >>> y = np.where(X[:, 0] > 0, "yes", "no")
        >>> model = inducing.BNNClassifier(max_steps=20, random_state=0).fit(X, y)
        >>> model.classes_.tolist(), model.predict_proba(X[:5]).shape
        (['no', 'yes'], (5, 2))
    """


@register
@dataclass(eq=False, repr=False)
class DeepGPClassifier(Classifier, DeepGP):
    """Classification with a deep Gaussian process.

    Arguments:
        num_layers: Number of layers. The other arguments are those of `DeepGPRegressor`.
        likelihood: "categorical" (default), for two or more classes.
        class_weight: As in `BNNClassifier`.

    Example:
        >>> import numpy as np, inducing
        >>> X = np.random.default_rng(0).normal(size=(50, 3))
        >>> model = inducing.DeepGPClassifier(max_steps=10, random_state=0)
        >>> model = model.fit(X, X[:, 0] > 0)
        >>> model.predict(X[:5]).dtype
        dtype('bool')
    """
