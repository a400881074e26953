"""Specifications by name: "neal" for `NealPrior()`, "global" for `GlobalInducing()`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeVar, get_args

from inducing.checks import did_you_mean

# a sample of log Q - log P, or its expectation
KLKind = Literal["sample", "closed_form"]

T = TypeVar("T")


def lookup(kind: str, value: object, base: type[T], known: Mapping[str, type[T]]) -> T:
    """Return ``value`` if it is a specification, or the default specification with that name."""
    if isinstance(value, base):
        return value
    if isinstance(value, str) and value in known:
        return known[value]()
    names = ", ".join(f'"{name}"' for name in known)
    classes = ", ".join(f"{name}(...)" for name in dict.fromkeys(cls.__name__ for cls in known.values()))
    hint = did_you_mean(value, known)
    if isinstance(value, type) and issubclass(value, base):
        hint = "; this is a class, pass an instance"
    raise ValueError(f"unknown {kind} {value!r}{hint}. Known names: {names}; known classes: {classes}")


def check_choice(name: str, value: str, choices: object) -> None:
    """Raise an error if the value is not one of the choices of a `typing.Literal`."""
    if value not in get_args(choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, get_args(choices)))}, got {value!r}")
