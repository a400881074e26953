"""What all estimators share: from arrays or tables to a fitted network, and from there to frozen draws.

Inputs and real targets are standardised inside. Predictions are made from draws that the seed of the fit decides, so a row
has the same prediction alone and among a million others. Equal rows are made one that counts as often before anything is
computed, so that weights of rows equal repeated rows to the last digit. All of it is in float64, which for networks of this
size costs a third more than float32.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state, check_scalar
from sklearn.utils.validation import _check_sample_weight, check_array, check_is_fitted, validate_data
from torch import Generator, Tensor

from inducing.arrays import as_tensor
from inducing.checks import check_device, refuse_inference_mode
from inducing.data.schema import Schema
from inducing.data.standardise import Standardiser
from inducing.estimators.functions import SampledFunctions, seed_of
from inducing.estimators.rows import has_text, merge, warn_of_light_rows
from inducing.estimators.state import (
    check_names,
    check_parts,
    parameters_from_json,
    schema_from_json,
    standardiser_from,
    to_json,
)
from inducing.estimators.targets import Choice
from inducing.inference.distributed import join
from inducing.inference.history import History
from inducing.inference.inducing_points import choose_inducing_points
from inducing.inference.objective import evaluate
from inducing.inference.recipes import Recipe
from inducing.inference.training import fit
from inducing.nn.draw import FunctionSamples
from inducing.nn.likelihoods import Gaussian, HeteroscedasticGaussian, Likelihood
from inducing.nn.network import Network
from inducing.nn.posteriors import OptimalInducing, Posterior, posteriors_for_layers
from inducing.nn.sites import DEFAULT_NUM_INDUCING
from inducing.prediction.predictive import Predictive
from inducing.saving.specifications import shown, take

# numbers that one batch of predictions may hold at a time
BATCH_NUMBERS = 2**23
# posterior samples for the ELBO after training
ELBO_SAMPLES = 50


class NetworkEstimator(BaseEstimator, ABC):
    """An estimator around a network: its constructor only stores, `fit` does everything."""

    # those that a fitted estimator may have, by name
    likelihoods: ClassVar[dict[str, Choice]]
    # declared for the type checker; constructors list them, as scikit-learn asks
    posterior: Any
    num_inducing: int | Literal["auto"]
    likelihood: str
    recipe: Recipe | str
    max_steps: int | None
    batch_size: int
    patience: int | None
    n_samples: int
    schema: Schema | None
    warm_start: bool
    random_state: Any
    device: str
    verbose: bool

    network_: Network
    likelihood_: Likelihood
    history_: History
    elbo_: float
    seed_: int
    inputs_: Standardiser
    schema_: Schema | None
    n_features_in_: int
    feature_names_in_: np.ndarray

    @abstractmethod
    def _network(
        self, features: int, outputs: int, points: Tensor, targets: Tensor, exact: bool, generator: Generator
    ) -> Network:
        """Make the network at its first parameters, with an exact last layer or one that is learned."""

    @abstractmethod
    def _recipe(self, num_data: float) -> Recipe:
        """The recipe as the user named it, with what this kind of network wants otherwise for so many rows."""

    @abstractmethod
    def _takes_all(self, rows: int) -> bool:
        """Whether so many rows are all inducing points, and the last layer is exact given those below."""

    @abstractmethod
    def _width(self) -> int:
        """Numbers that a prediction holds for each row and draw, about."""

    @abstractmethod
    def _choice(self) -> Choice:
        """The likelihood that was asked for."""

    @abstractmethod
    def _learn_targets(self, y: Any, weights: Float[np.ndarray, " N"] | None) -> tuple[Tensor, int]:
        """Remember what is needed of the targets; return them as the network sees them, and how many a row has."""

    @abstractmethod
    def _target_state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What was remembered of the targets, as JSON and tensors."""

    @abstractmethod
    def _restore_targets(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> int:
        """The inverse of `_target_state`: take the tensors out, and return how many targets or classes there are."""

    @abstractmethod
    def _predictive(self, outputs: Float[Tensor, "S B O"], likelihood: Likelihood) -> Predictive:
        """The prediction on the scale of the targets."""

    @abstractmethod
    def _values(self, predictive: Predictive) -> Float[np.ndarray, "S B *O"]:
        """The mean of the targets for each draw, shaped as the user's targets are."""

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        """Fit to checked targets, and to inputs that are still to be checked."""
        continues = self.warm_start and "network_" in self.__dict__
        if continues and self.network_.optimal_last is not None:
            raise ValueError(
                "this network has an exact last layer for the rows of its first fit, so warm_start cannot go on from it; "
                'set warm_start=True before the first fit, with posterior "auto" or another that is not optimal'
            )
        # what would fail only after training
        refuse_inference_mode("fit")
        device = check_device(self.device)
        check_scalar(self.n_samples, "n_samples", Integral, min_val=1)
        rows = self._encode(X, reset=not continues)
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
            if not weights.any():
                raise ValueError("all sample weights are zero: there is nothing to learn from")
            # a row of weight zero is a row that is not there
            rows, y, weights = rows[weights > 0], y[weights > 0], weights[weights > 0]
            warn_of_light_rows(weights)
        # before anything is computed from them, so that rows with weights and repeated rows are the same to the last digit
        rows, y, counts = merge(rows, y, weights)
        if not continues:
            # under torchrun that of rank 0: without a random_state each would have another
            self.seed_ = join().broadcast(int(check_random_state(self.random_state).randint(2**31 - 1)))
            self.inputs_ = Standardiser.of(rows, counts)
        targets, number = self._learn_targets(y, counts)
        x, num_data = self.inputs_.apply(rows, torch.float64), float(counts.sum())
        data = (x, targets) if (counts == 1).all() else (x, targets, as_tensor(counts))
        if not continues:
            self._build(x, targets, number)
        changes = {"batch_size": self.batch_size, "patience": self.patience, "num_steps": self.step_limit}
        self.history_ = fit(
            self.network_.to(device),
            self.likelihood_.to(device),
            data,
            self._recipe(num_data).replace(**changes),
            seed=self.seed_,
            progress=bool(self.verbose),
            description=type(self).__name__,
        )
        terms = evaluate(self.network_, self.likelihood_, data, ELBO_SAMPLES, self.seed_, self.batch_size)
        self.elbo_ = float(terms.elbo_per_datapoint)

    def _asked_optimum(self) -> OptimalInducing | None:
        """The optimal last layer that was asked for, if it was."""
        last = self.posterior if isinstance(self.posterior, str | Posterior | type) else self.posterior[-1]
        found = None if is_auto(last) else posteriors_for_layers(last, 2)[-1]
        return found if isinstance(found, OptimalInducing) else None

    @property
    def _has_classes(self) -> bool:
        return self._choice().make(1).support == "classes"

    @property
    def step_limit(self) -> int:
        """Gradient steps at most: ``max_steps``, or those of the recipe."""
        return self._recipe(1).num_steps if self.max_steps is None else self.max_steps

    @property
    def built(self) -> str:
        """What `fit` built where settings left it open, in words."""
        check_is_fitted(self, "network_")
        points, likelihood = self.network_.num_inducing, type(self.likelihood_).__name__
        if points is None:
            return f"{likelihood} likelihood, no global inducing points"
        kind = "all distinct rows, with an exact last layer" if self.network_.optimal_last is not None else "learned"
        return f"{likelihood} likelihood, {points} global inducing points: {kind}"

    def _build(self, x: Float[Tensor, "N D"], targets: Tensor, number: int) -> None:
        """Choose inducing points and make network and likelihood."""
        choice = self._choice()
        self.likelihood_ = choice.make(number).double()
        self.likelihood_.check_targets(targets, (choice.outputs * number,))
        exact = self._takes_all(len(x))
        asked = self._asked_optimum()
        if asked is not None and not isinstance(
            self.likelihood_, HeteroscedasticGaussian if asked.heteroscedastic else Gaussian
        ):
            raise ValueError(
                f'the posterior {asked} is not for the likelihood {type(self.likelihood_).__name__}: "...->optimal" is for '
                '"gaussian" noise, and OptimalInducing(heteroscedastic=True) at the end of a list for "heteroscedastic"; '
                'posterior="auto" takes the one that fits'
            )
        if exact:
            points, values = x.clone(), targets
        else:
            count = DEFAULT_NUM_INDUCING if self.num_inducing == "auto" else self.num_inducing
            points, values = choose_inducing_points(x, targets, count, seed=self.seed_)
        # a generator of its own: torch's global one is shared by all threads
        generator, outputs = torch.Generator().manual_seed(self.seed_), choice.outputs * number
        self.network_ = self._network(x.shape[1], outputs, points, choice.start(values), exact, generator)

    def _encode(self, X: Any, reset: bool) -> Float[np.ndarray, "N D"]:
        """Turn arrays, or tables by the schema, into numbers; check that they fit what the estimator was fitted to."""
        if reset:
            self.schema_ = self.schema
            if self.schema is None and has_text(X):
                self.schema_ = Schema.of(X)
        if self.schema_ is None:
            return validate_data(self, X, reset=reset, dtype=np.float64, force_writeable=True)
        if reset:
            self.n_features_in_ = len(self.schema_.names)
            self.feature_names_in_ = np.array(self.schema_.names, dtype=object)
        return check_array(self.schema_.encode(X))

    def _draw(self, n_samples: int, seed: int) -> tuple[FunctionSamples, Likelihood]:
        """Draw frozen functions, and the likelihood that goes with them."""
        self.network_.tie(self.likelihood_)
        likelihood = copy.deepcopy(self.likelihood_).requires_grad_(False)
        return self.network_.sample_functions(n_samples, seed), likelihood.cpu()

    def _run(
        self, rows: Float[np.ndarray, "N D"], functions: FunctionSamples, n_samples: int
    ) -> Iterator[Float[Tensor, "S B O"]]:
        """Run drawn functions on rows, a batch at a time."""
        batch_size = max(1, BATCH_NUMBERS // (int(n_samples) * self._width()))
        device = self.network_.device
        for batch in np.array_split(rows, max(1, math.ceil(len(rows) / batch_size))):
            with torch.no_grad():
                yield functions(self.inputs_.apply(batch, torch.float64).to(device)).cpu()

    def _batches(self, X: Any) -> Iterator[Predictive]:
        """Predictions from the draws of the fit, a batch of rows at a time, so that memory is bounded."""
        check_is_fitted(self, "network_")
        rows = self._encode(X, reset=False)
        functions, likelihood = self._draw(self.n_samples, self.seed_)
        for outputs in self._run(rows, functions, self.n_samples):
            yield self._predictive(outputs, likelihood)

    def _collect(self, X: Any, what: Callable[[Predictive], Tensor], axis: int = 0) -> np.ndarray:
        """One figure of the predictions of all rows."""
        return np.concatenate([what(predictive).numpy() for predictive in self._batches(X)], axis=axis)

    def predict_distribution(self, X: Any) -> Predictive:
        """The whole predictive distribution of each row: epistemic and aleatoric variance, densities, quantiles.

        It holds the outputs of all draws, ``n_samples`` numbers for each row and output.
        """
        parts = list(self._batches(X))
        return dataclasses.replace(parts[0], outputs=torch.cat([part.outputs for part in parts], 1), seed=self.seed_)

    def sample_functions(self, n_samples: int = 1, random_state: Any = 0) -> SampledFunctions:
        """Draw whole functions from the posterior, to be used at any rows, as often as one likes.

        A function gives the mean of the targets, without noise; for classes their probabilities.

        Arguments:
            n_samples: Number of functions.
            random_state: Decides which.
        """
        check_is_fitted(self, "network_")
        functions, likelihood = self._draw(n_samples, seed_of(random_state))
        return SampledFunctions(self, functions, likelihood, n_samples)

    def to_state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """All of a fitted estimator except its network and its likelihood, as JSON and tensors."""
        check_is_fitted(self, "network_")
        names = getattr(self, "feature_names_in_", None)
        state = {
            "class": type(self).__name__,
            "parameters": {name: to_json(name, value) for name, value in self.get_params(deep=False).items()},
            "schema": None if self.schema_ is None else self.schema_.to_json(),
            "feature_names": None if names is None else [str(name) for name in names],
            "num_features": int(self.n_features_in_),
            "seed": self.seed_,
            "elbo": self.elbo_,
        }
        moments = {"inputs.mean": self.inputs_.mean, "inputs.std": self.inputs_.std}
        targets, more = self._target_state()
        return state | {"targets": targets}, moments | more | {"history": self.history_.to_tensor()}

    @classmethod
    def from_state(
        cls, state: dict[str, Any], tensors: dict[str, Tensor], network: Network, likelihood: Likelihood
    ) -> NetworkEstimator:
        """The inverse of `to_state`, with the network and the likelihood of the estimator.

        What does not fit together is refused, so that all of it may come from a file of doubtful origin.
        """
        if state.get("class") != cls.__name__:
            raise ValueError(f"the state is that of a {shown(state.get('class'))}, not of a {cls.__name__}")
        types: dict[str, Any] = {"class": str, "parameters": dict, "schema": list | None, "feature_names": list | None}
        types |= {"num_features": int, "seed": int, "elbo": float, "targets": dict}
        _, parameters, schema, names, features, seed, elbo, targets = take(state, cls.__name__, **types)
        estimator = cls(**parameters_from_json(cls, parameters))
        estimator.schema_ = None if schema is None else schema_from_json(schema)
        check_names(estimator.schema_, names, features)
        if names is not None:
            estimator.feature_names_in_ = np.array(names, dtype=object)
        if not 0 <= seed < 2**31:
            raise ValueError(f"seed cannot be {seed}")
        estimator.n_features_in_, estimator.seed_, estimator.elbo_ = features, seed, elbo
        columns = features if estimator.schema_ is None else len(estimator.schema_.encoded_names)
        left = dict(tensors)
        estimator.inputs_ = standardiser_from(left, "inputs", columns)
        estimator.history_ = History.from_tensor(left.pop("history", torch.empty(0)), len(network.layer_names))
        number = estimator._restore_targets(targets, left)
        if left:
            raise ValueError(f"the tensor {shown(sorted(left)[0])} belongs to nothing")
        check_parts(network, likelihood, columns, number, cls.likelihoods, cls.__name__)
        estimator.network_, estimator.likelihood_ = network, likelihood
        return estimator

    def _sample(self, X: Any, n_samples: int, random_state: Any) -> Tensor:
        """Draw targets with their noise, (S, N, ...): the rows of one sample share a function."""
        check_is_fitted(self, "network_")
        rows, seed = self._encode(X, reset=False), seed_of(random_state)
        functions, likelihood = self._draw(n_samples, seed)
        outputs = torch.cat(list(self._run(rows, functions, n_samples)), 1)
        return dataclasses.replace(self._predictive(outputs, likelihood), seed=seed).samples


def is_auto(setting: object) -> bool:
    """Whether a setting is left to the estimator; it may also be a list or an array."""
    return isinstance(setting, str) and setting == "auto"
