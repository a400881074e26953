"""Structured precision matrices of the prior: P, the inverse of S_l / N_{l-1} in the paper.

They act on weights of shape (S, G, F, C): S samples, G groups of outputs that share a posterior covariance, F input
features, C outputs in a group. A leading axis of size 1 means that all samples share the value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.linalg.cholesky import cholesky, logdet, solve_lower, solve_lower_transposed

Weights = Float[Tensor, "#S #G F C"]


class Expectation(NamedTuple):
    """Expectations of a random matrix P.

    Arguments:
        mean: E[P].
        logdet: E[log |P|].
    """

    mean: Precision
    logdet: Float[Tensor, "#S"]


class ScaleMoments(NamedTuple):
    """Moments of a random scale s.

    Arguments:
        mean: E[s].
        mean_log: E[log s].
    """

    mean: Float[Tensor, "#S"]
    mean_log: Float[Tensor, "#S"]


class Precision(ABC):
    """A symmetric positive definite F x F matrix P = HH' that all outputs share, one per sample or one for all samples."""

    @property
    @abstractmethod
    def size(self) -> int:
        """F, the number of rows."""

    @property
    @abstractmethod
    def requires_grad(self) -> bool:
        """Whether the matrix is learned."""

    @abstractmethod
    def to(self, dtype: torch.dtype) -> Precision:
        """Return this matrix in another dtype."""

    @abstractmethod
    def dense(self) -> Float[Tensor, "#S F F"]:
        """Return P as a dense matrix."""

    @abstractmethod
    def matmul(self, weights: Weights) -> Weights:
        """Return P w."""

    @abstractmethod
    def solve(self, weights: Weights) -> Weights:
        """Return P^-1 w."""

    @abstractmethod
    def colour(self, noise: Weights) -> Weights:
        """Return H^-T z, a draw from the prior N(0, P^-1) if z is standard normal noise."""

    @abstractmethod
    def logdet(self) -> Float[Tensor, "#S"]:
        """Return log |P|."""

    def expectation(self) -> Expectation:
        """Return E[P] and E[log |P|] under the distribution that P was sampled from; P and log |P| if it is not random."""
        return Expectation(self, self.logdet())

    def diagonal(self) -> Float[Tensor, "#S F"]:
        """Return the diagonal of P."""
        return self.dense().diagonal(dim1=-2, dim2=-1)

    def add_to(self, gram: Float[Tensor, "#S G F F"]) -> Float[Tensor, "#S G F F"]:
        """Return P + gram. The sum may overwrite gram."""
        return gram + self.dense()[:, None]

    def quadratic(self, weights: Weights) -> Float[Tensor, "#S"]:
        """Return w'Pw, summed over the outputs."""
        return self.quadratic_by_group(weights).sum(-1)

    def quadratic_by_group(self, weights: Weights) -> Float[Tensor, "#S #G"]:
        """Return w'Pw, summed over the outputs of each group."""
        return (weights * self.matmul(weights)).sum((-2, -1))


@dataclass(frozen=True, eq=False)
class ScaledIdentity(Precision):
    """P = scale I.

    Arguments:
        scale: One value per sample, or one for all samples.
        features: F.
        moments: Moments, in float64, of the distribution that the scale was sampled from. None: the scale is not random.
    """

    scale: Float[Tensor, "#S"]
    features: int
    moments: ScaleMoments | None = None

    @property
    def size(self) -> int:
        return self.features

    @property
    def requires_grad(self) -> bool:
        return self.scale.requires_grad

    def to(self, dtype: torch.dtype) -> Precision:
        return ScaledIdentity(self.scale.to(dtype), self.features, self.moments)

    def dense(self) -> Float[Tensor, "#S F F"]:
        return torch.diag_embed(self.diagonal())

    def matmul(self, weights: Weights) -> Weights:
        return weights * self._scale

    def solve(self, weights: Weights) -> Weights:
        return weights / self._scale

    def colour(self, noise: Weights) -> Weights:
        return noise * self._scale.rsqrt()

    def logdet(self) -> Float[Tensor, "#S"]:
        return self.features * self.scale.log()

    def expectation(self) -> Expectation:
        if self.moments is None:
            return super().expectation()
        dtype, (mean, mean_log) = self.scale.dtype, self.moments
        return Expectation(ScaledIdentity(mean.to(dtype), self.features), (self.features * mean_log).to(dtype))

    def add_to(self, gram: Float[Tensor, "#S G F F"]) -> Float[Tensor, "#S G F F"]:
        samples = self.scale.shape[0]
        if gram.shape[0] < samples:
            gram = gram.repeat(samples, 1, 1, 1)
        gram.diagonal(dim1=-2, dim2=-1).add_(self.scale[:, None, None])
        return gram

    def quadratic_by_group(self, weights: Weights) -> Float[Tensor, "#S #G"]:
        return self.scale[:, None] * weights.square().sum((-2, -1))

    def diagonal(self) -> Float[Tensor, "#S F"]:
        return self.scale[:, None].expand(-1, self.features)

    @property
    def _scale(self) -> Float[Tensor, "#S 1 1 1"]:
        return self.scale.view(-1, 1, 1, 1)


