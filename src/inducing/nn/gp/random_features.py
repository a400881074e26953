"""Random features: random functions phi with E[phi_i(x) phi_i(y)] = k(x, y), for draws from the prior of a process.

f(x) = sum_i w_i phi_i(x) / sqrt(K),   w ~ N(0, I),   has the covariance function k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.nn.draw import Function


@dataclass(frozen=True, eq=False)
class Cosines(Function):
    """x -> amplitude * cos(x W + b): features of a stationary kernel, with frequencies W from its spectral density."""

    frequencies: Float[Tensor, "S D K"]
    phases: Float[Tensor, "S 1 K"]
    amplitude: Float[Tensor, ""]

    def __call__(self, x: Float[Tensor, "#S N D"]) -> Float[Tensor, "S N K"]:
        return self.amplitude * torch.cos(x @ self.frequencies + self.phases)


@dataclass(frozen=True, eq=False)
class NetworkFeatures(Function):
    """The hidden layers of a random network, with ReLUs between them."""

    weights: tuple[Float[Tensor, "S _ _"], ...]
    offsets: tuple[Float[Tensor, "S 1 _"], ...]

    def __call__(self, x: Float[Tensor, "#S N D"]) -> Float[Tensor, "S N K"]:
        x = x @ self.weights[0] + self.offsets[0]
        for weights, offset in zip(self.weights[1:], self.offsets[1:], strict=True):
            x = torch.relu(x) @ weights + offset
        return x


@dataclass(frozen=True, eq=False)
class Rectified(Function):
    """x -> gain * relu(body(x)) + offset."""

    body: Function
    gain: Float[Tensor, ""]
    offset: Float[Tensor, "S 1 K"]

    def __call__(self, x: Float[Tensor, "#S N D"]) -> Float[Tensor, "S N K"]:
        return self.gain * torch.relu(self.body(x)) + self.offset


@dataclass(frozen=True, eq=False)
class SignedSum(Function):
    """x -> sum_j s_j phi_j(x) with random signs s_j: features of a sum of kernels."""

    parts: tuple[Function, ...]
    signs: tuple[Float[Tensor, "S 1 K"], ...]

    def __call__(self, x: Float[Tensor, "#S N D"]) -> Float[Tensor, "S N K"]:
        first, *others = (sign * part(x) for sign, part in zip(self.signs, self.parts, strict=True))
        return sum(others, start=first)


@dataclass(frozen=True, eq=False)
class Hadamard(Function):
    """x -> prod_j phi_j(x), elementwise: features of a product of kernels."""

    parts: tuple[Function, ...]

    def __call__(self, x: Float[Tensor, "#S N D"]) -> Float[Tensor, "S N K"]:
        first, *others = (part(x) for part in self.parts)
        return math.prod(others, start=first)
