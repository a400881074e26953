"""The base class of all estimators: from arrays or tables to a fitted network.

Inputs and real targets are standardised. Predictions use posterior draws that the seed of the fit determines, so a row has
the same prediction alone and among a million others. Equal rows are merged into one row with a weight before anything is
computed, so weighted rows and repeated rows give identical results. All computations are in float64, which for networks of
this size costs a third more than float32.
"""

from __future__ import annotations

import copy
import dataclasses
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from sklearn.utils import check_array, check_consistent_length, check_random_state, check_scalar
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from inducing.arrays import as_tensor
from inducing.checks import check_device, check_known, check_whole, refuse_inference_mode
from inducing.data.standardise import Standardiser
from inducing.estimators.likelihoods import EXACT, Choice, check_counts
from inducing.estimators.predicting import PredictingEstimator
from inducing.estimators.rows import DistinctRows, merge_equal_rows
from inducing.estimators.targets import check_finite_rows, observed_rows
from inducing.estimators.training import Rows, Training, count_rows
from inducing.inference.callbacks import Callback
from inducing.inference.history import History
from inducing.inference.inducing_points import choose_inducing_points
from inducing.inference.objective import evaluate
from inducing.inference.parallel.ranks import join
from inducing.inference.recipes import Recipe, as_recipe
from inducing.inference.row_file import RowFile
from inducing.inference.time_budget import Clock
from inducing.inference.updating import update
from inducing.nn.likelihoods import Gaussian, HeteroscedasticGaussian, Likelihood
from inducing.nn.network import Network
from inducing.nn.posteriors import OptimalInducing, Posterior, posteriors_for_layers
from inducing.tables.errors import TableWarning
from inducing.tables.schema import EncodedTable, Schema, learn_schema
from inducing.threads import threads_of_user, using_threads

