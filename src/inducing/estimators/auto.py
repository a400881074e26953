"""A blend of several estimators: a weighted mixture of their predictions, by the log-likelihood of held-out rows.

The rows are held out of the training rows, and return at the end: the estimators of the blend are fitted again to all rows,
unless the held-out rows are so few that this would hardly change them.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import _safe_indexing, check_consistent_length, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted
from torch import Tensor

from inducing.checks import check_kind, check_whole
from inducing.estimators.base import NetworkEstimator
from inducing.estimators.blend_noise import check_noise_factor, find_noise_factor, with_noise
from inducing.estimators.classification import BNNClassifier, Classifier, DeepGPClassifier
from inducing.estimators.division import Division, divide_rows
from inducing.estimators.exporting import export_estimator
from inducing.estimators.functions import BlendedFunctions, SampledFunctions
from inducing.estimators.members import check_members, count_copies, fit_member, fit_members, is_first_with_schema
from inducing.estimators.model_weights import check_weights, find_weights, share_draws
from inducing.estimators.predictions import Predictions, PredictionsOfClasses, PredictionsOfNumbers
from inducing.estimators.regression import BNNRegressor, DeepGPRegressor, Regressor
from inducing.estimators.stacking import TreeBNNClassifier, TreeBNNRegressor
from inducing.inference.time_budget import check_time_budget
from inducing.prediction.predictive import Predictive
from inducing.saving import register
from inducing.saving.values import shorten, take
from inducing.tables.schema import EncodedTable, Schema

# With more rows, networks that differ in the seed are better than one and a deep Gaussian process, in about the same time.
FEW_ROWS, NETWORKS = 1000, ("bnn", "second bnn", "third bnn")

STATE: dict[str, Any] = {
    "class": str, "weights": dict[str, float], "scores": dict[str, float], "noise_factor": float,
    "random_state": int | None, "verbose": bool,
}  # fmt: skip


class Blend(NamedTuple):
    """A fitted blend.

    Arguments:
        members: The fitted estimators with a weight, by name.
        weights: Their weights.
        scores: The mean log-likelihood of held-out rows under each candidate.
        noise_factor: The factor of the noise variances of all members in predictions of the blend.
    """

    members: dict[str, NetworkEstimator]
    weights: dict[str, float]
    scores: dict[str, float]
    noise_factor: float = 1.0


class Auto(Predictions, BaseEstimator):
    """What the automatic estimators share for regression and classification."""

    # default candidates for few and for many rows
    few_rows: ClassVar[Mapping[str, type[NetworkEstimator]]]
    many_rows: ClassVar[Mapping[str, type[NetworkEstimator]]]
    kind: ClassVar[type[NetworkEstimator]]
    members_: dict[str, NetworkEstimator]
    weights_: dict[str, float]
    scores_: dict[str, float]
    noise_factor_: float
    schema_: Schema | None
    n_features_in_: int

    def __init__(
        self,
        candidates: Mapping[str, NetworkEstimator] | None = None,
        *,
        weights: Mapping[str, float] | None = None,
        noise_factor: float | None = None,
        schema: Schema | None = None,
        max_steps: int | None = None,
        time_budget: float | None = None,
        device: str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.candidates, self.weights, self.noise_factor, self.schema = candidates, weights, noise_factor, schema
        self.max_steps, self.time_budget, self.device = max_steps, time_budget, device
        self.random_state, self.verbose = random_state, verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit all candidates to a part of the rows, and those of the best blend to all rows.

        Arguments:
            X: Inputs (N, D): an array or a pandas.DataFrame.
            y: Targets.
            sample_weight: Weights of the rows.
        """
        check_consistent_length(X, y)
        if self.noise_factor is not None:
            check_noise_factor(self.noise_factor)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        candidates = {name: clone(each) for name, each in self._candidates(len(X)).items()}
        if self.weights is not None:
            weights = check_weights(self.weights, candidates)
            candidates = {name: candidates[name] for name in weights}
            self._set_params(candidates, seed, num_fits=len(candidates))
            factor = 1.0 if self.noise_factor is None else self.noise_factor
            return self._keep(Blend(fit_members(candidates, X, y, sample_weight), weights, {}, factor))
        division = self._hold_out(X, y, sample_weight, seed)
        # if the held-out rows return, each candidate may be fitted twice
        self._set_params(candidates, seed, num_fits=len(candidates) * (1 + division.returns))
        return self._keep(self._choose(candidates, X, y, sample_weight, division))

    def update(self, X: Any, y: Any, num_steps: int | None = None) -> Self:
        """Condition the estimators of the blend on new rows, without a new fit. See `NetworkEstimator.update`."""
        updated = {}
        for name, member in self._fitted().items():
            try:
                # a copy: if one of them refuses the rows, all stay as they are
                updated[name] = copy.copy(member).update(X, y, num_steps)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
        return self._keep(Blend(updated, self.weights_, self.scores_, self.noise_factor_))

    def export(self, path: str | os.PathLike[str], quantiles: Sequence[float] | None = None) -> None:
        """Write the predictions of the mixture to a file that other programs run. See `NetworkEstimator.export`."""
        export_estimator(self, path, quantiles)

    @property
    def feature_names_in_(self) -> np.ndarray:
        """The names of the columns, if the estimators were fitted to a table."""
        return self._first.feature_names_in_

    @property
    def input_names(self) -> list[str] | None:
        """The names of the inputs, if the estimators were fitted to a table."""
        return self._first.input_names

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The weights and settings, and the estimators, which are saved with them."""
        members = self._fitted()
        is_seed = isinstance(self.random_state, int | np.integer)
        state = {
            "class": type(self).__name__,
            "weights": self.weights_,
            # JSON has no infinity: scores of models that failed on held-out rows are left out
            "scores": {name: score for name, score in self.scores_.items() if np.isfinite(score)},
            "noise_factor": self.noise_factor_,
            "random_state": int(self.random_state) if is_seed else None,
            "verbose": bool(self.verbose),
        }
        return state, dict(members)

    @classmethod
    def from_parts(cls, state: dict[str, Any], parts: dict[str, Any]) -> Self:
        """The inverse of `to_parts`. A fit of the result keeps the weights and the factor of the noise.

        Parts that do not fit each other are refused, so that all of it may come from an untrusted file.
        """
        # files of earlier versions have no factor
        state = {"noise_factor": 1.0, **state} if isinstance(state, dict) else state
        name, weights, scores, noise_factor, random_state, verbose = take(state, cls.__name__, **STATE)
        if name != cls.__name__:
            raise ValueError(f"the state is not that of {cls.__name__}, but of {shorten(name)}")
        if not parts or not all(isinstance(member, cls.kind) for member in parts.values()):
            raise ValueError(f"the models of an {cls.__name__} must each be a {cls.kind.__name__}")
        if set(weights) != set(parts):
            raise ValueError(f"there are weights of {shorten(list(weights))}, but models {shorten(list(parts))}")
        if not (all(0 < weight <= 1 for weight in weights.values()) and math.isclose(sum(weights.values()), 1)):
            raise ValueError(f"the weights must be positive, and their sum 1, got {shorten(weights)}")
        check_noise_factor(noise_factor)
        candidates = {key: clone(member) for key, member in parts.items()}
        weights = {name: weights[name] for name in parts}
        settings: dict[str, Any] = {"weights": dict(weights), "noise_factor": noise_factor}
        model = cls(candidates, **settings, random_state=random_state, verbose=verbose)
        return model._keep(Blend(dict(parts), dict(weights), dict(scores), float(noise_factor)))

    def _keep(self, blend: Blend) -> Self:
        check_members(blend.members)
        self.members_, self.weights_, self.scores_, self.noise_factor_ = blend
        # classes, number of targets and their shape are the same in all members; scales are not needed here
        first = self._first
        self.targets_, self.schema_, self.n_features_in_ = first.targets_, first.schema_, first.n_features_in_
        return self

    @property
    def _first(self) -> NetworkEstimator:
        return next(iter(self._fitted().values()))

    def _fitted(self) -> dict[str, NetworkEstimator]:
        check_is_fitted(self, "members_")
        return self.members_

    @classmethod
    def default_candidates(cls, num_rows: int | None = None) -> Mapping[str, type[NetworkEstimator]]:
        """The kinds of estimators to choose from, by name, for a number of rows. Default: for any number."""
        if num_rows is None:
            return {**cls.few_rows, **cls.many_rows}
        return cls.few_rows if num_rows <= FEW_ROWS else cls.many_rows

    def _candidates(self, num_rows: int) -> Mapping[str, NetworkEstimator]:
        if self.candidates is None:
            kinds = self.default_candidates(num_rows if self.weights is None else None)
            return {name: kind() for name, kind in kinds.items()}
        example = f"{{'bnn': {self.few_rows['bnn'].__name__}()}}"
        check_kind("candidates", self.candidates, Mapping, f"estimators by name, e.g. {example}")
        if not self.candidates:
            raise ValueError(f"candidates is empty. Leave it out, or pass estimators by name, e.g. {example}")
        for name, candidate in self.candidates.items():
            if not isinstance(name, str) or not name or "/" in name:
                raise ValueError(f"names of candidates must be texts without a slash, got {name!r}")
            check_kind(f"candidates[{name!r}]", candidate, self.kind, f"a {self.kind.__name__.lower()} of inducing")
        return self.candidates

    def _set_params(self, candidates: Mapping[str, NetworkEstimator], seed: int, num_fits: int) -> None:
        """Set the parameters that are given for all candidates. Each fit has an equal share of the time budget."""
        budget = None if self.time_budget is None else check_time_budget(self.time_budget) / num_fits
        settings = {"schema": self.schema, "max_steps": self.max_steps, "time_budget": budget, "device": self.device}
        given = {name: value for name, value in settings.items() if value is not None}
        for each in candidates.values():
            each.set_params(**given, verbose=self.verbose or each.verbose)
        for each, copies in zip(candidates.values(), count_copies(candidates.values()), strict=True):
            each.set_params(random_state=seed + copies)

    def _hold_out(self, X: Any, y: Any, sample_weight: Any, seed: int) -> Division:
        """Hold out some rows, whose log-likelihoods decide the weights and the factor of the noise."""
        row_weights = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        if not (row_weights > 0).any():
            raise ValueError("all sample weights are zero")
        targets = self.encoding.check(y, type(self).__name__)
        return divide_rows(targets, self._groups(targets), row_weights, seed, alone=self.few_rows["bnn"].__name__)

    def _choose(
        self, candidates: dict[str, NetworkEstimator], X: Any, y: Any, sample_weight: Any, division: Division
    ) -> Blend:
        """Fit all candidates to a part of the rows, and those with a weight to all rows."""
        train, held_out, row_weights, returns = division
        rows, y_held_out = _take(X, held_out), _take(y, held_out)
        predictions, columns, fitted = dict[str, Predictive](), [], dict[str, NetworkEstimator]()
        for name, candidate in candidates.items():
            part = _take(X, train), _take(y, train), row_weights[train]
            fitted[name] = candidate
            fit_member(candidate, *part, warns=not returns and is_first_with_schema(name, fitted))
            check_members(fitted)
            predictions[name] = candidate.predict_distribution(rows)
            targets = self._held_out_targets(candidate, y_held_out)
            columns.append(predictions[name].log_prob(targets).numpy())
        log_likelihoods = np.stack(columns, 1)
        scores = np.average(log_likelihoods, axis=0, weights=row_weights[held_out])
        found = find_weights(log_likelihoods, row_weights[held_out])
        weights = {name: float(weight) for name, weight in zip(candidates, found, strict=True) if weight > 0}
        members = {name: candidates[name] for name in weights}
        targets = self._held_out_targets(next(iter(members.values())), y_held_out)
        blended = [predictions[name] for name in weights]
        factor = self.noise_factor
        if factor is None:
            factor = find_noise_factor(blended, np.array(list(weights.values())), targets, row_weights[held_out])
        if returns:
            members = fit_members({name: clone(member) for name, member in members.items()}, X, y, sample_weight)
        return Blend(members, weights, dict(zip(candidates, scores.tolist(), strict=True)), factor)

    def _draw(self, n_samples: int | None = None, seed: int | None = None) -> SampledFunctions | BlendedFunctions:
        members = self._fitted()
        if n_samples is None:
            n_samples = max(member.n_samples for member in members.values())
        n_samples = check_whole("n_samples", n_samples)
        offset = 0.5 if seed is None else np.random.default_rng(seed).random()
        counts = share_draws(np.array([self.weights_[name] for name in members]), n_samples, offset)
        pairs = zip(members.values(), counts, strict=True)
        drawn = tuple(self._with_factor(member._draw(count, seed)) for member, count in pairs if count)
        return drawn[0] if len(drawn) == 1 else BlendedFunctions(drawn)

    def _with_factor(self, drawn: SampledFunctions) -> SampledFunctions:
        if self.noise_factor_ == 1:
            return drawn
        return replace(drawn, likelihood=with_noise(drawn.likelihood, self.noise_factor_))

    def _groups(self, targets: np.ndarray) -> np.ndarray:
        """The group of each row. Some rows of each group are held out."""
        return np.zeros(len(targets))

    def _held_out_targets(self, candidate: NetworkEstimator, y: Any) -> np.ndarray | Tensor:
        """The targets of held-out rows, as `Predictive.log_prob` takes them."""
        return np.asarray(y, dtype=float).reshape(len(y), -1)


@register
class AutoRegressor(PredictionsOfNumbers, Auto):
    """Regression with the models that predict held-out rows best: networks, deep Gaussian processes, networks with trees.

    The predictive distribution is a weighted mixture of those of the models. The weights maximise the log-likelihood of
    held-out rows, and of one more row for each model that only it can predict. Without these, a model slightly behind the
    best may have no weight, although a new row may be nearly impossible under the best. Models with weights below 0.01, and
    models that are far behind on all rows, are dropped. In predictions of the blend, the noise variances of all models are
    multiplied by one factor between 1/4 and 1. It maximises the log-likelihood of the mixture on the held-out rows, with a
    prior that prefers 1: the models differ in their means, so a mixture of models with accurate error bars is too wide. Each
    model has its share of the draws of a prediction, a whole number: as many in total as the largest ``n_samples`` of the
    models.

    Arguments:
        candidates: Estimators to choose from, by name. Default: `BNNRegressor` ("bnn"), `DeepGPRegressor` ("dgp") and
            `TreeBNNRegressor` ("trees") with default settings. With more than 1,000 rows, two further `BNNRegressor`
            with other seeds ("second bnn", "third bnn") replace the deep Gaussian process.
        weights: Weights of some or all candidates by name, e.g. ``{"bnn": 0.7, "trees": 0.3}``, in any unit. Only candidates
            with a weight are fitted, to all rows. Default: found by held-out rows.
        noise_factor: Factor of all noise variances in predictions, between 1/4 and 1. Default: found by held-out rows, or 1
            if `weights` are given.
        schema: How columns of a table are encoded, see `BNNRegressor`. Default: that of each candidate.
        max_steps: Maximum number of steps of each fit. Default: that of each candidate.
        time_budget: Maximum seconds of training of all fits together, in equal shares. Without `weights` and with at most
            about 8,000 rows, there are two shares for each candidate, since it may be fitted again to all rows. Results
            depend on the speed of the machine. Default: that of each candidate.
        device: Where to train, e.g. "cuda". Default: that of each candidate.
        random_state: Seed of the held-out rows and of all fits, in place of the seeds of the candidates. Candidates with the
            same settings have different seeds.
        verbose: Whether to show progress bars of all fits.

    Attributes: ``members_`` (the fitted estimators with a weight, by name), ``weights_`` (their weights), ``scores_`` (the
    mean log-likelihood of held-out rows under each candidate), ``noise_factor_`` (the factor of the noise variances; below
    1: narrower error bars). The factor that is found is 1 if one model remains, or if no model has a learned noise variance
    or scale: for classes and counts.

    Example:
        >>> import numpy as np, inducing
        >>> X = np.random.default_rng(0).normal(size=(60, 2))
        >>> small = {"wide": inducing.BNNRegressor([20], max_steps=20), "deep": inducing.BNNRegressor([5, 5], max_steps=20)}
        >>> model = inducing.AutoRegressor(small, random_state=0).fit(X, X[:, 0] ** 2)
        >>> set(model.weights_) <= set(small), round(sum(model.weights_.values()), 6), model.predict(X[:3]).shape
        (True, 1.0, (3,))
    """

    kind: ClassVar = Regressor
    few_rows: ClassVar = {"bnn": BNNRegressor, "dgp": DeepGPRegressor, "trees": TreeBNNRegressor}
    many_rows: ClassVar = {**dict.fromkeys(NETWORKS, BNNRegressor), "trees": TreeBNNRegressor}


@register
class AutoClassifier(PredictionsOfClasses, Auto):
    """Classification with the models that predict held-out rows best, of the same kinds.

    The arguments and attributes are those of `AutoRegressor`. ``noise_factor_`` is always 1.

    Example:
        >>> import numpy as np, inducing
        >>> X = np.random.default_rng(0).normal(size=(60, 2))
        >>> small = {"bnn": inducing.BNNClassifier([5], max_steps=10), "dgp": inducing.DeepGPClassifier(max_steps=5)}
        >>> model = inducing.AutoClassifier(small, random_state=0).fit(X, X[:, 0] > 0)
        >>> model.predict_proba(X[:3]).shape
        (3, 2)
    """

    kind: ClassVar = Classifier
    few_rows: ClassVar = {"bnn": BNNClassifier, "dgp": DeepGPClassifier, "trees": TreeBNNClassifier}
    many_rows: ClassVar = {**dict.fromkeys(NETWORKS, BNNClassifier), "trees": TreeBNNClassifier}

    def _groups(self, targets: np.ndarray) -> np.ndarray:
        return targets

    def _held_out_targets(self, candidate: NetworkEstimator, y: Any) -> np.ndarray | Tensor:
        return candidate.targets_.encode(np.asarray(y))


def _take(values: Any, rows: np.ndarray) -> Any:
    """Some rows of an array or a table."""
    return values.take(rows) if isinstance(values, EncodedTable) else _safe_indexing(values, rows)
