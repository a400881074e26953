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


class Statistics(NamedTuple):
    """What a regression needs to know about its data.

    Arguments:
        gram: X' Lambda X.
        cross: X' Lambda v.
        square: v' Lambda v of each group of outputs, or None if it is not known.
    """

    gram: Float[Tensor, "#S G F F"]
    cross: Float[Tensor, "#S G F C"]
    square: Float[Tensor, "#S G"] | None = None


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

    def statistics(self, inputs: Float[Tensor, "#S n F"]) -> Statistics:
        """Return X' Lambda X = Y'Y and X' Lambda v = Y't."""
        groups, targets = self.root.shape[0], self.whiten_values()
        if self.root.ndim == 2 and groups > 1 and inputs.shape[-1] < 4 * groups:
            # with many outputs per feature, the outer products of rows, which all outputs share, are the smaller cost
            gram = weighted_grams(inputs, self.root.square())
            # L t = Lambda v, then one product for all outputs
            cross = by_group(inputs.mT @ (self.root.mT * by_output(targets)), groups)
        else:
            whitened = self.whiten_inputs(inputs)
            gram, cross = whitened.mT @ whitened, whitened.mT @ targets
        return Statistics(gram, cross, targets.detach().square().sum((-2, -1)))

    def whiten_inputs(self, inputs: Float[Tensor, "#S n F"]) -> Float[Tensor, "#S G n F"]:
        """Return Y = L'X."""
        return self._whiten(inputs[:, None])

    def whiten_values(self) -> Float[Tensor, "#S G n C"]:
        """Return t = L'v."""
        values = self.values if self.values.ndim == 3 else self.values[None]
        return self._whiten(by_group(values, self.root.shape[0]))

    def unwhiten(self, rows: Float[Tensor, "S G n C"]) -> Float[Tensor, "S n O"]:
        """Return L^-T r, with all outputs in one axis. Where a precision is zero, so are the rows."""
        if self.root.ndim == 2:
            return by_output(rows) / self.root.mT.clamp_min(torch.finfo(self.root.dtype).tiny)
        columns = torch.linalg.solve_triangular(self.root.mT, samples_as_columns(rows), upper=True)
        return by_output(columns_as_samples(columns, len(rows)))

    def _whiten(self, rows: Float[Tensor, "#S #G n C"]) -> Float[Tensor, "#S G n C"]:
        return self.root[..., None] * rows if self.root.ndim == 2 else multiply_samples(self.root.mT, rows)


def multiply_samples(matrix: Float[Tensor, "G n n"], rows: Float[Tensor, "#S #G n C"]) -> Float[Tensor, "#S G n C"]:
    """Return the product of a matrix, which all samples share, with rows. Samples become columns of one product."""
    return columns_as_samples(matrix @ samples_as_columns(rows), len(rows))


def samples_as_columns(rows: Float[Tensor, "S G n C"]) -> Float[Tensor, "G n S*C"]:
    """Reshape so that each sample is a set of columns."""
    return rows.permute(1, 2, 0, 3).flatten(2)


def columns_as_samples(columns: Float[Tensor, "G n SC"], samples: int) -> Float[Tensor, "S G n C"]:
    """Reshape from columns to samples, the inverse of `samples_as_columns`."""
    return columns.unflatten(-1, (samples, -1)).permute(2, 0, 1, 3)


def by_output(weights: Float[Tensor, "#S G F C"]) -> Float[Tensor, "#S F O"]:
    """Reshape from groups of outputs to outputs: (S, 1, F, O) or (S, O, F, 1) to (S, F, O)."""
    return weights[:, 0] if weights.shape[1] == 1 else weights[..., 0].mT


def by_group(values: Float[Tensor, "#S F O"], groups: int) -> Float[Tensor, "#S G F C"]:
    """Reshape from outputs to groups of outputs, the inverse of `by_output`."""
    return values[:, None] if groups == 1 else values.mT[..., None]
