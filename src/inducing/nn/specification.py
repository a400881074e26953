"""Specifications by name: "neal" for `NealPrior()`, "global" for `GlobalInducing()`, and so on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def lookup(kind: str, value: object, base: type[T], known: Mapping[str, type[T]]) -> T:
    """Return ``value`` if it is a specification, or the one that goes by that name."""
    if isinstance(value, base):
        return value
    if isinstance(value, str) and value in known:
        return known[value]()
    names = ", ".join(f'"{name}"' for name in known)
    classes = ", ".join(f"{cls.__name__}(...)" for cls in known.values())
    hint = "; it was given as a class, call it" if isinstance(value, type) and issubclass(value, base) else ""
    raise ValueError(f"unknown {kind} {value!r}{hint}; known are {names}, or one of {classes}")
