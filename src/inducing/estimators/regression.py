"""Regression: real targets and counts, one or several for each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float
from sklearn.utils import Tags

from inducing.estimators.architectures import BNN, DeepGP
from inducing.estimators.base import NetworkEstimator, is_auto
from inducing.estimators.likelihoods import COUNTS, REGRESSION, Choice
from inducing.estimators.predictions import PredictionsOfNumbers
from inducing.estimators.targets import NumericTargets, choose_log_scale, numeric_effect_targets
from inducing.saving import register


@dataclass(eq=False, repr=False, kw_only=True)
class Regressor(PredictionsOfNumbers, NetworkEstimator):
    """The methods of regressors."""

    target_transform: str = "none"

    likelihoods: ClassVar[dict[str, Choice]] = REGRESSION

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.likelihood in COUNTS
        return tags

    def _choice(self, y: np.ndarray, weights: Float[np.ndarray, " N"], num_rows: int) -> Choice:
        choice = super()._choice(y, weights, num_rows)
        is_free = is_auto(self.likelihood) and self._optimal_posterior() is None
        # The mean of exp(z) is infinite for Student-t noise. With a variance that depends on the inputs, it was 13 times too
        # large at a row with an outlier, which made the RMSE of a table of 20,000 rows 141 instead of 6.6.
        return REGRESSION["gaussian"] if is_free and any(self._choose_log_scale(y, weights)) else choice

    def _learn_targets(self, y: np.ndarray, weights: Float[np.ndarray, " N"], choice: Choice) -> NumericTargets:
        is_real = choice.likelihood.support == "real"
        return NumericTargets.fit(y, weights, is_real, self._choose_log_scale(y, weights))

    def _effect_targets(self, y: np.ndarray, weights: Float[np.ndarray, " N"] | None = None) -> pd.DataFrame:
        return numeric_effect_targets(y, self._choose_log_scale(y, weights), weights=weights)

    def _choose_log_scale(self, y: np.ndarray, weights: Float[np.ndarray, " N"] | None = None) -> tuple[bool, ...]:
        return choose_log_scale(self.target_transform, self.likelihood, y, weights)


@register
@dataclass(eq=False, repr=False)
class BNNRegressor(Regressor, BNN):
    """Regression with a Bayesian neural network.

    Inputs and targets are standardised internally, and inducing points are chosen from the rows.

    Arguments:
        hidden: Widths of the hidden layers. Default ("auto"): (50, 50), or (100, 100) if there are more than 1,000 rows.
        posterior: A posterior or its name, as in `inducing.models.mlp`: "global", "local", "factorised", ... Default
            ("auto"): "global". With up to 1,000 distinct rows, Gaussian noise of either kind, ``num_inducing="auto"`` and
            no ``warm_start``, the last layer is an `OptimalInducing`: exact given the noise and the layers below. All rows
            are then inducing points, and part of the fitted model and its file.
        prior: A prior or its name. "scale" learns the scale of the weights.
        num_inducing: Number of inducing points, at most that of distinct rows. Default ("auto"): 100, or all rows as above,
            or 200 if training has stages.
        likelihood: "gaussian", noise with constant variance; "heteroscedastic", Gaussian noise that depends on the inputs;
            "student-t" and "heteroscedastic-student-t" for outliers; "poisson" or "negative-binomial" for counts. Default
            ("auto"): "heteroscedastic", or "heteroscedastic-student-t" if training has stages, or "gaussian" if the
            posterior is "...->optimal" or targets are on a log scale.
        target_transform: "log" models the logarithm of positive targets; predictions, with their densities and intervals,
            are those of the targets themselves (a mixture of log-normal distributions). "auto" chooses it for each target
            that is positive and has a skewness above 1, if its logarithm has less than half of that. Default: "none".
        recipe: "fast", "paper", or a `Recipe`. "fast" has fewer samples and steps than in `inducing.fit`, and a cold
            posterior, since with the whole KL networks learn too little: up to 1,000 rows the KL below the last layer has
            weight rows / 1,750, at least 0.1. With more rows and ``posterior="auto"``, training has stages: a plain network
            is trained, the posterior starts at its weights, and rows that are held out choose the weight of the KL (1,
            0.3, 0.1, 0.03 or 0.01) and factors of the noise and of the posterior's precisions, and return for the last
            steps. ``batch_size`` and ``patience`` replace those of the recipe.
        max_steps: Maximum number of gradient steps, of all stages together. Default: that of the recipe.
        batch_size: Rows in a mini-batch.
        patience: Stop when the objective has not improved for this many steps. None: train to the end. Stages are stopped
            by the held-out rows.
        time_budget: Seconds of training. The time of a step is measured, and the number of steps is what fits, so that the
            learning rate still decreases to the end. Default: no limit.
        n_samples: Posterior draws in a prediction.
        schema: A `Schema` for tables. Default: learned if a table has text columns. It imputes missing values, compresses
            outliers and leaves out row numbers, with a `TableWarning`.
        warm_start: Whether another `fit` continues from the present network, with its scales and inducing points. It
            keeps the architecture of the first fit, and all layers are learned.
        random_state: Seed of `fit` and of the draws in predictions. None: a new seed at each fit.
        device: Where to train and predict: "cpu" or "cuda".
        verbose: Whether to show a progress bar.

    Attributes: ``network_``, ``likelihood_``, ``history_`` (a record of each step), ``elbo_`` (in nats per row, of the
    standardised targets), ``schema_``, ``feature_names_in_``, ``n_features_in_``.

    Example:
        >>> import numpy as np, inducing
        >>> X = np.random.default_rng(0).normal(size=(50, 3))
        >>> model = inducing.BNNRegressor(max_steps=20, random_state=0).fit(X, X[:, 0] ** 2)
        >>> mean, std = model.predict(X[:5], return_std=True)
        >>> low, high = model.predict_interval(X[:5], coverage=0.9)
        >>> mean.shape, bool((low < mean).all() and (mean < high).all())
        ((5,), True)
    """


@register
@dataclass(eq=False, repr=False)
class DeepGPRegressor(Regressor, DeepGP):
    """Regression with a deep Gaussian process.

    Arguments:
        num_layers: Number of layers.
        kernel: A kernel or its name, as in `inducing.GPLayer`, for all layers. By name, hidden layers start with a variance
            of 0.1, near the identity, which learns faster.
        posterior: A posterior or its name, as in `inducing.models.deep_gp`: "global" (default), "local", "dsvi", ...
        num_inducing: Number of inducing points, at most that of distinct rows. Default ("auto"): 100.
        likelihood: As in `BNNRegressor`. Default ("auto"): "heteroscedastic-student-t", or "gaussian" on a log scale. With
            at most 1,000 rows, Student's noise has four degrees of freedom, which are not learned.
        target_transform: As in `BNNRegressor`.
        recipe: "fast" (fewer samples and steps than in `inducing.fit`), "paper:dgp", or a `Recipe`.
        max_steps: Maximum number of gradient steps. Default: that of the recipe.
        batch_size: Rows in a mini-batch.
        patience: Stop when the objective has not improved for this many steps. None: train to the end.
        time_budget: Seconds of training. The time of a step is measured, and the number of steps is what fits, so that the
            learning rate still decreases to the end. Default: no limit.
        n_samples: Posterior draws in a prediction.
        schema: A `Schema` for tables. Default: learned if a table has text columns.
        warm_start: Whether another `fit` continues from the present network, with its scales and inducing points.
        random_state: Seed of `fit` and of the draws in predictions. None: a new seed at each fit.
        device: Where to train and predict: "cpu" or "cuda".
        verbose: Whether to show a progress bar.

    Example:
        >>> import numpy as np, inducing
        >>> X = np.random.default_rng(0).normal(size=(50, 3))
        >>> model = inducing.DeepGPRegressor(max_steps=10, random_state=0)
        >>> model = model.fit(X, X[:, 0] ** 2)
        >>> model.sample_y(X[:5], n_samples=7).shape, model.sample_functions(7)(X[:5]).shape
        ((5, 7), (7, 5))
    """
