"""The state of an estimator as JSON, and back: values and specifications, nothing else.

A state may come from a file that is wrong or hostile. All of it is checked against what an estimator has, and its parts
against each other.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from inducing.estimators.likelihoods import Choice
from inducing.estimators.targets import take_standardiser
from inducing.inference.history import History
from inducing.inference.recipes import Recipe
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.saving.values import construct, decode_value, encode_value, shorten, take
from inducing.tables.schema import Schema

if TYPE_CHECKING:
    from inducing.estimators.base import NetworkEstimator

STATE: dict[str, Any] = {
    "class": str, "parameters": dict, "schema": list | None, "feature_names": list | None, "num_features": int, "seed": int,
    "elbo": float, "targets": dict,
}  # fmt: skip


def to_json(name: str, value: Any) -> Any:
    """Convert a constructor parameter to JSON."""
    if isinstance(value, Schema):
        return {"class": "Schema", "columns": value.to_json()}
    if isinstance(value, Recipe):
        settings = {key: encode_value(setting, f"{name}.{key}") for key, setting in vars(value).items()}
        return {"class": "Recipe", "settings": settings}
    return encode_value(value, name)


def restore(
    cls: type[NetworkEstimator],
    state: dict[str, Any],
    tensors: dict[str, Tensor],
    network: Network,
    likelihood: Likelihood,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The constructor parameters and the fitted attributes of an estimator, from its state."""
    if state.get("class") != cls.__name__:
        raise ValueError(f"the state is that of a {shorten(state.get('class'))}, not of a {cls.__name__}")
    _, parameters, columns, names, num_features, seed, elbo, targets = take(state, cls.__name__, **STATE)
    schema = None if columns is None else _schema_from_json(columns)
    if names is not None and not all(isinstance(name, str) for name in names):
        raise ValueError(f"names of inputs cannot be {shorten(names)}")
    if schema is not None and names != list(schema.names):
        raise ValueError(f"names of inputs are {shorten(names)}, but the schema has {shorten(schema.names)}")
    if num_features < 1 or (names is not None and len(names) != num_features):
        raise ValueError(f"num_features cannot be {num_features} for inputs with the names {shorten(names)}")
    if not 0 <= seed < 2**31:
        raise ValueError(f"seed cannot be {seed}")
    left = dict(tensors)
    num_inputs = num_features if schema is None else len(schema.encoded_names)
    encoding = cls.encoding.from_state(targets, left)
    fitted = {
        "schema_": schema,
        "n_features_in_": num_features,
        "seed_": seed,
        "elbo_": elbo,
        "inputs_": take_standardiser(left, "inputs", num_inputs),
        "history_": History.from_tensor(left.pop("history", torch.empty(0)), len(network.layer_names)),
        "targets_": encoding,
        "network_": network,
        "likelihood_": likelihood,
    }
    if left:
        raise ValueError(f"the tensor {shorten(sorted(left)[0])} is not part of a {cls.__name__}")
    if names is not None:
        fitted["feature_names_in_"] = np.array(names, dtype=object)
    _check_parts(network, likelihood, num_inputs, encoding.num_outputs, cls.likelihoods)
    return _parameters_from_json(cls, parameters), fitted


def _parameters_from_json(cls: type[NetworkEstimator], parameters: dict[str, Any]) -> dict[str, Any]:
    """Constructor parameters. Missing ones get their defaults. Those that predictions use are checked."""
    unknown = parameters.keys() - {field.name for field in dataclasses.fields(cls)}
    if unknown:
        raise ValueError(f"a {cls.__name__} has no parameter {shorten(sorted(unknown)[0])}")
    values = {name: _value_from_json(name, value) for name, value in parameters.items()}
    n_samples, hidden = values.get("n_samples", 1), values.get("hidden", ())
    widths = hidden if isinstance(hidden, tuple) else (None,)
    if not all(type(count) is int and count >= 1 for count in (n_samples, *widths)):
        raise ValueError(
            f"n_samples and hidden must be positive integers, got {shorten(n_samples)} and {shorten(hidden)}"
        )
    return values


def _value_from_json(name: str, value: Any) -> Any:
    """The inverse of `to_json`. Lists become tuples."""
    kind = value.get("class") if isinstance(value, dict) else None
    if (name, kind) == ("schema", "Schema"):
        return _schema_from_json(take(value, name, **{"class": str, "columns": list})[1])
    if (name, kind) == ("recipe", "Recipe"):
        _, settings = take(value, name, **{"class": str, "settings": dict})
        return construct(Recipe, settings, name)
    return decode_value(value, name)


def _schema_from_json(columns: list[Any]) -> Schema:
    for column in columns:
        take(column, "a column of the schema", name=str, kind=str, categories=list, fill=float | str | None)
    return Schema.from_json(columns)


def _check_parts(network: Network, likelihood: Likelihood, inputs: int, targets: int, known: dict[str, Choice]) -> None:
    """Refuse a network or a likelihood of another estimator."""
    per_target = {choice.likelihood: choice.outputs for choice in known.values()}
    if type(likelihood) not in per_target:
        names = ", ".join(each.__name__ for each in per_target)
        raise ValueError(f"the likelihood must be one of {names}, not {type(likelihood).__name__}")
    shapes = (inputs,), (targets * per_target[type(likelihood)],)
    if (network.input_shape, network.output_shape) != shapes or network.dtype != torch.float64:
        raise ValueError(
            f"the network maps {network.input_shape} to {network.output_shape} in {network.dtype}, but {inputs} inputs "
            f"and {targets} targets or classes need {shapes[0]} to {shapes[1]} in torch.float64"
        )
    for name, tensor in likelihood.state_dict().items():
        if tuple(tensor.shape) not in ((), (targets,)) or tensor.dtype != torch.float64:
            found = f"{tensor.dtype} {tuple(tensor.shape)}"
            raise ValueError(f"{name} of the likelihood is {found}, but there are {targets} targets in torch.float64")
    optimum = network.optimal_last
    if optimum is not None and not isinstance(likelihood, optimum.likelihood_class):
        raise ValueError(
            f"the last layer needs a {optimum.likelihood_class.__name__} likelihood, not {type(likelihood).__name__}"
        )
