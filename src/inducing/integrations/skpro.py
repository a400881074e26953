"""Probabilistic regression in skpro: a regressor around an estimator, and its predictive distribution.

skpro's tools for model selection, calibration and metrics take the regressor like their own. `predict_proba` returns the
mixture over posterior draws itself: mean, variance, density, distribution function and quantiles are computed by
`inducing.prediction.predictive.Predictive`, not from samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from sklearn.base import clone
from sklearn.utils import check_random_state
from torch import Tensor

from inducing.estimators import BNNRegressor, DeepGPRegressor
from inducing.estimators.likelihoods import COUNTS
from inducing.extras import require
from inducing.linalg.noise import seeded
from inducing.nn.likelihoods import Gaussian, HeteroscedasticGaussian
from inducing.prediction import metrics
from inducing.prediction.predictive import Predictive
from inducing.prediction.roots import find_root

require("skpro")

from skpro.distributions.base import BaseDistribution  # noqa: E402
from skpro.regression.base import BaseProbaRegressor  # noqa: E402


class InducingRegressor(BaseProbaRegressor):
    """A probabilistic regressor of skpro around a regressor of this package.

    Several targets may be missing (NaN) in some rows. `update` conditions the fitted model on new rows without a new fit, as
    the method of the estimator does; an estimator for counts is not updated.

    Arguments:
        estimator: `BNNRegressor`, `DeepGPRegressor`, `AutoRegressor`, or a `Pipeline` that ends with one. Default:
            ``BNNRegressor()``. It is not changed: a copy is fitted, which is the attribute ``estimator_``.

    Example:
        >>> import inducing, pandas as pd
        >>> from inducing.integrations.skpro import InducingRegressor
        >>> X = pd.DataFrame({"a": range(20), "b": [1, 2] * 10})
        >>> y = pd.DataFrame({"y": X["a"] ** 0.5})
        >>> model = InducingRegressor(inducing.BNNRegressor([10], max_steps=10, random_state=0)).fit(X, y)
        >>> model.predict_proba(X[:3]).quantile([0.05, 0.95]).shape
        (3, 2)
    """

    _tags = {  # noqa: RUF012
        "authors": ["inducing"],
        "capability:multioutput": True,
        "capability:missing": False,
        "capability:update": True,
        "X_inner_mtype": "pd_DataFrame_Table",
        "y_inner_mtype": "pd_DataFrame_Table",
    }

    def __init__(self, estimator: Any = None) -> None:
        self.estimator = estimator
        super().__init__()
        given = self._given()
        # a schema imputes missing inputs
        settings = {"capability:missing": getattr(given, "schema", None) is not None}
        settings |= {"capability:update": hasattr(given, "update") and getattr(given, "likelihood", None) not in COUNTS}
        self.set_tags(**settings)

    def _fit(self, X: pd.DataFrame, y: pd.DataFrame) -> Self:
        self.columns_ = y.columns
        self.estimator_ = clone(self._given()).fit(_with_text_names(X), y.to_numpy(dtype=float))
        return self

    def _update(self, X: pd.DataFrame, y: pd.DataFrame) -> Self:
        self.estimator_.update(_with_text_names(X), y.to_numpy(dtype=float))
        return self

    def _predict(self, X: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame(self.estimator_.predict(_with_text_names(X)), index=X.index, columns=self.columns_)

    def _predict_proba(self, X: pd.DataFrame) -> PredictiveDistribution:
        predictive = self.estimator_.predict_distribution(_with_text_names(X))
        return PredictiveDistribution(predictive, index=X.index, columns=self.columns_)

    def _given(self) -> Any:
        return BNNRegressor() if self.estimator is None else self.estimator

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Small settings for skpro's tests."""
        small: dict[str, Any] = {"max_steps": 2, "n_samples": 5, "random_state": 0}
        return [
            {"estimator": BNNRegressor([5], **small)},
            {"estimator": DeepGPRegressor(num_inducing=5, **small)},
        ]


