"""The covariance of the last layer given the layers below it.

    Linear:   f = h w,   C = h A^-1 h',   A = P + X' Lambda X
    GPLayer:  C = k(h, h) - A A' + A V[a] A',   A = K_hu R^-T

A basis has features phi with C(x, x') = phi(x) phi(x')' + D, where D is diagonal. The number of features does not depend on
the number of rows. For a Linear layer D = 0, and this is exact. For a Gaussian process the basis has further inducing inputs
z. C(z, z) is exact. Between other rows this is the FITC approximation (fully independent training conditional; Snelson &
Ghahramani, 2006).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.linalg.roots import find_roots
from inducing.nn.draw import Function
from inducing.nn.gp.functions import Path
from inducing.nn.kernels import Kernel, Values
from inducing.nn.layers.linear import Affine, with_ones

Rows = Float[Tensor, "S *batch n F"]


class Covariance(ABC):
    """C(x, x') of the last layer of S draws, for G groups of outputs: one for all outputs, or one for each."""

    @abstractmethod
    def features(self, rows: Rows) -> tuple[Tensor, ...]:
        """Return what `between` needs to know about rows of inputs of the layer."""

    @abstractmethod
    def between(self, left: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> Float[Tensor, "S *batch G n k"]:
        """Return C for all pairs of rows, from their features."""

    @abstractmethod
    def select(self, outputs: list[int]) -> Covariance:
        """Return the covariance of some of the outputs."""

    @abstractmethod
    def fold(self, last: Function, features: tuple[Tensor, ...], coefficients: Float[Tensor, "S O n 1"]) -> Function:
        """Return the last layer with the correction C(x, x') c of its first outputs, as a function of the same kind."""

    @abstractmethod
    def max_dense_rows(self, num_inducing: int) -> int:
        """Return the number of new rows up to which a dense matrix of these rows is used, and above it a basis.

        Arguments:
            num_inducing: The largest number of new rows that become inducing inputs.
        """

    @abstractmethod
    def basis(self, rows: Float[Tensor, "S n F"]) -> Basis:
        """Return a basis. That of a Gaussian process has these rows as further inducing inputs."""


class Basis(ABC):
    """Features phi with C(x, x') = phi(x) phi(x')' + D, with a diagonal D."""

    @property
    @abstractmethod
    def num_features(self) -> int:
        """The number K of features."""

    @abstractmethod
    def features(self, rows: Float[Tensor, "S n F"]) -> tuple[Float[Tensor, "S G n K"], Float[Tensor, "#S #n"]]:
        """Return phi and the diagonal of D at rows of inputs of the layer."""

    @abstractmethod
    def fold(self, last: Function, coefficients: Float[Tensor, "S O K 1"]) -> Function:
        """Return the last layer with the correction phi(x) c of its first outputs, as a function of the same kind."""


@dataclass(frozen=True, eq=False)
class LinearCovariance(Covariance):
    """C = h A^-1 h' = (h T^-T) (h T^-T)'.

    Arguments:
        root: T^-T, a root of the covariance of the weights.
        bias: Whether the layer has a bias.
    """

    root: Float[Tensor, "#S G F F"]
    bias: bool

    def features(self, rows: Rows) -> tuple[Tensor, ...]:
        inputs = with_ones(rows.double()) if self.bias else rows.double()
        root = self.root.reshape(len(self.root), *[1] * (rows.ndim - 3), *self.root.shape[1:])
        return (inputs[..., None, :, :] @ root,)

    def between(self, left: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> Float[Tensor, "S *batch G n k"]:
        return left[0] @ right[0].mT

    def select(self, outputs: list[int]) -> LinearCovariance:
        return self if self.root.shape[1] == 1 else replace(self, root=self.root[:, outputs])

    def fold(self, last: Function, features: tuple[Tensor, ...], coefficients: Float[Tensor, "S O n 1"]) -> Affine:
        # phi(x) phi(x')' c
        return LinearBasis(self).fold(last, features[0].mT @ coefficients)

    def max_dense_rows(self, num_inducing: int) -> int:
        # both forms are exact
        return self.root.shape[-1]

    def basis(self, rows: Float[Tensor, "S n F"]) -> LinearBasis:
        return LinearBasis(self)


@dataclass(frozen=True, eq=False)
class LinearBasis(Basis):
    """phi = h T^-T, which is exact.

    Arguments:
        covariance: The covariance.
    """

    covariance: LinearCovariance

    @property
    def num_features(self) -> int:
        return self.covariance.root.shape[-1]

    def features(self, rows: Float[Tensor, "S n F"]) -> tuple[Float[Tensor, "S G n K"], Float[Tensor, "#S #n"]]:
        (features,) = self.covariance.features(rows)
        return features, features.new_zeros(1, 1)

    def fold(self, last: Function, coefficients: Float[Tensor, "S O K 1"]) -> Affine:
        assert isinstance(last, Affine)
        # h w + h T^-T c
        change = (self.covariance.root @ coefficients)[..., 0].mT
        return replace(last, weights=last.weights + _pad(change, last.weights))


@dataclass(frozen=True, eq=False)
class ProcessCovariance(Covariance):
    """C = k(h, h) - A A' + A V[a] A' of a Gaussian process, with A = K_hu R^-T.

    Arguments:
        kernel: The covariance function of the prior.
        values: Its evaluated hyperparameters.
        inducing_inputs: The inputs u.
        inverse: R^-1.
        spread: A root of V[a].
        nugget: The variance of the jitter.
    """

    kernel: Kernel
    values: Values
    inducing_inputs: Float[Tensor, "#S M D"]
    inverse: Float[Tensor, "#S M M"]
    spread: Float[Tensor, "#S G M M"]
    nugget: Float[Tensor, "#S"]

    def features(self, rows: Rows) -> tuple[Tensor, ...]:
        rows = rows.double()
        flat = rows.flatten(1, -2)
        known = self.kernel.matrix(self.values, flat, self.inducing_inputs) @ self.inverse.mT
        spread = known[:, None] @ self.spread.double()
        shape = rows.shape[1:-1]
        return rows, known.unflatten(1, shape), spread.unflatten(2, shape).movedim(1, -3)

    def between(self, left: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> Float[Tensor, "S *batch G n k"]:
        batch = torch.broadcast_shapes(left[0].shape[:-2], right[0].shape[:-2])
        one, other = (rows.expand(*batch, -1, -1).reshape(-1, *rows.shape[-2:]) for rows in (left[0], right[0]))
        prior = self.kernel.matrix(self.values, one, other).unflatten(0, batch)
        return (prior - left[1] @ right[1].mT)[..., None, :, :] + left[2] @ right[2].mT

    def select(self, outputs: list[int]) -> ProcessCovariance:
        return self if self.spread.shape[1] == 1 else replace(self, spread=self.spread[:, outputs])

    def fold(self, last: Function, features: tuple[Tensor, ...], coefficients: Float[Tensor, "S O n 1"]) -> Path:
        rows, known, spread = features
        # K_hx' c - K_hu R^-T (A'c - V[a] A'c), with A at the new rows
        explained = known.mT[:, None] @ coefficients - self.spread @ (spread.mT @ coefficients)
        return self.extend(last, rows, -explained, coefficients)

    def extend(
        self, last: Function, rows: Rows, known: Float[Tensor, "S O M 1"], new: Float[Tensor, "S O n 1"]
    ) -> Path:
        """Return the path with the correction K_hu R^-T known + K_hz new, z the given rows, of its first outputs."""
        assert isinstance(last, Path)
        change = (self.inverse.mT[:, None] @ known)[..., 0].mT
        inputs = self.inducing_inputs.expand(len(rows), -1, -1)
        parts = [last.correction + _pad(change, last.correction), _pad(new[..., 0].mT, last.correction)]
        return replace(last, inducing_inputs=torch.cat([inputs, rows], 1), correction=torch.cat(parts, 1))

    def max_dense_rows(self, num_inducing: int) -> int:
        return num_inducing

    def basis(self, rows: Float[Tensor, "S n F"]) -> ProcessBasis:
        rows, known, _ = self.features(rows)
        # C(z, z) given u, with the jitter of the model: LL' = k(z, z) - A A'
        prior = self.kernel.matrix(self.values, rows, rows) + torch.diag_embed(
            self.nugget[:, None].expand(rows.shape[:2])
        )
        return ProcessBasis(self, rows, known, find_roots(prior - known @ known.mT).inverse)


@dataclass(frozen=True, eq=False)
class ProcessBasis(Basis):
    """phi = (A V[a]^1/2, B) with further inducing inputs z, where B = (k(h, z) - A A_z') L^-T and LL' = k(z, z) - A_z A_z'.

    Arguments:
        covariance: The covariance.
        rows: The further inducing inputs z.
        known: A_z.
        inverse: L^-1.
    """

    covariance: ProcessCovariance
    rows: Float[Tensor, "S n D"]
    known: Float[Tensor, "S n M"]
    inverse: Float[Tensor, "S n n"]

    @property
    def num_features(self) -> int:
        return sum(self.known.shape[1:])

    def features(self, rows: Float[Tensor, "S n F"]) -> tuple[Float[Tensor, "S G n K"], Float[Tensor, "#S #n"]]:
        covariance = self.covariance
        rows, known, spread = covariance.features(rows)
        cross = covariance.kernel.matrix(covariance.values, rows, self.rows) - known @ self.known.mT
        further = cross @ self.inverse.mT
        prior = covariance.kernel.diagonal(covariance.values, rows)
        residual_variance = prior - known.square().sum(-1) - further.square().sum(-1)
        features = torch.cat([spread, further[:, None].expand(-1, spread.shape[1], -1, -1)], -1)
        return features, residual_variance.clamp_min(0)

    def fold(self, last: Function, coefficients: Float[Tensor, "S O K 1"]) -> Path:
        covariance, samples = self.covariance, len(self.rows)
        of_values, of_rows = coefficients.split([covariance.spread.shape[-1], self.rows.shape[1]], 2)
        # B c = k(h, z) L^-T c - A A_z' L^-T c
        new = self.inverse.mT[:, None] @ of_rows
        known = covariance.spread.expand(samples, -1, -1, -1) @ of_values - self.known.mT[:, None] @ new
        return covariance.extend(last, self.rows, known, new)


def _pad(change: Float[Tensor, "S n m"], like: Float[Tensor, "S _ O"]) -> Float[Tensor, "S n O"]:
    """Append zeros for outputs that are not means, in the dtype of the function."""
    return torch.nn.functional.pad(change, (0, like.shape[-1] - change.shape[-1])).to(like.dtype)
