"""The pseudo-likelihood of a layer, N(v; X w, Lambda^-1) with Lambda = LL', and its statistics for the regression.

Weights have the shape (S, G, F, C) of `inducing.linalg.precision`, with G = 1 if all outputs share Lambda and G = outputs
if each has its own; or the shape (S, F, O), with all outputs in one axis.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.linalg.gram import weighted_grams


class PseudoOutputs(NamedTuple):
    """The pseudo-likelihood v | w ~ N(X w, Lambda^-1).

    Arguments:
        values: v, one column per output. It has a leading axis if samples differ, as with the mean function of a
            Gaussian process.
        root: L with Lambda = LL': (G, n) for a diagonal matrix, (G, n, n) for a lower triangular one. G is 1 if all
            outputs share it, else the number of outputs.
    """

    values: Float[Tensor, "n O"] | Float[Tensor, "#S n O"]
    root: Float[Tensor, "G n"] | Float[Tensor, "G n n"]

    @property
    def layout(self) -> tuple[int, int]:
        """(G, C): the number of groups of outputs that share Lambda, and the number of outputs in each."""
        groups = self.root.shape[0]
        return groups, self.values.shape[-1] if groups == 1 else 1

    def to(self, dtype: torch.dtype) -> PseudoOutputs:
        """Return the pseudo-outputs in another dtype."""
        return PseudoOutputs(self.values.to(dtype), self.root.to(dtype))

    def gram(self, inputs: Float[Tensor, "#S n F"]) -> Float[Tensor, "#S G F F"]:
        """Return X' Lambda X = Y'Y."""
        if self.root.ndim == 2 and 4 * len(self.root) > inputs.shape[-1]:
            # with many outputs per feature, the outer products of rows, which all outputs share, are the smaller cost
            return weighted_grams(inputs, self.root.square())
        whitened = self.whiten_inputs(inputs)
        return whitened.mT @ whitened

    def cross(self, inputs: Float[Tensor, "#S n F"]) -> Float[Tensor, "#S G F C"]:
        """Return X' Lambda v = Y't."""
        if self.root.ndim == 3:
            # L L'v, then X'
            return inputs.mT[:, None] @ multiply_samples(self.root, self.whiten_values())
        # one product for all outputs
        return by_group(inputs.mT @ (self.root.square().mT * self.values), len(self.root))

    def whiten_inputs(self, inputs: Float[Tensor, "#S n F"]) -> Float[Tensor, "#S G n F"]:
        """Return Y = L'X."""
        return self._whiten(inputs[:, None])

    def whiten_values(self) -> Float[Tensor, "#S G n C"]:
        """Return t = L'v."""
        values = self.values if self.values.ndim == 3 else self.values[None]
        return self._whiten(by_group(values, len(self.root)))

    def whiten_outputs(self, rows: Float[Tensor, "#S n O"]) -> Float[Tensor, "#S n O"]:
        """Return L'r for rows r with all outputs in one axis."""
        if self.root.ndim == 2:
            return self.root.mT * rows
        return by_output(self._whiten(by_group(rows, len(self.root))))

    def _whiten(self, rows: Float[Tensor, "#S #G n C"]) -> Float[Tensor, "#S G n C"]:
        return self.root[..., None] * rows if self.root.ndim == 2 else multiply_samples(self.root.mT, rows)


def multiply_samples(matrix: Float[Tensor, "G n n"], rows: Float[Tensor, "#S #G n C"]) -> Float[Tensor, "#S G n C"]:
    """Return the product of a matrix, which all samples share, with rows. Samples become columns of one product."""
    samples, _, _, columns = rows.shape
    product = matrix @ samples_as_columns(rows)
    return product.unflatten(-1, (samples, columns)).permute(2, 0, 1, 3)


def samples_as_columns(rows: Float[Tensor, "S G n C"]) -> Float[Tensor, "G n S*C"]:
    """Reshape so that each sample is a set of columns."""
    return rows.permute(1, 2, 0, 3).flatten(2)


def by_output(weights: Float[Tensor, "#S G F C"]) -> Float[Tensor, "#S F O"]:
    """Reshape from groups of outputs to outputs: (S, 1, F, O) or (S, O, F, 1) to (S, F, O)."""
    return weights[:, 0] if weights.shape[1] == 1 else weights[..., 0].mT


def by_group(values: Float[Tensor, "#S F O"], groups: int) -> Float[Tensor, "#S G F C"]:
    """Reshape from outputs to groups of outputs, the inverse of `by_output`."""
    return values[:, None] if groups == 1 else values.mT[..., None]
