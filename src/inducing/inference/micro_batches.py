"""Micro-batches: the log-likelihood of a batch and its gradient, from pieces that are run one after the other.

Rows depend on the parameters only through the drawn function, whose tensors t were computed once, from the inducing points.
So each piece of the batch is run forward and backward to t, the gradients are added up, and the sum goes back through the
draw once:

    d(sum of log p) / d(parameters) = (sum over pieces of d(log p of the piece) / dt) dt / d(parameters)

This is exact. Activations of one piece at a time are in memory, and in the cache if the piece is small. Layers that draw
noise for each row (Gaussian processes, local reparameterisation) draw it piece by piece. So their gradient has other noise
than that of the whole batch, and the same expectation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.autocasting import without_autocasting
from inducing.linalg.first_order import first_order_only
from inducing.nn.draw import Chain, NetworkDraw

Piece = tuple[Tensor, ...]


def sum_over_pieces(
    log_likelihood: Callable[..., Float[Tensor, " S"]],
    draw: NetworkDraw,
    likelihood_parameters: Iterable[Tensor],
    pieces: Iterable[Piece],
) -> Float[Tensor, " S"]:
    """Return the log-likelihood of all pieces, with its gradient.

    Arguments:
        log_likelihood: Function of a draw and a piece that returns the log-likelihood of its rows.
        draw: The drawn network.
        likelihood_parameters: The other parameters that the log-likelihood depends on.
        pieces: Parts of a batch.
    """
    if not torch.is_grad_enabled():
        return _sum([log_likelihood(draw, *piece) for piece in pieces])
    sources: list[Tensor] = []
    copies: list[Tensor] = []

    def detach(tensor: Tensor) -> Tensor:
        if not tensor.requires_grad:
            return tensor
        sources.append(tensor)
        copies.append(tensor.detach().requires_grad_())
        return copies[-1]

    function = draw.function.map(detach)
    assert isinstance(function, Chain)
    detached = draw._replace(function=function)
    parameters = [parameter for parameter in likelihood_parameters if parameter.requires_grad]
    values, gradients = [], [torch.zeros_like(tensor) for tensor in (*copies, *parameters)]
    for piece in pieces:
        if any(tensor.requires_grad for tensor in piece):
            raise ValueError(
                "micro-batches do not support data that require gradients. Pass x.detach(), or leave out micro_batch_size"
            )
        value = log_likelihood(detached, *piece)
        values.append(value.detach())
        if value.requires_grad and gradients:
            with without_autocasting(value.device):
                found = torch.autograd.grad(value.sum(), [*copies, *parameters], allow_unused=True)
            for total, gradient in zip(gradients, found, strict=True):
                if gradient is not None:
                    total += gradient
    attached: Tensor = _WithGradient.apply(_sum(values), gradients, *sources, *parameters)
    return attached


def _sum(values: list[Tensor]) -> Tensor:
    return torch.stack(values).sum(0)


class _WithGradient(torch.autograd.Function):
    """A value for each sample, with known gradients of their sum."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: list[Tensor], *sources: Tensor) -> Tensor:
        ctx.gradients = gradients
        return value.clone()

    @staticmethod
    @first_order_only
    def backward(ctx: Any, to_value: Tensor) -> tuple[Tensor | None, ...]:
        if (to_value != to_value[0]).any():
            raise RuntimeError(
                "with micro-batches all posterior samples must have the same weight in the objective. Use "
                "terms.objective, or evaluate the whole batch at once"
            )
        return None, None, *(to_value[0] * gradient for gradient in ctx.gradients)
