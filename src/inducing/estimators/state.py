"""Constructor parameters and labels as JSON, and back: values and specifications, nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inducing.data.schema import Schema
from inducing.data.standardise import Standardiser
from inducing.inference.recipes import Recipe
from inducing.saving.specifications import construct, decode_value, encode_value, hints_of, take


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
        return Schema.from_json(columns)
    if kind == "Recipe" and name == "recipe":
        _, settings = take(value, name, **{"class": str, "settings": dict})
        # which functions are schedules a recipe knows itself
        hints = {key: hint for key, hint in hints_of(Recipe).items() if key != "schedule"}
        return construct(Recipe, hints, settings, name)
    return decode_value(value, name)


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
