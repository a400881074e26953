"""Specifications by name: "neal" for `NealPrior()`, "global" for `GlobalInducing()`, and so on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeVar

from inducing.checks import did_you_mean

# one sample of log Q - log P, or its mean where that is known
KLKind = Literal["sample", "closed_form"]

T = TypeVar("T")


def lookup(kind: str, value: object, base: type[T], known: Mapping[str, type[T]]) -> T:
    """Return ``value`` if it is a specification, or the one that goes by that name."""
    if isinstance(value, base):
        return value
    if isinstance(value, str) and value in known:
        return known[value]()
    names = ", ".join(f'"{name}"' for name in known)
    classes = ", ".join(f"{name}(...)" for name in dict.fromkeys(cls.__name__ for cls in known.values()))
    hint = did_you_mean(value, known)
    if isinstance(value, type) and issubclass(value, base):
        hint = "; it was given as a class, call it"
    raise ValueError(f"unknown {kind} {value!r}{hint}; known are {names}, or one of {classes}")
