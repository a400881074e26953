"""Constructor parameters and labels as JSON, and back: specifications from a list of known classes, nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inducing.data.schema import Schema
from inducing.data.standardise import Standardiser
from inducing.inference.recipes import Recipe
from inducing.nn.posteriors import POSTERIORS
from inducing.nn.priors import PRIORS

SPECIFICATIONS: dict[str, type] = {
    specification.__name__: specification for specification in (*POSTERIORS.values(), *PRIORS.values(), Recipe)
}


def to_json(name: str, value: Any) -> Any:
    """Turn one constructor parameter into JSON."""
    if value is None or isinstance(value, bool | str | int | float):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Schema):
        return {"class": "Schema", "columns": value.to_json()}
    if type(value) in SPECIFICATIONS.values():
        settings = {field.name: to_json(name, getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"class": type(value).__name__, "settings": settings}
    if isinstance(value, list | tuple | np.ndarray):
        return [to_json(name, each) for each in value]
    raise TypeError(
        f"{name} is a {type(value).__name__}, which cannot be saved; use names, numbers or our specifications, and a "
        "whole number for random_state"
    )


def from_json(value: Any) -> Any:
    """The inverse of `to_json`; lists become tuples."""
    if isinstance(value, list):
        return tuple(from_json(each) for each in value)
    if not isinstance(value, dict):
        return value
    kind = value.get("class")
    if kind == "Schema":
        return Schema.from_json(value["columns"])
    if kind not in SPECIFICATIONS:
        raise ValueError(f"unknown specification {kind!r}; known are {', '.join(SPECIFICATIONS)}")
    return SPECIFICATIONS[kind](**{name: from_json(setting) for name, setting in value["settings"].items()})


def standardiser_from(tensors: dict[str, Tensor], name: str, columns: int) -> Standardiser:
    """Put the moments of so many columns together."""
    mean, std = tensors[f"{name}.mean"], tensors[f"{name}.std"]
    for moment in (mean, std):
        if moment.shape != (columns,) or moment.dtype != torch.float64 or not torch.isfinite(moment).all():
            raise ValueError(f"the moments of the {name} must be {columns} finite numbers in float64")
    if not (std > 0).all():
        raise ValueError(f"the standard deviations of the {name} must be positive")
    return Standardiser(mean, std)


def labels_to_json(labels: np.ndarray) -> dict[str, Any]:
    """Turn class labels into JSON: numbers, truth values or text."""
    values = labels.tolist()
    if not all(isinstance(value, bool | int | float | str) for value in values):
        raise TypeError(f"labels of the type {type(values[0]).__name__} cannot be saved; use numbers or text")
    return {"dtype": "object" if labels.dtype == object else labels.dtype.str, "values": values}


def labels_from_json(labels: dict[str, Any]) -> np.ndarray:
    """The inverse of `labels_to_json`."""
    dtype = np.dtype(labels["dtype"])
    if dtype.kind not in "biufUO":
        raise ValueError(f"labels of the dtype {dtype} are not known")
    return np.array(labels["values"], dtype=dtype)