# posterior samples for the ELBO after training
ELBO_SAMPLES = 50
IMPUTE = ", or impute: SimpleImputer() in a pipeline, or schema=Schema.of(table) for a table"


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class NetworkEstimator(PredictingEstimator):
    """An estimator around a network. Its fields are the parameters of scikit-learn's `get_params`."""

    posterior: Any = "auto"
    num_inducing: int | Literal["auto"] = "auto"
    likelihood: str = "auto"
    recipe: Recipe | str = "fast"
    max_steps: int | None = None
    batch_size: int = 1000
    patience: int | None = 250
    time_budget: float | None = None
    n_samples: int = 100
    schema: Schema | None = None
    warm_start: bool = False
    random_state: Any = None
    device: str = "cpu"
    verbose: bool = False

    # the likelihood for "auto"
    auto_likelihood: ClassVar[str]
    # by default, up to this many rows are all inducing points of a network with an exact last layer
    exact_rows: ClassVar[int]

    @abstractmethod
    def _make_network(self, features: int, outputs: int, num_rows: int, exact: bool, **settings: Any) -> Network:
        """Make the untrained network. Its last layer is exact given those below, or learned.

        Arguments:
            features: Number of inputs.
            outputs: Number of outputs.
            num_rows: Number of distinct rows.
            exact: Whether the last layer is exact.
            settings: Inducing points, their targets, and the generator, as `inducing.models` take them.
        """

    @abstractmethod
    def _fast_recipe(self, num_rows: int, num_data: float) -> Recipe:
        """The recipe "fast" of this kind of network for a number of distinct rows, and the sum of their weights."""

    @abstractmethod
    def _learn_targets(self, y: np.ndarray, weights: Float[np.ndarray, " N"], choice: Choice) -> Any:
        """Learn the encoding of the targets for a likelihood."""

    @abstractmethod
    def _effect_targets(self, y: np.ndarray, weights: Float[np.ndarray, " N"] | None = None) -> pd.DataFrame:
        """The numbers on which text columns with many levels have effects."""

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        eval_set: tuple[Any, ...] | None = None,
        callbacks: Callback | Sequence[Callback] = (),
    ) -> Self:
        """Fit the network to data.

        Arguments:
            X: Inputs (N, D): an array or a pandas.DataFrame. A `Schema` encodes the text and the dates of a table.
            y: Targets (N,). Regressors also accept several targets (N, O), and counts as whole numbers. NaN in some of
                several targets are missing: they are left out of the likelihood. Classifiers accept labels of any type.
            sample_weight: Multiplies the log-likelihood of each row: a row of weight 2 counts as two. Classes with zero
                total weight are dropped.
            eval_set: Further rows (X, y), or (X, y, weights), which are not trained on. Training ends with the parameters
                under which they have the highest log-likelihood. They also choose the temperature and the noise of a neural
                network that is trained in stages, so they are not test rows.
            callbacks: Functions of the `Record` of each step, or of the record, the network and the likelihood, as in
                `inducing.fit`. If training has stages, steps start again in each stage, and a callback that returns True
                ends the present stage.
        """
        before = dict(vars(self))
        try:
            # checks and initial values are small computations; training and evaluation choose their threads themselves
            with using_threads(threads_of_user() or 1):
                self._fit(X, y, sample_weight, eval_set, callbacks)
        except BaseException:
            # an error or Ctrl-C leaves the estimator as it was
            self.__dict__ = before
            raise
        return self

    def update(self, X: Any, y: Any, num_steps: int | None = None) -> Self:
        """Condition the fitted model on new rows, without a new fit.

        Without ``num_steps`` the last layer is updated exactly given the layers below (`inducing.update`). Scales, the other
        layers and the noise stay as they are. Targets must be real. Noise that is not Gaussian counts as Gaussian with the
        same variance. Call it again for more rows. An updated estimator is saved and exported with its update: the file
        contains the new rows.

        Arguments:
            X: New inputs.
            y: Their targets.
            num_steps: Number of gradient steps, e.g. 500. The whole network then learns from the new rows, and from those of
                earlier updates, with its posterior in place of the prior. The rows of the fit are not needed. Classifiers
                and counts can be updated in this way, too. ``elbo_`` and ``history_`` stay those of the fit. A model with
                an exact last layer, which few rows have by default, cannot learn by steps: set ``num_inducing`` before
                the fit. Default: none.
        """
        check_is_fitted(self, "network_")
        x, targets = self._encode_rows(X, y)
        rows = x.to(self.network_.device), targets.to(self.network_.device)
        if num_steps is None:
            self.updated_ = update(self.predictor, self.likelihood_, rows)
            return self
        if self.network_.optimal_last is not None:
            raise ValueError(
                "this model has an exact last layer, as models of few rows have by default, and cannot learn by gradient "
                "steps. Call update without num_steps, or set num_inducing before fit, e.g. num_inducing=100."
            )
        settings = {"batch_size": self.batch_size, "seed": self.seed_, "progress": bool(self.verbose)}
        with using_threads(threads_of_user() or 1):
            self.network_ = update(self.predictor, self.likelihood_, rows, num_steps, **settings)
        self._forget_update()
        return self

    def _forget_update(self) -> None:
        """Remove the rows of earlier updates."""
        if "updated_" in vars(self):
            del self.updated_

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        eval_set: tuple[Any, ...] | None,
        callbacks: Callback | Sequence[Callback],
    ) -> None:
        self._forget_update()
        continues = self.warm_start and "network_" in vars(self)
        if continues and self.network_.optimal_last is not None:
            advice = "Set warm_start=True before the first fit, with a posterior that is not optimal"
            raise ValueError(f"warm_start cannot continue from an exact last layer. {advice}.")
        # errors that would otherwise appear after training
        refuse_inference_mode("fit")
        device = check_device(self.device)
        check_scalar(self.n_samples, "n_samples", Integral, min_val=1)
        eval_set = None if eval_set is None else check_eval_set(eval_set)
        rows, y, counts, _ = self._merge_rows(X, y, sample_weight, reset=not continues)
        if continues:
            # the networks that the estimator has now stay as they are until the fit has ended
            self.network_, self.likelihood_ = copy.deepcopy((self.network_, self.likelihood_))
        else:
            self._build(rows, y, counts)
        x, targets = self.inputs_.apply(rows, torch.float64), self.targets_.encode(y)
        data: Rows = (x, targets) if (counts == 1).all() else (x, targets, as_tensor(counts))
        self.network_.to(device)
        self.likelihood_.to(device)
        held_out = None if eval_set is None else self._encode_held_out(*eval_set)
        self._run(data, float(counts.sum()), held_out, callbacks)
        self._evaluate(data)

    def _run(
        self,
        data: Rows | RowFile,
        num_data: float,
        held_out: Rows | None,
        callbacks: Callback | Sequence[Callback] = (),
        checkpoint: Path | None = None,
    ) -> None:
        """Train the network on rows whose weights have the sum ``num_data``."""
        clock = Clock(self.time_budget, checkpoint)
        recipe = self._make_recipe(count_rows(data), num_data)
        training = Training(
            data,
            recipe,
            held_out,
            seed=self.seed_,
            clock=clock,
            callbacks=callbacks,
            checkpoint=checkpoint,
            progress=bool(self.verbose),
            name=type(self).__name__,
        )
        self.history_ = self._train(training, self.network_, self.likelihood_)
        self.limited_by_time_ = clock.is_limiting
        self.used_all_steps_ = len(self.history_) >= recipe.num_steps

    def _evaluate(self, data: Rows) -> None:
        """Evaluate the ELBO of the fitted network."""
        terms = evaluate(self.network_, self.likelihood_, data, ELBO_SAMPLES, self.seed_, self.batch_size)
        self.elbo_ = float(terms.elbo_per_datapoint)

    def _train(self, training: Training, network: Network, likelihood: Likelihood) -> History:
        """Train a network and a likelihood. Held-out rows, if there are any, stop the training."""
        return training.fit_in_time(network, likelihood)

    def _encode_rows(self, X: Any, y: Any) -> tuple[Tensor, Tensor]:
        """Rows as the network and the likelihood take them."""
        y = self.encoding.check(y, type(self).__name__)
        check_consistent_length(X, y)
        return self.inputs_.apply(self._encode(X, reset=False), torch.float64), self.targets_.encode(y)

    def _encode_held_out(self, X: Any, y: Any, weights: Any = None) -> Rows:
        """Held-out rows as training takes them."""
        x, targets = self._encode_rows(X, y)
        if weights is None:
            return x, targets
        return x, targets, as_tensor(_check_sample_weight(weights, X, dtype=np.float64, ensure_non_negative=True))

    def _count_inducing(self, num_rows: int) -> int | Literal["auto"]:
        """The number of inducing points that are not all rows."""
        return self.num_inducing

    def _merge_rows(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> DistinctRows:
        """Check the data, and merge equal rows.

        The result does not depend on the order of the rows. Rows of weight zero and rows without targets are dropped.
        """
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        y = self.encoding.check(y, type(self).__name__)
        check_consistent_length(X, y)
        has_targets = observed_rows(y)
        weights = _check_sample_weight(sample_weight, y, dtype=np.float64, ensure_non_negative=True)
        if not (weights > 0).any():
            raise ValueError("all sample weights are zero")
        positive = (weights > 0) & has_targets
        if not positive.any():
            raise ValueError("no row with a positive weight has a target")
        rows = self._encode(X, reset, y, np.where(positive, weights, 0.0))
        if weights.sum() < positive.sum() / 10:
            total = f"the weights of {positive.sum()} rows sum to {weights.sum():.3g}"
            warnings.warn(f"{total}. Weights are counts of rows: scale them to mean 1.", stacklevel=4)
        return merge_equal_rows(rows[positive], y[positive], weights[positive])

    def _auto_likelihood(self, num_rows: int) -> str:
        """The name of the likelihood for a number of rows, if none is given."""
        return self.auto_likelihood

    def _choice(self, y: np.ndarray, weights: Float[np.ndarray, " N"], num_rows: int) -> Choice:
        """The likelihood that `likelihood` names, for these targets."""
        name, optimal = self.likelihood, self._optimal_posterior()
        exact = None if optimal is None else EXACT[optimal.heteroscedastic]
        if is_auto(name):
            name = exact if exact in self.likelihoods else self._auto_likelihood(num_rows)
        if not isinstance(name, str):
            raise TypeError(f"likelihood must be a name, e.g. {self.auto_likelihood!r}, got {name!r}")
        check_known("likelihood", name, ("auto", *self.likelihoods))
        if exact not in (None, name):
            raise ValueError(f"{optimal} does not support the likelihood {name!r}. Use {exact!r} in a regressor.")
        return self.likelihoods[name]

    def _make_recipe(self, num_rows: int, num_data: float) -> Recipe:
        recipe = self._fast_recipe(num_rows, num_data) if self.recipe == "fast" else as_recipe(self.recipe)
        num_steps = recipe.num_steps if self.max_steps is None else check_whole("max_steps", self.max_steps)
        return recipe.replace(num_steps=num_steps, batch_size=self.batch_size, patience=self.patience)

    def _optimal_posterior(self) -> OptimalInducing | None:
        """The optimal posterior of the last layer, if `posterior` names one."""
        posterior = self.posterior.tolist() if isinstance(self.posterior, np.ndarray) else self.posterior
        if not isinstance(posterior, str | Posterior | type | Sequence) or not posterior:
            raise TypeError(
                "posterior must be a name, a Posterior, or a list with one for each layer, e.g. 'global', got "
                f"{posterior!r}"
            )
        last = posterior[-1] if isinstance(posterior, Sequence) and not isinstance(posterior, str) else posterior
        found = None if is_auto(last) else posteriors_for_layers(last, 2)[-1]
        return found if isinstance(found, OptimalInducing) else None

    def _build(
        self, rows: Float[np.ndarray, "N D"], y: np.ndarray, counts: Float[np.ndarray, " N"], total: int | None = None
    ) -> None:
        """Learn the scales of the data, choose inducing points, and make the network and the likelihood.

        The rows are all rows, or a sample of a total number, which rules out an exact last layer.
        """
        # under torchrun the seed of rank 0: without a random_state they differ
        self.seed_ = join().broadcast(int(check_random_state(self.random_state).randint(2**31 - 1)))
        choice = self._choice(y, counts, total or len(rows))
        check_counts(self.likelihood, y)
        self.inputs_ = Standardiser.of(rows, counts)
        if self.schema_ is not None:
            self.inputs_ = self.schema_.balance(self.inputs_)
        self.targets_ = self._learn_targets(y, counts, choice)
        x, targets = self.inputs_.apply(rows, torch.float64), self.targets_.encode(y)
        outputs = choice.outputs * self.targets_.num_outputs
        self.likelihood_ = choice.make(self.targets_.num_outputs).double()
        self.likelihood_.check_targets(targets, (outputs,))
        automatic = is_auto(self.posterior) and is_auto(self.num_inducing) and not self.warm_start
        is_normal = isinstance(self.likelihood_, Gaussian | HeteroscedasticGaussian)
        exact = automatic and is_normal and len(x) <= self.exact_rows and total is None
        exact, num_rows = exact or self._optimal_posterior() is not None, total or len(x)
        count = len(x) if exact else self._count_inducing(num_rows)
        points, values = choose_inducing_points(x, targets, count, seed=self.seed_)
        # initial pseudo-outputs of missing targets are the mean; an exact last layer leaves them out
        values = values if exact else torch.where(values.isnan(), torch.zeros_like(values), values)
        settings: dict[str, Any] = {"inducing_points": points, "inducing_targets": choice.initial(values)}
        # its own generator: all threads share torch's global one
        settings |= {"learn_inducing_locations": not exact, "generator": torch.Generator().manual_seed(self.seed_)}
        self.network_ = self._make_network(x.shape[1], outputs, num_rows, exact, **settings)

    def _encode(
        self, X: Any, reset: bool, y: np.ndarray | None = None, weights: Float[np.ndarray, " N"] | None = None
    ) -> Float[np.ndarray, "N D"]:
        """Convert arrays and tables to numbers, and check them against the inputs of the fit.

        Training rows have targets, and weights, by default 1. Those of weight zero have no influence.
        """
        learns_schema = reset and self.schema is None and has_text(X)
        if reset:
            self.schema_ = self.schema
        has_effects = self.schema_ is not None and self.schema_.has_effects
        targets = None if y is None or not (learns_schema or has_effects) else self._targets_of_rows(y, weights)
        if learns_schema:
            _warn_of_missing(X)
            X = learn_schema(X, targets=targets, weights=weights)
            self.schema_ = X.schema
        if self.schema_ is None:
            rows = validate_data(self, X, reset=reset, dtype=np.float64, force_writeable=True, ensure_all_finite=False)
        else:
            if reset:
                self.n_features_in_ = len(self.schema_.names)
                self.feature_names_in_ = np.array(self.schema_.names, dtype=object)
            is_encoded = isinstance(X, EncodedTable)
            encoded = X.with_effects_of(self.schema_) if is_encoded else self.schema_.encode_table(X)
            if targets is None:
                rows = encoded.to_numpy()
            else:
                # the effects are those in the rows of the fit, also if they were known from other rows
                schema, rows = encoded.learn_effects(targets, weights)
                self.schema_ = schema if reset else self.schema_
            rows = check_array(rows, ensure_all_finite=False)
        check_finite_rows("X", rows, IMPUTE)
        return rows

    def _targets_of_rows(self, y: np.ndarray, weights: Float[np.ndarray, " N"] | None) -> pd.DataFrame:
        """The numbers on which levels have effects, missing in rows of weight zero."""
        weights = np.ones(len(y)) if weights is None else weights
        used = np.flatnonzero(weights > 0)
        return self._effect_targets(y[used], weights[used]).set_axis(used).reindex(range(len(y)))


def check_eval_set(eval_set: object) -> tuple[Any, ...]:
    """Raise an error if held-out rows are not a pair or, with weights, a triple."""
    if not isinstance(eval_set, tuple | list) or len(eval_set) not in (2, 3):
        raise TypeError(f"eval_set must be a pair (X, y), or (X, y, weights), got a {type(eval_set).__name__}")
    return tuple(eval_set)


def _warn_of_missing(table: pd.DataFrame) -> None:
    missing = [f"{name!r} ({count})" for name, count in table.isna().sum().items() if count]
    if missing:
        rest = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        warnings.warn(f"missing values are imputed in {', '.join(missing[:8])}{rest}", TableWarning, stacklevel=6)


def has_text(X: object) -> bool:
    """Whether a table has columns that are not numbers."""
    return isinstance(X, pd.DataFrame) and not all(pd.api.types.is_numeric_dtype(dtype) for dtype in X.dtypes)


def is_auto(setting: object) -> bool:
    """Whether a setting is "auto". It may also be an array, which cannot be compared."""
    return isinstance(setting, str) and setting == "auto"
