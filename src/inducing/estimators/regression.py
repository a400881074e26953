"""Regression: real targets and counts, one or several for each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import Tags
from sklearn.utils.validation import _check_sample_weight

from inducing.estimators.architectures import BNN, DeepGP
from inducing.estimators.base import NetworkEstimator, is_auto
from inducing.estimators.likelihoods import COUNTS, REGRESSION, Choice
from inducing.estimators.targets import NumericTargets, choose_log_scale, numeric_effect_targets
from inducing.saving import register


@dataclass(eq=False, repr=False, kw_only=True)
class Regressor(RegressorMixin, NetworkEstimator):
    """The methods of regressors."""

    target_transform: str = "none"

    likelihoods: ClassVar[dict[str, Choice]] = REGRESSION
    encoding = NumericTargets

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

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
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

    def _predict_covariance(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        predictive = self.predict_distribution(X)
        means = predictive.function_means
        centred = (means - means.mean(0)).numpy()
        # Cov[y] = Cov_s E[y | f_s] + diag(E_s V[y | f_s])
        covariance = np.einsum("sno,smo->nmo", centred, centred) / len(centred)
        rows = np.arange(len(covariance))
        covariance[rows, rows] += predictive.aleatoric.numpy()
        return self.targets_.decode(predictive.mean.numpy()), self.targets_.decode(covariance)


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
        likelihood: As in `BNNRegressor`. Default ("auto"): "heteroscedastic-student-t", or "gaussian" on a log scale.
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
