"""Regression: real targets and counts, one or several a row."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_array, check_consistent_length
from torch import Tensor

from inducing.data.standardise import Standardiser
from inducing.estimators.architectures import BNN, DeepGP
from inducing.estimators.base import NetworkEstimator, is_auto
from inducing.estimators.state import standardiser_from
from inducing.estimators.targets import REGRESSION, Choice, choose
from inducing.nn.likelihoods import Likelihood
from inducing.prediction.predictive import Predictive
from inducing.saving import register
from inducing.saving.specifications import take

# variances are squares, and must not overflow
LARGEST_TARGET = 1e150
COUNTS = ("poisson", "negative-binomial")


class Regression(RegressorMixin, NetworkEstimator):
    """What regressors offer."""

    likelihoods: ClassVar[dict[str, Choice]] = REGRESSION
    # what "auto" stands for
    auto_likelihood: ClassVar[str]
    targets_: Standardiser
    target_ndim_: int

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Regression:
        """Fit the network to data.

        Arguments:
            X: Inputs (N, D): an array, or a pandas.DataFrame. Text columns of a table become one-hot by a `Schema`.
            y: Targets (N,) or (N, O). Counts are whole numbers.
            sample_weight: Multiplies the log-likelihood of each row: a row of weight 2 counts as two.
        """
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        # what is not finite is refused below, by its row
        y = check_array(
            y, dtype=np.float64, ensure_2d=False, ensure_all_finite=False, input_name="y", estimator=self, copy=True
        )
        # in the words that scikit-learn's checks look for
        for found, which in (("NaN", np.isnan(y)), (f"infinity or a value too large for {y.dtype!r}", np.isinf(y))):
            wrong = np.flatnonzero(which.reshape(len(y), -1).any(1))
            if len(wrong):
                raise ValueError(
                    f"Input y contains {found} in {len(wrong)} rows, the first of them row {wrong[0]}; remove them"
                )
        check_consistent_length(X, y)
        self._fit(X, y, sample_weight)
        return self

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """The predictive mean of each row, and how unsure it is.

        Arguments:
            X: Inputs as in `fit`.
            return_std: Return also the standard deviation of a target, its noise included.
            return_cov: Return also the covariance of the targets of all rows, (N, N) or (N, N, O), as that of
                scikit-learn's GaussianProcessRegressor. It is a Monte Carlo estimate from ``n_samples`` draws plus the
                noise on the diagonal: without noise its rank is below ``n_samples``, and entries that are zero in truth
                are of the order 1 / sqrt(n_samples) of the variances.
        """
        if return_std and return_cov:
            raise RuntimeError(
                "at most one of return_std and return_cov can be asked for; the diagonal of the "
                "covariance is the square of the standard deviation"
            )
        if return_cov:
            return self._with_covariance(X)
        if not return_std:
            return self._shape(self._collect(X, lambda predictive: predictive.mean))
        both = self._collect(X, lambda predictive: torch.stack([predictive.mean, predictive.stddev]), 1)
        return self._shape(both[0]), self._shape(both[1])

    def predict_quantiles(self, X: Any, q: Any) -> np.ndarray:
        """Quantiles of the targets of each row: shaped as `predict` for a number, (Q, N, ...) for several."""
        levels = np.atleast_1d(np.asarray(q, dtype=float)).tolist()
        found = self._shape(self._collect(X, lambda predictive: predictive.quantile(levels), 1))
        return found[0] if np.ndim(q) == 0 else found

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """The central interval that holds the target with this probability: its lower ends and its upper ends."""
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must lie between 0 and 1, got {coverage}; 0.9 is a 90 % interval")
        low, high = self.predict_quantiles(X, [(1 - coverage) / 2, (1 + coverage) / 2])
        return low, high

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draw targets with their noise, (N, n_samples) or (N, O, n_samples).

        The rows of one sample come from one function, so they are correlated as the posterior has it.
        """
        return np.moveaxis(self._shape(self._sample(X, n_samples, random_state).numpy()), 0, -1)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.positive_only = self.likelihood in COUNTS
        return tags

    def _choice(self) -> Choice:
        name = self.likelihood
        if is_auto(name):
            asked = self._asked_optimum()
            # an optimal last layer is known for Gaussian noise
            name = self.auto_likelihood if asked is None else "heteroscedastic" if asked.heteroscedastic else "gaussian"
        return choose(name, self.likelihoods)

    def _learn_targets(self, y: Any, weights: Float[np.ndarray, " N"] | None) -> tuple[Tensor, int]:
        columns = y.reshape(len(y), -1)
        number = columns.shape[1]
        real = self._choice().make(1).support == "real"
        if self.warm_start and "targets_" in self.__dict__:
            if len(self.targets_.mean) != number:
                raise ValueError(
                    f"y has {number} columns, but the fit that warm_start continues had {len(self.targets_.mean)}"
                )
        elif real:
            self.targets_ = Standardiser.of(columns, weights)
            mean, std = self.targets_
            if (torch.maximum(mean.abs(), std) > LARGEST_TARGET).any() or (std < 1 / LARGEST_TARGET).any():
                raise ValueError(
                    f"y has values of the size {np.abs(columns).max():.2g}, whose variance overflows or underflows float64. "
                    "Rescale y so that its standard deviation is nearer to 1"
                )
        else:
            self.targets_ = Standardiser(torch.zeros(number).double(), torch.ones(number).double())
        self.target_ndim_ = y.ndim
        return self.targets_.apply(columns, torch.float64), number

    def _target_state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        return {"ndim": self.target_ndim_}, {"targets.mean": self.targets_.mean, "targets.std": self.targets_.std}

    def _restore_targets(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> int:
        (self.target_ndim_,) = take(state, "targets", ndim=int)
        self.targets_ = standardiser_from(tensors, "targets")
        number = len(self.targets_.mean)
        if self.target_ndim_ not in (1, 2) or (self.target_ndim_ == 1 and number > 1):
            raise ValueError(f"{number} targets cannot have {self.target_ndim_} dimensions")
        return number

    def _predictive(self, outputs: Float[Tensor, "S B O"], likelihood: Likelihood) -> Predictive:
        predictive = Predictive(outputs, likelihood, seed=self.seed_)
        return predictive.unstandardise(*self.targets_) if likelihood.support == "real" else predictive

    def _values(self, predictive: Predictive) -> Float[np.ndarray, "S B *O"]:
        means = predictive.location + predictive.scale * predictive.likelihood.mean(predictive.outputs)
        return self._shape(means.numpy())

    def _shape(self, columns: np.ndarray) -> np.ndarray:
        """Without the axis of outputs where the user's targets had none."""
        return columns[..., 0] if self.target_ndim_ == 1 else columns

    def _with_covariance(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        predictive = self.predict_distribution(X)
        means = predictive.location + predictive.scale * predictive.likelihood.mean(predictive.outputs)
        centred = (means - means.mean(0)).numpy()
        # Cov[y] = Cov_s E[y | f_s] + diag(E_s V[y | f_s])
        covariance = np.einsum("sno,smo->nmo", centred, centred) / len(centred)
        rows = np.arange(len(covariance))
        covariance[rows, rows] += predictive.aleatoric.numpy()
        return self._shape(predictive.mean.numpy()), self._shape(covariance)


@register
class BNNRegressor(Regression, BNN):
    """Regression with a Bayesian neural network.

    Inputs and targets are standardised inside, and inducing points are chosen from the rows.

    Arguments:
        hidden: Widths of the hidden layers.
        posterior: A posterior or its name, as in `inducing.models.mlp`: "global", "local", "factorised", ... "auto" is
            "global"; for up to 1,000 distinct rows with Gaussian noise of either kind, ``num_inducing="auto"`` and no
            ``warm_start`` its last layer is exact given the noise: an `OptimalInducing`. That has all rows as inducing
            points (they are then a part of the fitted model, and of its file).
        prior: A prior or its name; "scale" learns the scale of the weights.
        num_inducing: Inducing points, at most as many as distinct rows; "auto" is 100, or all rows as above.
        likelihood: "gaussian", noise that is the same everywhere; "heteroscedastic", Gaussian noise that depends on the
            inputs; "student-t" and "heteroscedastic-student-t" for outliers; "poisson" or "negative-binomial" for counts.
            "auto" is "heteroscedastic", or "gaussian" for an optimal last layer that was asked for.
        recipe: "fast" (with fewer samples and steps than in `inducing.fit`, and a cold posterior for fewer than 1,750
            rows: the KL below the last layer weighs rows / 1,750, not less than 0.1, since the whole of it gives intervals
            that are too wide), "paper", or a `Recipe`, whose batch_size and patience are those given here.
        max_steps: Gradient steps at most; None stands for those of the recipe.
        batch_size: Rows in a step.
        patience: Stop when the objective has not risen for so many steps; None trains to the end.
        n_samples: Posterior draws in a prediction.
        schema: A `Schema` for tables; None makes one where a table has text columns.
        warm_start: Whether another `fit` goes on from the present network, with its scales and inducing points. It was
            built with the settings of the first fit, and all of its layers are learned.
        random_state: Decides all randomness of `fit`, and of the draws that predictions are made of.
            None: another seed at each fit.
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

    auto_likelihood: ClassVar[str] = "heteroscedastic"


@register
class DeepGPRegressor(Regression, DeepGP):
    """Regression with a deep Gaussian process.

    Arguments:
        num_layers: Layers of Gaussian processes.
        kernel: A kernel or its name, as in `inducing.GPLayer`, of all layers. By name, hidden layers begin with a variance
            of 0.1, near the identity, which learns faster.
        posterior: A posterior or its name, as in `inducing.models.deep_gp`: "global" ("auto"), "local", "dsvi", ...
        num_inducing: Inducing points, at most as many as distinct rows; "auto" is 100.
        likelihood: As of `BNNRegressor`, but that "auto" is "heteroscedastic-student-t".
        recipe: "fast" (with fewer samples and steps than in `inducing.fit`), "paper:dgp", or a `Recipe`.
        max_steps: Gradient steps at most; None stands for those of the recipe.
        batch_size: Rows in a step.
        patience: Stop when the objective has not risen for so many steps; None trains to the end.
        n_samples: Posterior draws in a prediction.
        schema: A `Schema` for tables; None makes one where a table has text columns.
        warm_start: Whether another `fit` goes on from the present network, with its scales and inducing points.
        random_state: Decides all randomness of `fit`, and of the draws that predictions are made of.
            None: another seed at each fit.
        device: Where to train and predict: "cpu" or "cuda".
        verbose: Whether to show a progress bar.

    Example:
        >>> import numpy as np, inducing
        >>> X = np.random.default_rng(0).normal(size=(50, 3))
        >>> model = inducing.DeepGPRegressor(max_steps=10, random_state=0).fit(X, X[:, 0] ** 2)
        >>> model.sample_y(X[:5], n_samples=7).shape, model.sample_functions(7)(X[:5]).shape
        ((5, 7), (7, 5))
    """

    auto_likelihood: ClassVar[str] = "heteroscedastic-student-t"