@dataclass(frozen=True, eq=False)
class Dense(Precision):
    """P as a dense matrix, factorised once."""

    matrix: Float[Tensor, "#S F F"]

    @property
    def size(self) -> int:
        return self.matrix.shape[-1]

    @property
    def requires_grad(self) -> bool:
        return self.matrix.requires_grad

    def to(self, dtype: torch.dtype) -> Precision:
        return Dense(self.matrix.to(dtype))

    def dense(self) -> Float[Tensor, "#S F F"]:
        return self.matrix

    def matmul(self, weights: Weights) -> Weights:
        return self.matrix[:, None] @ weights

    def solve(self, weights: Weights) -> Weights:
        # P^-1 w = H^-T H^-1 w
        return solve_lower_transposed(self.factor, solve_lower(self.factor, weights))

    def colour(self, noise: Weights) -> Weights:
        return solve_lower_transposed(self.factor, noise)

    def logdet(self) -> Float[Tensor, "#S"]:
        return logdet(self.factor)[:, 0]

    @cached_property
    def factor(self) -> Float[Tensor, "#S 1 F F"]:
        """The lower factor H of P = HH'."""
        return cholesky(self.matrix)[:, None]


@dataclass(frozen=True, eq=False)
class Pair(Precision):
    """Base class of matrices that act on weights by two smaller matrices, one after the other or each on a part."""

    first: Precision
    last: Precision

    @property
    def requires_grad(self) -> bool:
        return self.first.requires_grad or self.last.requires_grad

    def to(self, dtype: torch.dtype) -> Precision:
        return type(self)(self.first.to(dtype), self.last.to(dtype))

    def matmul(self, weights: Weights) -> Weights:
        return self._apply(self.first.matmul, self.last.matmul, weights)

    def solve(self, weights: Weights) -> Weights:
        return self._apply(self.first.solve, self.last.solve, weights)

    def colour(self, noise: Weights) -> Weights:
        return self._apply(self.first.colour, self.last.colour, noise)

    def logdet(self) -> Float[Tensor, "#S"]:
        return self._logdet(self.first.logdet(), self.last.logdet())

    def expectation(self) -> Expectation:
        # the two matrices are independent: E[A (x) B] = E[A] (x) E[B]
        first, last = self.first.expectation(), self.last.expectation()
        return Expectation(type(self)(first.mean, last.mean), self._logdet(first.logdet, last.logdet))

    @abstractmethod
    def _logdet(self, first: Tensor, last: Tensor) -> Float[Tensor, "#S"]:
        """Return log |P| from the log-determinants of the two matrices."""

    @abstractmethod
    def _apply(self, first: Callable[[Tensor], Tensor], last: Callable[[Tensor], Tensor], weights: Tensor) -> Tensor:
        """Apply an operation of each of the two matrices."""


@dataclass(frozen=True, eq=False)
class Kronecker(Pair):
    """Kronecker product P = first (x) last. A weight vector is a first.size x last.size matrix in row-major order.

    P is computed as a dense matrix only where it is added to a Gram matrix.
    """

    @property
    def size(self) -> int:
        return self.first.size * self.last.size

    def dense(self) -> Float[Tensor, "#S F F"]:
        # (A (x) B)_{ik,jl} = A_ij B_kl
        product = self.first.dense()[:, :, None, :, None] * self.last.dense()[:, None, :, None, :]
        return product.reshape(-1, self.size, self.size)

    def _logdet(self, first: Tensor, last: Tensor) -> Float[Tensor, "#S"]:
        return self.last.size * first + self.first.size * last

    def diagonal(self) -> Float[Tensor, "#S F"]:
        return (self.first.diagonal()[:, :, None] * self.last.diagonal()[:, None, :]).flatten(1)

    def _apply(self, first: Callable[[Tensor], Tensor], last: Callable[[Tensor], Tensor], weights: Tensor) -> Tensor:
        """(A (x) B) vec(W) = vec(A W B'): `first` acts on the first axis of the matrix, `last` on the second."""
        groups, outputs = weights.shape[1], weights.shape[3]
        rows, columns = self.first.size, self.last.size
        w = first(weights.reshape(-1, groups, rows, columns * outputs))
        w = last(w.unflatten(-1, (columns, outputs)).transpose(2, 3).flatten(3))
        return w.unflatten(-1, (rows, outputs)).transpose(2, 3).flatten(2, 3)


@dataclass(frozen=True, eq=False)
class BlockDiagonal(Pair):
    """Block-diagonal P with blocks `first` and `last`: two sets of weights that are independent under the prior."""

    @property
    def size(self) -> int:
        return self.first.size + self.last.size

    def dense(self) -> Float[Tensor, "#S F F"]:
        pad = torch.nn.functional.pad
        first = pad(self.first.dense(), (0, self.last.size, 0, self.last.size))
        return first + pad(self.last.dense(), (self.first.size, 0, self.first.size, 0))

    def _logdet(self, first: Tensor, last: Tensor) -> Float[Tensor, "#S"]:
        return first + last

    def diagonal(self) -> Float[Tensor, "#S F"]:
        return _concatenate(self.first.diagonal(), self.last.diagonal(), 1)

    def _apply(self, first: Callable[[Tensor], Tensor], last: Callable[[Tensor], Tensor], weights: Tensor) -> Tensor:
        above, below = weights.split([self.first.size, self.last.size], 2)
        return _concatenate(first(above), last(below), 2)


def _concatenate(first: Tensor, last: Tensor, axis: int) -> Tensor:
    """Concatenate two tensors, each with one value per sample or one for all samples."""
    samples = max(len(first), len(last))
    parts = [part.expand(samples, *part.shape[1:]) for part in (first, last)]
    return torch.cat(parts, axis)
