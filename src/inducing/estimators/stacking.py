"""Neural networks with the predictions of boosted trees as further inputs (stacking).

Trees find steps and interactions of few inputs that a network needs many rows for, and the network adds what is smooth,
and the error bars. In training, each row has the prediction of trees that were fitted without it. Trees that
saw its target would look far more accurate than they are for new rows. Of a row that occurs several times one copy is left
out at a time: new rows, too, may be equal to training rows.

References:
    Wolpert, Stacked generalization (1992).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import nn

from inducing.estimators.architectures import BNN
from inducing.estimators.classification import Classifier
from inducing.estimators.regression import Regressor
from inducing.estimators.rows import DistinctRows
from inducing.estimators.trees import BoostedTrees, fit_trees
from inducing.saving import register
from inducing.saving.registry import Tensors


@dataclass(eq=False, repr=False)
class TreeBNN(BNN):
    """A Bayesian neural network whose last inputs are predictions of boosted trees."""

    def _merge_rows(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> DistinctRows:
        distinct = super()._merge_rows(X, y, sample_weight, reset)
        if reset:
            # real targets, or whether a row has each class
            targets = self._effect_targets(distinct.targets, distinct.weights).to_numpy()
            self.trees_, predicted = fit_trees(distinct.inputs, targets, distinct.weights, distinct.copies)
        else:
            # a network that continues keeps its trees
            predicted = self.trees_.predict(distinct.inputs)
        return distinct._replace(inputs=np.column_stack([distinct.inputs, predicted]))

    def _encode(
        self, X: Any, reset: bool, y: np.ndarray | None = None, weights: Float[np.ndarray, " N"] | None = None
    ) -> Float[np.ndarray, "N D"]:
        rows = super()._encode(X, reset, y, weights)
        # training rows get their predictions after they are merged
        return rows if y is not None else np.column_stack([rows, self.trees_.predict(rows)])

    @property
    def _further_inputs(self) -> nn.Module | None:
        return self.trees_

    def _further_tensors(self) -> Tensors:
        return self.trees_.to_tensors()

    def _restore_further(self, tensors: Tensors, num_inputs: int) -> int:
        self.trees_ = BoostedTrees.from_tensors(tensors, num_inputs)
        return num_inputs + self.trees_.num_outputs


@register
@dataclass(eq=False, repr=False)
class TreeBNNRegressor(Regressor, TreeBNN):
    """Regression with a Bayesian neural network that also has the predictions of boosted trees as inputs.

    It is meant for tables with steps and many interactions.
    `AutoRegressor` compares them. The trees are scikit-learn's HistGradientBoostingRegressor with default settings.

    Arguments:
        hidden: Widths of the hidden layers. For the other arguments see `BNNRegressor`.

    Example:
        >>> import numpy as np, inducing
        >>> X = np.random.default_rng(0).normal(size=(50, 3))
        >>> model = inducing.TreeBNNRegressor(max_steps=20, random_state=0).fit(X, np.sign(X[:, 0]))
        >>> low, high = model.predict_interval(X[:5])
        >>> low.shape
        (5,)
    """


@register
@dataclass(eq=False, repr=False)
class TreeBNNClassifier(Classifier, TreeBNN):
    """Classification with a Bayesian neural network that also has the predictions of boosted trees as inputs.

    Arguments:
        hidden: Widths of the hidden layers. For the other arguments see `BNNClassifier`.

    Example:
        >>> import numpy as np, inducing
        >>> X = np.random.default_rng(0).normal(size=(50, 3))
        >>> model = inducing.TreeBNNClassifier(max_steps=20, random_state=0).fit(X, X[:, 0] > 0)
        >>> model.predict_proba(X[:5]).shape
        (5, 2)
    """
