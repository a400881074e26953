"""Learned parameters of a pseudo-likelihood N(V; X w, Lambda^-1): V, Lambda, and X in a layer with its own inputs."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from inducing.linalg.pseudo_likelihood import PseudoOutputs
from inducing.nn.parameterisation import LOG_PRECISION_SCALE, lower_triangular
from inducing.nn.posteriors.base import PosteriorModule

PrecisionKind = Literal["shared", "per_output", "full", "full_per_output"]


class PseudoLikelihood(PosteriorModule, ABC):
    """Learned pseudo-outputs and their precision.

    Arguments:
        pseudo_outputs: Initial V.
        inducing_inputs: Initial inducing inputs of the layer, or None if it uses the global inducing points.
        precision: Structure of Lambda.
        log_precision: Initial logarithm of the diagonal of Lambda.
        closed_form_kl: Whether the KL is computed in closed form.
    """

    inducing_inputs: nn.Parameter | None
    precision_lower: nn.Parameter | None

    def __init__(
        self,
        pseudo_outputs: Float[Tensor, "M O *pixels"],
        inducing_inputs: Float[Tensor, "M F"] | None,
        precision: PrecisionKind,
        log_precision: float,
        closed_form_kl: bool,
    ) -> None:
        super().__init__()
        rows, outputs = pseudo_outputs.shape[:2]
        groups = outputs if precision.endswith("per_output") else 1
        self.uses_closed_form_kl = closed_form_kl
        self.pseudo_outputs = nn.Parameter(pseudo_outputs)
        self.inducing_inputs = None if inducing_inputs is None else nn.Parameter(inducing_inputs)
        self.scaled_log_precision = nn.Parameter(torch.full((groups, rows), log_precision / LOG_PRECISION_SCALE))
        is_full = precision.startswith("full")
        self.precision_lower = nn.Parameter(torch.zeros(groups, rows, rows)) if is_full else None

    def precision_root(self) -> Float[Tensor, "G M"] | Float[Tensor, "G M M"]:
        """Return L with Lambda = LL': a diagonal D, or the full D (I + N) with N strictly lower triangular."""
        diagonal = (LOG_PRECISION_SCALE / 2 * self.scaled_log_precision).exp()
        return diagonal if self.precision_lower is None else lower_triangular(diagonal, self.precision_lower)

    def pseudo_data(self) -> PseudoOutputs:
        """Return V and the root of Lambda."""
        return PseudoOutputs(self.pseudo_outputs, self.precision_root())

    def add_rows(self, count: int, log_precision: float) -> None:
        """Append pseudo-outputs of zero with the given log-precision."""
        functional, scaled = nn.functional, log_precision / LOG_PRECISION_SCALE
        with torch.no_grad():
            self.pseudo_outputs = _padded(
                self.pseudo_outputs, lambda v: torch.cat([v, v.new_zeros(count, *v.shape[1:])])
            )
            self.scaled_log_precision = _padded(
                self.scaled_log_precision, lambda v: functional.pad(v, (0, count), value=scaled)
            )
            if self.precision_lower is not None:
                self.precision_lower = _padded(self.precision_lower, lambda v: functional.pad(v, (0, count, 0, count)))

    def set_last_rows(
        self, values: Float[Tensor, "K O *pixels"], log_precision: Float[Tensor, ""] | Float[Tensor, "G K"]
    ) -> None:
        """Set the last pseudo-outputs, and the logarithm of the diagonal of their precision."""
        with torch.no_grad():
            self.pseudo_outputs[-len(values) :] = values
            self.scaled_log_precision[:, -len(values) :] = log_precision / LOG_PRECISION_SCALE


def _padded(parameter: nn.Parameter, pad: Callable[[Tensor], Tensor]) -> nn.Parameter:
    return nn.Parameter(pad(parameter.detach()), parameter.requires_grad)
