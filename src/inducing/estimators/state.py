"""The state of an estimator as JSON, and back: values and specifications, nothing else.

What is read comes from a file that may be wrong: all of it is compared with what an estimator has, and with each other.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inducing.data.schema import Schema
from inducing.data.standardise import Standardiser
from inducing.estimators.targets import Choice
from inducing.inference.recipes import Recipe
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.saving.specifications import construct, decode_value, encode_value, hints_of, shown, take


def to_json(name: str, value: Any) -> Any:
    """Turn one constructor parameter into JSON."""
    if isinstance(value, Schema):
        return {"class": "Schema", "columns": value.to_json()}
    if isinstance(value, Recipe):
        settings = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        encoded = {key: encode_value(setting, f"{name}.{key}") for key, setting in settings.items()}
        return {"class": "Recipe", "settings": encoded}
    return encode_value(value, name)


def from_json(name: str, value: Any) -> Any:
    """The inverse of `to_json`; lists become tuples."""
    kind = value.get("class") if isinstance(value, dict) else None
    if kind == "Schema" and name == "schema":
        _, columns = take(value, name, **{"class": str, "columns": list})
        return schema_from_json(columns)
    if kind == "Recipe" and name == "recipe":
        _, settings = take(value, name, **{"class": str, "settings": dict})
        # which functions are schedules a recipe knows itself
        hints = {key: hint for key, hint in hints_of(Recipe).items() if key != "schedule"}
        return construct(Recipe, hints, settings, name)
    return decode_value(value, name)


def parameters_from_json(cls: type, parameters: dict[str, Any]) -> dict[str, Any]:
    """Constructor parameters; those that are left out get their defaults. Those that predictions use are checked."""
    unknown = parameters.keys() - inspect.signature(cls).parameters.keys()
    if unknown:
        raise ValueError(f"a {cls.__name__} has no parameter {shown(sorted(unknown)[0])}")
    values = {name: from_json(name, value) for name, value in parameters.items()}
    n_samples, hidden = values.get("n_samples", 1), values.get("hidden", ())
    widths = hidden if isinstance(hidden, tuple) else (None,)
    if not all(type(count) is int and count >= 1 for count in (n_samples, *widths)):
        raise ValueError(
            f"n_samples and hidden must be whole numbers of at least 1, got {shown(n_samples)} and {shown(hidden)}"
        )
    return values


def schema_from_json(columns: list[Any]) -> Schema:
    """The inverse of `Schema.to_json` for columns from a file that may be wrong."""
    for column in columns:
        name, kind, categories, fill = take(
            column, "a column of the schema", name=str, kind=str, categories=list, fill=float | str | None
        )
        numeric = kind == "numeric"
        if not all(isinstance(each, str) for each in categories) or bool(categories) == numeric:
            raise ValueError(f"the {kind} column {shown(name)} cannot have the categories {shown(categories)}")
        if fill is not None and isinstance(fill, str) == numeric:
            raise ValueError(f"the {kind} column {shown(name)} cannot be filled with {shown(fill)}")
    schema = Schema.from_json(columns)
    if not columns or len(set(schema.names)) < len(columns):
        raise ValueError(f"a schema needs columns with different names, got {shown(schema.names)}")
    return schema


def check_names(schema: Schema | None, names: list[Any] | None, features: int) -> None:
    """Refuse names of inputs that are not those of the schema, or another number of them."""
    if names is not None and not all(isinstance(name, str) for name in names):
        raise ValueError(f"the names of inputs cannot be {shown(names)}")
    if schema is not None and names != list(schema.names):
        raise ValueError(f"the names of inputs are {shown(names)}, but the schema has {shown(schema.names)}")
    if features < 1 or (names is not None and len(names) != features):
        raise ValueError(f"num_features cannot be {features} for inputs with the names {shown(names)}")


def standardiser_from(tensors: dict[str, Tensor], name: str, columns: int | None = None) -> Standardiser:
    """Take the moments of so many columns out of the tensors; None: as many as there are, at least one."""
    found = [tensors.pop(f"{name}.{moment}", None) for moment in ("mean", "std")]
    columns = len(found[0]) if columns is None and found[0] is not None and found[0].ndim else columns
    moments = [
        moment
        for moment in found
        if moment is not None
        and moment.shape == (columns,)
        and moment.dtype == torch.float64
        and len(moment)
        and torch.isfinite(moment).all()
    ]
    if len(moments) < 2:
        raise ValueError(f"the moments of the {name} must be {columns} finite numbers in float64")
    mean, std = moments
    if not (std > 0).all():
        raise ValueError(f"the standard deviations of the {name} must be positive")
    return Standardiser(mean, std)


def check_parts(
    network: Network, likelihood: Likelihood, inputs: int, targets: int, known: dict[str, Choice], name: str
) -> None:
    """Refuse a network or a likelihood that is not that of an estimator with so many inputs and targets."""
    per_target = {type(choice.make(1)): choice.outputs for choice in known.values()}
    if type(likelihood) not in per_target:
        names = ", ".join(each.__name__ for each in per_target)
        raise ValueError(f"a {name} has one of the likelihoods {names}, not {type(likelihood).__name__}")
    shapes = (inputs,), (targets * per_target[type(likelihood)],)
    if (network.input_shape, network.output_shape) != shapes or network.dtype != torch.float64:
        raise ValueError(
            f"the network goes from {network.input_shape} to {network.output_shape} in {network.dtype}, but {inputs} inputs "
            f"and {targets} targets or classes need {shapes[0]} to {shapes[1]} in torch.float64"
        )
    for attribute, tensor in likelihood.state_dict().items():
        if tuple(tensor.shape) not in ((), (targets,)) or tensor.dtype != torch.float64:
            raise ValueError(
                f"{attribute} of the likelihood is {tensor.dtype} {tuple(tensor.shape)}, but there are {targets} targets "
                "in torch.float64"
            )
    optimum = network.optimal_last
    if optimum is not None and not isinstance(likelihood, optimum.noise):
        raise ValueError(f"the last layer needs a {optimum.noise.__name__} likelihood, not {type(likelihood).__name__}")


def labels_to_json(labels: np.ndarray) -> dict[str, Any]:
    """Turn class labels into JSON: numbers, truth values or text."""
    values = labels.tolist()
    if not all(isinstance(value, bool | int | float | str) for value in values):
        raise TypeError(f"labels of the type {type(values[0]).__name__} cannot be saved; use numbers or text")
    return {"dtype": "object" if labels.dtype == object else labels.dtype.str, "values": values}


def labels_from_json(labels: Any) -> np.ndarray:
    """The inverse of `labels_to_json`. Text gets the width of the longest label, whatever width the file declares."""
    name, values = take(labels, "classes", dtype=str, values=list)
    kind = re.fullmatch(r"(?P<object>object)|[<>|=]?((?P<text>U)\d+|(?P<number>[biuf]\d{1,2}))", name)
    if kind is None:
        raise ValueError(f"labels of the dtype {shown(name)} are not known; use numbers or text")
    types = {"b": (bool,), "i": (int,), "u": (int,), "f": (int, float), None: (str,)}
    allowed = (bool, int, float, str) if kind["object"] else types[kind["number"] and kind["number"][0]]
    if not values or not all(type(value) in allowed for value in values):
        raise ValueError(f"labels of the dtype {shown(name)} cannot be {shown(values)}")
    try:
        classes = np.array(values, dtype=str if kind["text"] else name)
        ordered = classes.ndim == 1 and np.array_equal(np.unique(classes), classes)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"labels of the dtype {shown(name)} cannot be {shown(values)} ({error})") from error
    if not ordered:
        raise ValueError(f"labels must be different and in order, got {shown(values)}")
    return classes
