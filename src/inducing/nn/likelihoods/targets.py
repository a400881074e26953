"""Validation of targets, and missing targets: NaN in some of several targets of a row, which the likelihood leaves out."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.checks import check_finite, check_tensor, is_known


def check_shape(y: object, shape: tuple[int, ...], reason: str = "") -> Tensor:
    """Check that y is a tensor of shape (B, *shape). The reason is part of the error message."""
    y = check_tensor("y", y)
    if tuple(y.shape[1:]) != shape or y.ndim == 0:
        expected = ", ".join(["B", *map(str, shape)])
        hint = ""
        if y.ndim == 1 and shape == (1,):
            hint = "; use y[:, None]"
        elif y.ndim == 1 and len(shape) == 1 and not y.is_floating_point():
            hint = f"; use inducing.Categorical() for labels of {shape[0]} classes"
        raise ValueError(f"y must have shape ({expected}){reason}, got {tuple(y.shape)}{hint}")
    return y


def check_like(y: Tensor, shape: torch.Size) -> None:
    """Check that the targets have the shape of the outputs without the sample axis. Broadcasting is an error."""
    if y.shape != shape[1:]:
        raise ValueError(f"y must have shape {tuple(shape[1:])} like the outputs, got {tuple(y.shape)}")


def check_real(y: Tensor) -> Tensor:
    """Check that the targets are finite floating point numbers. Some of several targets of a row may be missing (NaN)."""
    if not y.is_floating_point():
        raise TypeError(f"y must be floating point, got {y.dtype}; use y.float(), or Categorical() for labels")
    check_finite("y", y, missing=may_be_missing(y))
    return y


def may_be_missing(y: Tensor) -> bool:
    """Return whether a row has several targets, of which some may be missing."""
    return y.shape[1:].numel() > 1


def fill_missing(y: Tensor) -> Tensor:
    """Replace missing targets by 0, so that no gradient becomes NaN."""
    return torch.where(y.isnan(), 0.0, y) if may_be_missing(y) else y


def sum_observed(terms: Tensor, y: Tensor) -> Float[Tensor, "S B"]:
    """Return the sum over the targets of each row, (S, B, ...) to (S, B), without those that are missing in y."""
    observed = torch.where(y.isnan(), 0.0, terms) if may_be_missing(y) else terms
    return observed.flatten(2).sum(-1)


def check_whole(y: Tensor, most: int | None, wanted: str, remedy: str, missing: bool = False) -> Tensor:
    """Check that the targets are whole numbers from 0 to ``most``, of any dtype. Values of meta tensors are not checked.

    With ``missing``, NaN is allowed.
    """
    if y.is_complex():
        raise TypeError(f"y must be {wanted}, got {y.dtype}")
    check_finite("y", y, missing)
    if is_known(y) and y.dtype != torch.bool:
        bad = (y < 0) | (y != y.floor() if y.is_floating_point() else False)
        if most is not None:
            bad = bad | (y > most)
        bad = bad & ~y.isnan()
        if bad.any():
            row = int(bad.nonzero()[0, 0])
            raise ValueError(f"y must be {wanted}, but row {row} has {y[bad][0].item():g}; {remedy}")
    return y
