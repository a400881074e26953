"""Draws are never autocast: bfloat16 has too few digits for their factorisations. Only functions run at data rows are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def without_autocasting(device: torch.device) -> AbstractContextManager[object]:
    """Switch off `torch.autocast` inside a ``with`` block."""
    kind = device.type
    if _is_available(kind) and torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return nullcontext()


def log_prob_of(likelihood: Any, outputs: torch.Tensor, y: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The log-likelihoods of outputs, which may be autocast to bfloat16: sums over rows would have two or three digits."""
    with without_autocasting(outputs.device):
        return likelihood.log_prob(outputs.to(dtype), y)


@functools.cache
def _is_available(kind: str) -> bool:
    return torch.amp.is_autocast_available(kind)


def never_autocast(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Run a hand-written backward pass in the dtypes of the forward pass."""

    @functools.wraps(backward)
    def plain(ctx: Any, *cotangents: Any) -> Any:
        with without_autocasting(ctx.saved_tensors[0].device):
            return backward(ctx, *cotangents)

    return plain
