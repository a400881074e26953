"""A decorator for hand-written backward passes: second derivatives are refused instead of being wrong."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def first_order_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Raise an error if a graph of the gradient is requested (``create_graph=True``).

    torch's ``once_differentiable`` raises one only if the incoming gradient itself requires gradients. Otherwise the second
    derivative would treat the tensors saved for the backward pass as constants.
    """

    @functools.wraps(backward)
    def checked(*arguments: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "second derivatives through a draw are not available. Differentiate network.sample_functions(...), or "
                "leave out create_graph=True"
            )
        return backward(*arguments)

    return checked