class PredictiveDistribution(BaseDistribution):
    """The predictive distribution of rows as a distribution of skpro.

    The rows and targets of one sample come from one function of the posterior, so they have its correlations. All other
    methods are about each row and target by itself, as in skpro.

    Arguments:
        predictive: The predictive distribution of all targets.
        targets: Positions of the targets that are the columns. Default: all.
        index: Index of the rows.
        columns: Names of the targets. Without index and names, one row with one target is a scalar distribution.

    Example:
        >>> import inducing, torch
        >>> from inducing.integrations.skpro import PredictiveDistribution
        >>> network, likelihood = inducing.models.mlp(1, 1, num_inducing=5), inducing.Gaussian()
        >>> predictive = inducing.predict(network, likelihood, torch.zeros(4, 1), num_samples=10)
        >>> PredictiveDistribution(predictive).cdf(0.0).shape
        (4, 1)
    """

    _tags = {  # noqa: RUF012
        "authors": ["inducing"],
        "distr:measuretype": "continuous",
        "distr:paramtype": "nonparametric",
        "capabilities:exact": ["mean", "var", "pdf", "log_pdf", "cdf", "ppf"],
        "capabilities:approx": ["energy", "pdfnorm"],
    }

    def __init__(
        self, predictive: Predictive, targets: Sequence[int] | None = None, index: Any = None, columns: Any = None
    ) -> None:
        self.predictive, self.targets = predictive, targets
        rows, outputs = predictive.mean.shape
        self._targets = list(range(outputs)) if targets is None else [int(target) for target in targets]
        if index is not None or columns is not None or (rows, len(self._targets)) != (1, 1):
            index = pd.RangeIndex(rows) if index is None else index
            columns = pd.RangeIndex(len(self._targets)) if columns is None else columns
        super().__init__(index=index, columns=columns)
        self._is_discrete = predictive.likelihood.support == "integers"
        density = ["pmf", "log_pmf"] if self._is_discrete else ["pdf", "log_pdf"]
        # E|Y - Y'| has a formula for Gaussian noise only
        is_normal = isinstance(predictive.likelihood, Gaussian | HeteroscedasticGaussian)
        exact, approximate = (["energy"], []) if is_normal else ([], ["energy"])
        settings = {"capabilities:exact": ["mean", "var", *density, "cdf", "ppf", *exact]}
        settings |= {"capabilities:approx": ["pdfnorm", *approximate]}
        self.set_tags(**settings, **{"distr:measuretype": "discrete" if self._is_discrete else "continuous"})

    def _mean(self) -> Any:
        return self._in_shape(self.predictive.mean)

    def _var(self) -> Any:
        return self._in_shape(self.predictive.variance)

    def _log_pdf(self, x: np.ndarray) -> Any:
        return self._in_shape(self._log_density(x))

    def _pdf(self, x: np.ndarray) -> Any:
        return np.exp(self._log_pdf(x))

    def _log_pmf(self, x: np.ndarray) -> Any:
        return self._log_pdf(x)

    def _pmf(self, x: np.ndarray) -> Any:
        return self._pdf(x)

    def _cdf(self, x: np.ndarray) -> Any:
        predictive, y = self.predictive, self._as_targets(x)
        standardised = (y - predictive.location) / predictive.scale
        # P(Y <= y) = 1/S sum_s P(Y <= y | f_s)
        return self._in_shape(predictive.likelihood.log_cdf(predictive.outputs, standardised).exp().mean(0))

    def _ppf(self, p: np.ndarray) -> Any:
        level = self._as_targets(p, other=0.5)
        inside = level.clamp(1e-100, 1 - 2**-50)
        found = torch.where(level <= 0, -torch.inf, torch.where(level >= 1, torch.inf, self._quantiles(inside)))
        return self._in_shape(found)

    def _energy_self(self) -> Any:
        # E|Y - Y'|, summed over the targets
        return self._sum_over_targets(metrics.absolute_difference(self.predictive))

    def _energy_x(self, x: np.ndarray) -> Any:
        # E|Y - x|, summed over the targets
        return self._sum_over_targets(metrics.absolute_error(self.predictive, self._as_targets(x, other=0.0)))

    def _sample(self, n_samples: int | None = None) -> Any:
        predictive, count = self.predictive, 1 if n_samples is None else n_samples
        # like all distributions of skpro, from NumPy's global generator
        generator = check_random_state(None)
        chosen = torch.from_numpy(generator.randint(len(predictive.outputs), size=count))
        functions = replace(predictive.take_draws(chosen), seed=int(generator.randint(2**31 - 1)))
        values = functions.samples[..., self._targets].double().numpy()
        if self.ndim == 0:
            return values.item() if n_samples is None else pd.DataFrame(values[:, 0])
        if n_samples is None:
            return pd.DataFrame(values[0], index=self.index, columns=self.columns)
        tables = [pd.DataFrame(table, index=self.index, columns=self.columns) for table in values]
        return pd.concat(tables, keys=range(n_samples))

    def _iloc(self, rowidx: Any = None, colidx: Any = None) -> PredictiveDistribution:
        if isinstance(rowidx, Integral) and isinstance(colidx, Integral):
            return self._iat(rowidx, colidx)
        rows, columns = _positions(len(self.index), rowidx), _positions(len(self.columns), colidx)
        return self._subset(rows, columns, self.index[rows], self.columns[columns])

    def _iat(self, rowidx: Any = None, colidx: Any = None) -> PredictiveDistribution:
        return self._subset(_positions(len(self.index), rowidx), _positions(len(self.columns), colidx))

    def _subset(self, rows: np.ndarray, columns: np.ndarray, *labels: pd.Index) -> PredictiveDistribution:
        predictive = replace(self.predictive, outputs=self.predictive.outputs[:, rows])
        return PredictiveDistribution(predictive, [self._targets[column] for column in columns], *labels)

    def _log_density(self, x: np.ndarray) -> Float[Tensor, "N O"]:
        """The log-density, or log-probability, of each target by itself. The others are missing."""
        y = self._as_targets(x)
        possible = y.isfinite() & ((y >= 0) & (y == y.floor()) if self._is_discrete else True)
        safe = torch.where(possible, y, 0.0).to(self.predictive.outputs.dtype)
        found = torch.full_like(y, torch.nan)
        for target in set(self._targets):
            alone = torch.full_like(safe, torch.nan)
            alone[:, target] = safe[:, target]
            found[:, target] = self.predictive.log_prob(alone).double()
        return torch.where(y.isnan(), torch.nan, torch.where(possible, found, -torch.inf))

    def _quantiles(self, level: Float[Tensor, "N O"]) -> Float[Tensor, "N O"]:
        """Quantiles with a level of its own for each row and target."""
        predictive, levels = self.predictive, level.unique()
        if len(levels) == 1 or self._is_discrete:
            found = torch.zeros_like(level)
            for each in levels.tolist():
                where = level == each
                found[where] = predictive.quantile(each).double()[where]
            return found
        likelihood, outputs = predictive.likelihood, predictive.outputs.double()

        def excess(y: Tensor) -> Tensor:
            z = (y - predictive.location) / predictive.scale
            # log P(Y <= y) - log p, or in the upper half log(1 - p) - log P(Y > y)
            below = likelihood.log_cdf(outputs, z).logsumexp(0) - level.log()
            above = likelihood.log_survival(outputs, z).logsumexp(0) - (-level).log1p()
            return torch.where(level > 0.5, math.log(len(outputs)) - above, below - math.log(len(outputs)))

        # a little wider than the levels, since quantiles are rounded
        low, high = predictive.quantile([levels[0] / 2, (1 + levels[-1]) / 2]).double()
        return find_root(excess, low, high)

    def _as_targets(self, values: np.ndarray, other: float = math.nan) -> Float[Tensor, "N O"]:
        """Values of the columns as values of all targets, with a constant for targets that are not columns."""
        rows, outputs = self.predictive.mean.shape
        table = np.broadcast_to(np.asarray(values, dtype=float), (rows, len(self._targets)))
        filled = torch.full((rows, outputs), other, dtype=torch.float64)
        filled[:, self._targets] = torch.as_tensor(table.copy())
        return filled

    def _in_shape(self, values: Float[Tensor, "N O"]) -> np.ndarray | float:
        columns = values[:, self._targets].double().numpy()
        return columns if self.ndim else columns.item()

    def _sum_over_targets(self, values: Float[Tensor, "N O"]) -> np.ndarray | float:
        total = values[:, self._targets].double().sum(1).numpy()
        return total if self.ndim else total.item()

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Examples for skpro's tests."""
        outputs = torch.randn(3, 4, 2, generator=seeded(0, "example of a distribution")).double()
        predictive = Predictive(outputs, Gaussian([0.1, 0.2]).double().requires_grad_(False), 1.0, 2.0)
        one = replace(predictive, outputs=outputs[:, :1])
        return [{"predictive": predictive, "columns": ["a", "b"]}, {"predictive": one, "targets": [1]}]


def _with_text_names(X: pd.DataFrame) -> pd.DataFrame:
    """A table whose column names are text, as scikit-learn needs them."""
    return X.set_axis([str(name) for name in X.columns], axis=1)


def _positions(count: int, chosen: Any) -> np.ndarray:
    """The positions that an index selects. Default: all."""
    return np.atleast_1d(np.arange(count) if chosen is None else np.arange(count)[chosen])
