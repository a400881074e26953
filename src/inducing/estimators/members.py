"""The models of a blend: their fits, and what they must have in common."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from inducing.estimators.base import NetworkEstimator
from inducing.estimators.targets import LabelTargets
from inducing.tables.errors import TableWarning


def count_copies(models: Iterable[NetworkEstimator]) -> list[int]:
    """For each model, count earlier models with the same settings, apart from seed and verbosity."""
    seen, numbers = Counter[str](), list[int]()
    for model in models:
        settings = str((type(model), model.get_params() | {"random_state": None, "verbose": None}))
        numbers.append(seen[settings])
        seen[settings] += 1
    return numbers


def fit_members(models: dict[str, NetworkEstimator], X: Any, y: Any, sample_weight: Any) -> dict[str, NetworkEstimator]:
    """Fit each model to the same rows. Warnings about the table are shown once."""
    return {
        name: fit_member(model, X, y, sample_weight, is_first_with_schema(name, models))
        for name, model in models.items()
    }


def fit_member(model: NetworkEstimator, X: Any, y: Any, sample_weight: Any, warns: bool) -> NetworkEstimator:
    """Fit a model, with or without its warnings about the table, which other models may repeat."""
    with warnings.catch_warnings():
        if not warns:
            warnings.simplefilter("ignore", TableWarning)
        return model.fit(X, y, sample_weight)


def is_first_with_schema(name: str, models: Mapping[str, NetworkEstimator]) -> bool:
    """Whether no model before this one encodes the table in the same way."""
    return name == next(other for other, each in models.items() if each.schema == models[name].schema)


def check_members(members: Mapping[str, NetworkEstimator]) -> None:
    """Refuse models that cannot predict the same rows."""
    first, *others = members
    described = {name: _describe(member) for name, member in members.items()}
    for name in others:
        if described[name] != described[first]:
            raise ValueError(
                f"{first} and {name} cannot be blended, or compared by log-likelihoods: their inputs, targets or kinds of "
                "likelihood differ (counts have probabilities, numbers have densities)"
            )


def _describe(member: NetworkEstimator) -> tuple[Any, ...]:
    """What the models of a blend must have in common."""
    targets = member.targets_
    classes = targets.classes.tolist() if isinstance(targets, LabelTargets) else None
    kind = targets.num_targets, member.likelihood_.support, classes, vars(targets).get("ndim")
    return member.n_features_in_, member.input_names, *kind
