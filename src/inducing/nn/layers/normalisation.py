"""Normalisation by the statistics of the inducing points.

BatchNorm computes its statistics from the rows of a batch, so a network with it is not a function of one row. Here the
statistics come from the inducing points, and are the same in training and prediction.

    y = (x - m) / sqrt(v + eps),   m, v = mean and variance of each channel over the M inducing points and their pixels

The network then depends on the inducing points U_0: they become parameters of the model, without a prior, instead of
parameters of the posterior alone. The ELBO is a lower bound of log p(Y | X; U_0). It cannot be compared with the ELBO of a
model without normalisation, or with other inducing points.

References:
    Ober & Aitchison, Global inducing point variational posteriors (2021), appendix "Additional experimental details".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.nn.context import BuildContext, DrawContext
from inducing.nn.draw import Function, PartDraw
from inducing.nn.layers.base import Part


@dataclass(frozen=True, eq=False)
class Rescaled(Function):
    """x -> (x - mean) / scale, for each channel of each sample."""

    mean: Float[Tensor, "#S 1 C *ones"]
    scale: Float[Tensor, "#S 1 C *ones"]

    def __call__(self, x: Float[Tensor, "#S B C *pixels"]) -> Float[Tensor, "S B C *pixels"]:
        return (x - self.mean) / self.scale


class InducingNorm(Part):
    """Standardise every channel to zero mean and unit variance over the inducing points.

    It replaces BatchNorm and needs a network with inducing points. It has no learned scale and shift, since they would have
    no prior, and the next layer already has both. The inducing points become parameters of the model, so ELBOs are
    comparable only with those of the same model: they bound log p(Y | X; U_0).

    Arguments:
        eps: Added to the variance, so that a constant channel becomes zero instead of NaN.

    Example:
        >>> import inducing, torch
        >>> from torch import nn
        >>> block = [inducing.Conv2d(1, 4, 3), inducing.InducingNorm(), nn.ReLU()]
        >>> layers = [*block, nn.Flatten(), inducing.Linear(144, 10)]
        >>> network = inducing.Network(layers, inducing_points=torch.randn(5, 1, 8, 8))
        >>> network(torch.randn(3, 1, 8, 8), num_samples=2).shape
        torch.Size([2, 3, 10])
    """

    def __init__(self, *, eps: float = 1e-5) -> None:
        super().__init__()
        if not eps > 0:
            raise ValueError(f"eps must be positive, got {eps}")
        self.eps = eps

    @property
    def needs_inducing(self) -> bool:
        return True

    def build(self, name: str, context: BuildContext) -> BuildContext:
        shape, number = context.input_shape, context.num_inducing or 0
        values = number * math.prod(shape[1:])
        if values < 2:
            raise ValueError(
                f"{name} {self}: {number} inducing points with rows of shape {shape} give {values} values per channel, "
                "and a variance needs two. Pass inducing_points with more rows"
            )
        rows = context.example_rows
        return context if rows is None else replace(context, example_rows=self.normalise(rows[None])(rows[None])[0])

    def sample(self, name: str, inducing: Float[Tensor, "#S M *in"] | None, context: DrawContext) -> PartDraw:
        assert inducing is not None
        function = self.normalise(inducing)
        return PartDraw(function, function(inducing), ())

    def assemble(self, functions: Iterator[Function]) -> Function:
        raise TypeError(
            f"{self} needs inducing points, but a network assembled from given functions has none. Leave it out"
        )

    def normalise(self, inducing: Float[Tensor, "#S M C *pixels"]) -> Rescaled:
        """Return the normalisation by these inducing points."""
        axes = [1, *range(3, inducing.ndim)]
        variance, mean = torch.var_mean(inducing, axes, correction=0, keepdim=True)
        return Rescaled(mean, (variance + self.eps).sqrt())

    def extra_repr(self) -> str:
        return f"eps={self.eps}"
