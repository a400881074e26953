"""Normalisation by what the inducing points look like, which training and test share.

BatchNorm takes its statistics from whatever rows stand in a batch, so a network with it is not a function of one row. Here
they come from the inducing points as they reach this place: a part of the posterior, the same for all data.

    y = (x - m) / sqrt(v + eps),   m, v = mean and variance of each channel over the M inducing points and their pixels

References:
    Ober & Aitchison, Global inducing point variational posteriors (2021), appendix "Additional experimental details".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from inducing.nn.draw import Function
from inducing.nn.layers import Shape


@dataclass(frozen=True, eq=False)
class Rescaled(Function):
    """x -> (x - mean) / scale, for each channel of each sample."""

    mean: Float[Tensor, "#S 1 C *ones"]
    scale: Float[Tensor, "#S 1 C *ones"]

    def __call__(self, x: Float[Tensor, "#S B C *pixels"]) -> Float[Tensor, "S B C *pixels"]:
        return (x - self.mean) / self.scale


class InducingNorm(nn.Module):
    """Give every channel zero mean and unit variance over the inducing points, and treat the data alike.

    It stands where a BatchNorm would, and needs a network with inducing points, but no layer with a posterior of a certain
    kind. It has no scale and shift to learn: they would be weights without a prior, and the next layer has both.

    Arguments:
        eps: Added to the variance, so that a constant channel becomes zero and not NaN.

    Example:
        >>> import inducing, torch
        >>> from torch import nn
        >>> layers = [inducing.Conv2d(1, 4, 3), inducing.InducingNorm(), nn.ReLU(), nn.Flatten(), inducing.Linear(144, 10)]
        >>> network = inducing.Network(layers, inducing_points=torch.randn(5, 1, 8, 8))
        >>> network(torch.randn(3, 1, 8, 8), num_samples=2).shape
        torch.Size([2, 3, 10])
    """

    def __init__(self, *, eps: float = 1e-5) -> None:
        super().__init__()
        if not eps > 0:
            raise ValueError(f"eps must be positive, got {eps}")
        self.eps = eps

    def check(self, name: str, input_shape: Shape, num_inducing: int | None) -> None:
        """Refuse a place where there are no statistics to take."""
        values = (num_inducing or 0) * math.prod(input_shape[1:])
        if values < 2:
            raise ValueError(
                f"{name} {self}: {num_inducing or 'no'} inducing points with rows of shape {input_shape} give {values} "
                "values for each channel, and a variance needs two; pass inducing_points with more rows"
            )

    def draw(self, inducing: Float[Tensor, "#S M C *pixels"]) -> Rescaled:
        """The normalisation by these inducing points."""
        axes = [1, *range(3, inducing.ndim)]
        variance, mean = torch.var_mean(inducing, axes, correction=0, keepdim=True)
        return Rescaled(mean, (variance + self.eps).sqrt())

    def extra_repr(self) -> str:
        return f"eps={self.eps}"
