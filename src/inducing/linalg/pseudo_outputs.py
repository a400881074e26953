"""The pseudo-likelihood of a layer, N(v; X w, Lambda^-1) with Lambda = LL', and what a regression needs of it.

Weights are laid out as in `inducing.linalg.precision`: (S, G, F, C), with G = 1 if all outputs share Lambda and
G = outputs if each has its own; or as (S, F, O), with all outputs side by side.
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
        values: v, one column per output; with a leading axis where samples differ, as they do around the mean function
            of a Gaussian process.
        root: L with Lambda = LL'. A diagonal as (G, n), a lower triangular matrix as (G, n, n); G is 1 if all outputs
            share it, else the number of outputs.
    """

    values: Float[Tensor, "n O"] | Float[Tensor, "#S n O"]
    root: Float[Tensor, "G n"] | Float[Tensor, "G n n"]

    @property
    def layout(self) -> tuple[int, int]:
        """(G, C): groups of outputs that share Lambda, and outputs in each."""
        groups = self.root.shape[0]
        return groups, self.values.shape[-1] if groups == 1 else 1

    def to(self, dtype: torch.dtype) -> PseudoOutputs:
        """The same in another dtype."""
        return PseudoOutputs(self.values.to(dtype), self.root.to(dtype))

    def gram(self, inputs: Float[Tensor, "#S n F"]) -> Float[Tensor, "#S G F F"]:
        """X' Lambda X = Y'Y."""
        if self.root.ndim == 2 and 4 * len(self.root) > inputs.shape[-1]:
            # many outputs for the features: outer products of rows, which all outputs share, cost little beside the rest
            return weighted_grams(inputs, self.root.square())
        whitened = self.whiten_inputs(inputs)
        return whitened.mT @ whitened

    def cross(self, inputs: Float[Tensor, "#S n F"]) -> Float[Tensor, "#S G F C"]:
        """X' Lambda v = Y't."""
        if self.root.ndim == 3:
            return self.whiten_inputs(inputs).mT @ self.whiten_values()
        # one product for all outputs
        return by_group(inputs.mT @ (self.root.square().mT * self.values), len(self.root))

    def whiten_inputs(self, inputs: Float[Tensor, "#S n F"]) -> Float[Tensor, "#S G n F"]:
        """Y = L'X."""
        return self._whiten(inputs[:, None])

    def whiten_values(self) -> Float[Tensor, "#S G n C"]:
        """t = L'v."""
        values = self.values if self.values.ndim == 3 else self.values[None]
        return self._whiten(by_group(values, len(self.root)))

    def whiten_outputs(self, rows: Float[Tensor, "#S n O"]) -> Float[Tensor, "#S n O"]:
        """L'r of rows with all outputs side by side."""
        if self.root.ndim == 2:
            return self.root.mT * rows
        return by_output(self._whiten(by_group(rows, len(self.root))))

    def _whiten(self, rows: Float[Tensor, "#S #G n C"]) -> Float[Tensor, "#S G n C"]:
        return self.root[..., None] * rows if self.root.ndim == 2 else self.root.mT @ rows


def by_output(weights: Float[Tensor, "#S G F C"]) -> Float[Tensor, "#S F O"]:
    """From groups of outputs to outputs: (S, 1, F, O) or (S, O, F, 1) to (S, F, O)."""
    return weights[:, 0] if weights.shape[1] == 1 else weights[..., 0].mT


def by_group(values: Float[Tensor, "#S F O"], groups: int) -> Float[Tensor, "#S G F C"]:
    """The inverse of `by_output`."""
    return values[:, None] if groups == 1 else values.mT[..., None]
