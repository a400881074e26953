"""The fitted attributes of an estimator, and its state: all but the network and the likelihood, as JSON and tensors.

A state may come from a file that is wrong or hostile. All of it is checked against what an estimator has, and its parts
against each other.
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from inducing.data.standardise import Standardiser
from inducing.estimators.likelihoods import Choice
from inducing.estimators.targets import LabelTargets, NumericTargets, decode_scale, encode_scale
from inducing.inference.history import History
from inducing.inference.updating import UpdatedNetwork, check_gaussian_noise, check_new_data
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.saving.registry import State, Tensors
from inducing.saving.values import decode_value, encode_value, fits, shorten, take
from inducing.tables.schema import Schema

STATE: dict[str, Any] = {
    "class": str, "parameters": dict, "schema": list | None, "feature_names": list[str] | None, "num_features": int,
    "seed": int, "elbo": float, "bound": str, "targets": dict,
}  # fmt: skip


# the steps and scores of held-out rows, if there were any
HELD_OUT = "history.held_out"
# tensors of an updated estimator: the new inputs and targets, as the network takes them
UPDATE = ("update.x", "update.y")


class FittedEstimator(BaseEstimator):
    """What `fit` learns, and how it is saved."""

    network_: Network
    likelihood_: Likelihood
    inputs_: Standardiser
    targets_: NumericTargets | LabelTargets
    history_: History
    schema_: Schema | None
    n_features_in_: int
    feature_names_in_: np.ndarray
    seed_: int
    elbo_: float
    updated_: UpdatedNetwork
    # whether the time budget shortened the last fit, and whether it took all steps of its recipe; they are not saved
    limited_by_time_: bool
    used_all_steps_: bool

    # the likelihoods of fitted estimators by name, and the encoding of their targets
    likelihoods: ClassVar[dict[str, Choice]]
    encoding: ClassVar[type[NumericTargets] | type[LabelTargets]]

    @property
    def input_names(self) -> list[str] | None:
        """The names of the inputs, if the estimator was fitted to a table."""
        names = vars(self).get("feature_names_in_")
        return None if names is None else [str(name) for name in names]

    @property
    def num_encoded(self) -> int:
        """The number of inputs after text and dates are encoded."""
        return int(self.n_features_in_) if self.schema_ is None else len(self.schema_.encoded_names)

    @property
    def predictor(self) -> Network | UpdatedNetwork:
        """The fitted network, with the rows of `update` if there are any."""
        return vars(self).get("updated_", self.network_)

    def to_state(self) -> State:
        """A fitted estimator without its network and likelihood, as JSON and tensors."""
        check_is_fitted(self, "network_")
        targets, tensors = self.targets_.to_state()
        state = {
            "class": type(self).__name__,
            "parameters": {name: _encode_parameter(name, value) for name, value in self.get_params(deep=False).items()},
            "schema": None if self.schema_ is None else self.schema_.to_json(),
            "feature_names": self.input_names,
            "num_features": int(self.n_features_in_),
            "seed": self.seed_,
            "elbo": self.elbo_,
            "bound": self.history_.bound,
            "targets": targets,
        }
        tensors |= encode_scale("inputs", self.inputs_) | {"history": self.history_.to_tensor()}
        updated = vars(self).get("updated_")
        new_rows = {} if updated is None else dict(zip(UPDATE, (updated.x, updated.y), strict=True))
        if self.history_.held_out:
            tensors[HELD_OUT] = torch.tensor(self.history_.held_out, dtype=torch.float64)
        return state, tensors | new_rows | self._further_tensors()

    @classmethod
    def from_state(cls, state: dict[str, Any], tensors: Tensors, network: Network, likelihood: Likelihood) -> Self:
        """The inverse of `to_state`, with the network and the likelihood of the estimator.

        Parts that do not fit each other are refused, so that all of it may come from an untrusted file.
        """
        # files of earlier versions do not name the bound
        state = {"bound": "ELBO"} | state
        name, parameters, columns, names, num_features, seed, elbo, bound, targets = take(state, cls.__name__, **STATE)
        if name != cls.__name__:
            raise ValueError(f"the state is that of a {shorten(name)}, not of a {cls.__name__}")
        schema = None if columns is None else Schema.from_json(columns)
        if schema is not None and names != list(schema.names):
            raise ValueError(f"names of inputs are {shorten(names)}, but the schema has {shorten(schema.names)}")
        if num_features < 1 or (names is not None and len(names) != num_features):
            raise ValueError(f"num_features cannot be {num_features} for inputs with the names {shorten(names)}")
        if not 0 <= seed < 2**31:
            raise ValueError(f"seed cannot be {seed}")
        num_inputs = num_features if schema is None else len(schema.encoded_names)
        estimator = cls(**_decode_parameters(parameters))
        num_inputs = estimator._restore_further(tensors, num_inputs)
        # the rows of `update`, if there are any
        new_rows = UPDATE if any(name in tensors for name in UPDATE) else ()
        known = ("inputs.mean", "inputs.std", *cls.encoding.tensors, "history", *new_rows)
        known += (HELD_OUT,) if HELD_OUT in tensors else ()
        known += tuple(estimator._further_tensors())
        take(tensors, f"the state of a {cls.__name__}", **dict.fromkeys(known, Tensor))
        estimator.network_, estimator.likelihood_ = network, likelihood
        estimator.inputs_ = decode_scale("inputs", tensors, num_inputs)
        estimator.targets_ = cls.encoding.from_state(targets, tensors)
        estimator.history_ = History.from_tensor(tensors["history"], len(network.layer_names))
        estimator.history_.bound = bound
        if HELD_OUT in tensors:
            estimator.history_.held_out = _decode_held_out(tensors[HELD_OUT])
        estimator.schema_, estimator.n_features_in_ = schema, num_features
        estimator.seed_, estimator.elbo_ = seed, elbo
        if names is not None:
            estimator.feature_names_in_ = np.array(names, dtype=object)
        estimator._check_parts(num_inputs)
        if new_rows:
            estimator.updated_ = _restore_update(network, likelihood, *(tensors[name] for name in new_rows))
        return estimator

    @property
    def _further_inputs(self) -> nn.Module | None:
        """Inputs of the network that are computed from the others, if there are any: a function of the rows."""
        return None

    def _further_tensors(self) -> Tensors:
        """The tensors of the further inputs."""
        return {}

    def _restore_further(self, tensors: Tensors, num_inputs: int) -> int:
        """Restore the further inputs, and return the number of all inputs of the network."""
        return num_inputs

    def _check_parts(self, inputs: int) -> None:
        """Refuse a network, a likelihood or a scale that does not fit the estimator."""
        network, likelihood, targets = self.network_, self.likelihood_, self.targets_.num_outputs
        per_target = {choice.likelihood: choice.outputs for choice in self.likelihoods.values()}
        if type(likelihood) not in per_target:
            names = ", ".join(each.__name__ for each in per_target)
            raise ValueError(f"the likelihood must be one of {names}, not {type(likelihood).__name__}")
        shapes = (inputs,), (targets * per_target[type(likelihood)],)
        if (network.input_shape, network.output_shape) != shapes or network.dtype != torch.float64:
            found = f"{network.input_shape} to {network.output_shape} in {network.dtype}"
            raise ValueError(
                f"the network maps {found}, but {targets} targets need {shapes[0]} to {shapes[1]} in torch.float64"
            )
        for name, tensor in likelihood.state_dict().items():
            if tuple(tensor.shape) not in ((), (targets,)) or tensor.dtype != torch.float64:
                found = f"{tensor.dtype} {tuple(tensor.shape)}"
                raise ValueError(f"{name} of the likelihood is {found}, but {targets} targets are torch.float64")
        # a log scale needs Gaussian noise
        self.targets_.to_original_scale(likelihood)
        if network.optimal_last is not None:
            network.optimal_last.check_likelihood(likelihood)


def _restore_update(network: Network, likelihood: Likelihood, x: Tensor, y: Tensor) -> UpdatedNetwork:
    try:
        x, y = check_new_data(network, likelihood, x, y)
        check_gaussian_noise(network, likelihood)
    except TypeError as error:
        raise ValueError(f"the rows of the update do not fit the model: {error}") from error
    return UpdatedNetwork(copy.deepcopy(network), copy.deepcopy(likelihood), x, y)


def _decode_held_out(scores: Tensor) -> list[tuple[int, float]]:
    if scores.ndim != 2 or scores.shape[1] != 2 or scores.dtype != torch.float64 or not torch.isfinite(scores).all():
        raise ValueError(f"scores of held-out rows cannot be {scores.dtype} {tuple(scores.shape)}, or not be finite")
    return [(int(step), score) for step, score in scores.tolist()]


def _encode_parameter(name: str, value: Any) -> Any:
    if name == "random_state" and value is not None and not isinstance(value, int | np.integer):
        advice = "Set an integer before saving: estimator.set_params(random_state=0). Predictions do not change"
        raise ValueError(f"random_state is a {type(value).__name__}, which a file cannot hold. {advice}.")
    # weights of classes: JSON has only text as keys
    value = list(value.items()) if isinstance(value, dict) else value
    return {"class": "Schema", "columns": value.to_json()} if isinstance(value, Schema) else encode_value(value, name)


def _decode_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Constructor parameters. Those that predictions use are checked."""
    values = dict(parameters)
    if values.get("schema") is not None:
        _, columns = take(values["schema"], "schema", **{"class": str, "columns": list})
        values["schema"] = Schema.from_json(columns)
    values |= {name: decode_value(value, name) for name, value in parameters.items() if name != "schema"}
    if isinstance(pairs := values.get("class_weight"), tuple):
        if not fits(pairs, tuple[tuple[str | int | float | bool, float | int], ...]):
            raise ValueError(f"class_weight cannot be {shorten(pairs)}")
        values["class_weight"] = dict(pairs)
    n_samples, hidden = values.get("n_samples", 1), values.get("hidden", ())
    hidden = () if hidden == "auto" else hidden
    if not fits(n_samples, int) or not fits(hidden, tuple[int, ...]) or min((n_samples, *hidden)) < 1:
        raise ValueError(f"n_samples and hidden must be positive, got {shorten(n_samples)} and {shorten(hidden)}")
    return values
