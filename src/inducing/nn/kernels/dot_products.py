"""Dot-product kernels: linear functions, and infinitely wide networks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from inducing.linalg.noise import standard_normal
from inducing.nn.draw import Function
from inducing.nn.gp.random_features import NetworkFeatures, Rectified
from inducing.nn.kernels.base import Kernel, Values, check_positive

# width of the hidden layers below the last in random features of a deep arc-cosine kernel; their error is about 1 / width
FEATURE_WIDTH = 1024
# of an arc-cosine kernel, which converges with far fewer
MAX_HIDDEN_LAYERS = 1000


@dataclass(frozen=True)
class Linear(Kernel):
    """k(x, y) = sum_d variance_d x_d y_d + bias: Bayesian linear regression.

    Arguments:
        variance: Initial variance of the weights. Default: 1 / in_features.
        bias: Initial variance of the intercept.
        ard: Whether each input has its own variance.
    """

    variance: float | None = None
    bias: float = 1.0
    ard: bool = True

    def __post_init__(self) -> None:
        check_positive(self, "bias", "variance")

    def initial_values(self, in_features: int) -> dict[str, Tensor]:
        variance = 1 / in_features if self.variance is None else self.variance
        return {
            "variance": torch.full((in_features if self.ard else 1,), variance),
            "bias": torch.tensor(self.bias),
        }

    def matrix(self, values: Values, x: Float[Tensor, "#S N D"], y: Float[Tensor, "#S K D"]) -> Float[Tensor, "#S N K"]:
        variance, bias = values
        return (variance * x) @ y.mT + bias

    def diagonal(self, values: Values, x: Float[Tensor, "#S N D"]) -> Float[Tensor, "#S N"]:
        variance, bias = values
        return (variance * x.square()).sum(-1) + bias

    def features(self, values: Values, shape: tuple[int, int, int], generator: Generator | None = None) -> Function:
        variance, bias = values
        samples, _, count = shape
        weights = variance.sqrt()[:, None] * standard_normal(shape, variance, generator)
        offset = bias.sqrt() * standard_normal((samples, 1, count), variance, generator)
        return NetworkFeatures((weights,), (offset,))


@dataclass(frozen=True)
class ArcCosine(Kernel):
    """The kernel of an infinitely wide ReLU network with ``depth`` hidden layers (Cho & Saul, 2009).

    K_0 = weight x'y / D + bias,    K_l = weight * 2 E[relu(f) relu(g)] + bias   with (f, g) ~ N(0, K_{l-1})

    Arguments:
        depth: Number of hidden layers.
        weight: Initial variance of the weights, multiplied by the fan-in.
        bias: Initial variance of the biases.
    """

    depth: int = 1
    weight: float = 1.0
    bias: float = 0.1

    def __post_init__(self) -> None:
        if not (isinstance(self.depth, int | Integral) and 1 <= self.depth <= MAX_HIDDEN_LAYERS):
            raise ValueError(
                f"depth must be a whole number of hidden layers from 1 to {MAX_HIDDEN_LAYERS}, got {self.depth!r}"
            )
        check_positive(self, "weight", "bias")

    def initial_values(self, in_features: int) -> dict[str, Tensor]:
        return {"weight": torch.tensor(self.weight), "bias": torch.tensor(self.bias)}

    def matrix(self, values: Values, x: Float[Tensor, "#S N D"], y: Float[Tensor, "#S K D"]) -> Float[Tensor, "#S N K"]:
        weight, bias = values
        cross = weight * (x @ y.mT) / x.shape[-1] + bias
        of_x, of_y = (weight * rows.square().sum(-1) / x.shape[-1] + bias for rows in (x, y))
        for _ in range(self.depth):
            scale = (of_x[..., :, None] * of_y[..., None, :]).sqrt()
            # at a cosine of 1 (equal rows) the derivative of the angle is infinite, though that of the kernel is finite
            cosine = (cross / scale).clamp(-1 + 1e-12, 1 - 1e-12)
            angle = torch.acos(cosine)
            # 2 E[relu relu] = scale (sin(angle) + (pi - angle) cos(angle)) / pi
            cross = weight * scale * ((1 - cosine.square()).sqrt() + (math.pi - angle) * cosine) / math.pi + bias
            of_x, of_y = weight * of_x + bias, weight * of_y + bias
        return cross

    def diagonal(self, values: Values, x: Float[Tensor, "#S N D"]) -> Float[Tensor, "#S N"]:
        weight, bias = values
        variance = weight * x.square().mean(-1) + bias
        for _ in range(self.depth):
            # 2 E[relu(f)^2] = V[f]
            variance = weight * variance + bias
        return variance

    def features(self, values: Values, shape: tuple[int, int, int], generator: Generator | None = None) -> Function:
        weight, bias = values
        samples, inputs, count = shape
        # a finite network, wide below its last hidden layer; relu features are multiplied by sqrt(2), so the weights have
        # variance 2 / fan-in
        widths = [inputs] + [max(count, FEATURE_WIDTH)] * (self.depth - 1) + [count]
        gains = [1.0] + [2.0] * (self.depth - 1)
        weights = tuple(
            (gain * weight / fan).sqrt() * standard_normal((samples, fan, out), weight, generator)
            for fan, out, gain in zip(widths, widths[1:], gains, strict=False)
        )
        offsets = tuple(bias.sqrt() * standard_normal((samples, 1, out), weight, generator) for out in widths[1:])
        last = standard_normal((samples, 1, count), weight, generator)
        return Rectified(NetworkFeatures(weights, offsets), (2 * weight).sqrt(), bias.sqrt() * last)
