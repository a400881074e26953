"""Base class of kernels, and sums and products of kernels."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from jaxtyping import Float
from torch import Generator, Tensor

from inducing.linalg.noise import standard_normal
from inducing.nn.draw import Function
from inducing.nn.gp.random_features import Hadamard, SignedSum

Values = tuple[Tensor, ...]


@dataclass(frozen=True)
class Kernel(ABC):
    """Specification of a covariance function. It is immutable, has no tensors and may be shared between layers."""

    @abstractmethod
    def initial_values(self, in_features: int) -> dict[str, Tensor]:
        """Return the initial values of the hyperparameters by name. All are positive."""

    @abstractmethod
    def matrix(self, values: Values, x: Float[Tensor, "#S N D"], y: Float[Tensor, "#S K D"]) -> Float[Tensor, "#S N K"]:
        """Return k(x, y) for all pairs of rows."""

    @abstractmethod
    def diagonal(self, values: Values, x: Float[Tensor, "#S N D"]) -> Float[Tensor, "#S N"]:
        """Return k(x, x) for each row."""

    @abstractmethod
    def features(self, values: Values, shape: tuple[int, int, int], generator: Generator | None = None) -> Function:
        """Draw random features, (S, N, D) -> (S, N, K), with E[phi_i(x) phi_i(y)] = k(x, y) for each i.

        For `ArcCosine` with several hidden layers this holds up to an error proportional to 1 / width.

        Arguments:
            values: Evaluated hyperparameters.
            shape: (S, D, K): numbers of functions, inputs and features.
            generator: Source of the noise.
        """

    def __add__(self, other: Kernel) -> Sum:
        return Sum((self, other))

    def __mul__(self, other: Kernel) -> Product:
        return Product((self, other))


@dataclass(frozen=True)
class Combination(Kernel):
    """Base class of kernels whose values are combined from those of other kernels."""

    kernels: tuple[Kernel, ...]

    def initial_values(self, in_features: int) -> dict[str, Tensor]:
        return {
            f"{index}_{name}": value
            for index, kernel in enumerate(self.kernels)
            for name, value in kernel.initial_values(in_features).items()
        }

    def matrix(self, values: Values, x: Float[Tensor, "#S N D"], y: Float[Tensor, "#S K D"]) -> Float[Tensor, "#S N K"]:
        return self._combine(*(kernel.matrix(part, x, y) for kernel, part in self._split(values)))

    def diagonal(self, values: Values, x: Float[Tensor, "#S N D"]) -> Float[Tensor, "#S N"]:
        return self._combine(*(kernel.diagonal(part, x) for kernel, part in self._split(values)))

    @abstractmethod
    def _combine(self, first: Tensor, *others: Tensor) -> Tensor:
        """Combine the values of all kernels."""

    def _split(self, values: Values) -> list[tuple[Kernel, Values]]:
        """Pair each kernel with its part of the concatenated hyperparameters."""
        parts, start = [], 0
        for kernel in self.kernels:
            count = len(kernel.initial_values(1))
            parts.append((kernel, values[start : start + count]))
            start += count
        return parts


@dataclass(frozen=True)
class Sum(Combination):
    """k(x, y) = k_1(x, y) + k_2(x, y): the sum of independent functions."""

    def features(self, values: Values, shape: tuple[int, int, int], generator: Generator | None = None) -> Function:
        samples, _, count = shape
        parts = [kernel.features(part, shape, generator) for kernel, part in self._split(values)]
        # phi = sum_j s_j phi_j with random signs s_j: E[phi phi'] = sum_j k_j
        signs = [standard_normal((samples, 1, count), values[0], generator).sign() for _ in parts]
        return SignedSum(tuple(parts), tuple(signs))

    def _combine(self, first: Tensor, *others: Tensor) -> Tensor:
        return sum(others, start=first)


@dataclass(frozen=True)
class Product(Combination):
    """k(x, y) = k_1(x, y) * k_2(x, y)."""

    def features(self, values: Values, shape: tuple[int, int, int], generator: Generator | None = None) -> Function:
        # products of independent features: E[phi_1 phi_1' phi_2 phi_2'] = k_1 k_2
        return Hadamard(tuple(kernel.features(part, shape, generator) for kernel, part in self._split(values)))

    def _combine(self, first: Tensor, *others: Tensor) -> Tensor:
        return math.prod(others, start=first)


def check_positive(kernel: Kernel, *names: str) -> None:
    """Raise an error if an initial value is given and is not positive and finite."""
    for name in names:
        value = getattr(kernel, name)
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} of {type(kernel).__name__} must be a positive number, got {value}")
