"""Thompson sampling: whole functions of the posterior as BoTorch's sample paths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths
from torch import Tensor, nn

from inducing.integrations.botorch.model import InducingModel
from inducing.linalg.noise import seeded, standard_normal


class FunctionPaths(nn.Module):
    """Whole functions as BoTorch's sample paths, one for each element of the sample shape.

    Arguments:
        model: A model whose draws are the functions.
        sample_shape: The shape of the samples.
    """

    def __init__(self, model: InducingModel, sample_shape: Sequence[int]) -> None:
        super().__init__()
        self.model, self.sample_shape = model, torch.Size(sample_shape)

    def set_ensemble_as_batch(self, ensemble_as_batch: bool) -> None:
        """Do nothing: the functions are not an ensemble of models."""

    def forward(self, X: Tensor) -> Tensor:
        """Return values (..., *sample_shape, n), or (..., *sample_shape, m, n) of rows (..., 1, n, d) for m > 1 targets."""
        several, count = self.model.num_outputs > 1, len(self.sample_shape)
        if several:
            X = X.squeeze(-3)
        # each function has its own rows: (*rest, *sample_shape, n, d) to (S, *rest, n, d)
        batch = torch.broadcast_shapes(X.shape[:-2], self.sample_shape)
        X = self.model.transform_inputs(X.expand(*batch, *X.shape[-2:]))
        rest = batch[: len(batch) - count]
        rows = X.reshape(*rest, math.prod(self.sample_shape), *X.shape[-2:]).movedim(-3, 0)
        values = self.model._untransform(self.model._values(rows), X)
        values = values.reshape(*batch, *values.shape[-2:])
        return values.mT if several else values[..., 0]


@DrawMatheronPaths.register(InducingModel)
def _draw_functions(model: InducingModel, *, sample_shape: torch.Size, **_: Any) -> FunctionPaths:
    """Draw new functions from the posterior, also given the observations of a conditioned model."""
    if len(model.batch_shape):
        raise NotImplementedError(
            "functions of a model with a batch of observations cannot be drawn. Use one set of them"
        )
    fresh = model._copy()
    fresh.num_samples = math.prod(sample_shape)
    # from torch's global generator, as in BoTorch: each call draws other functions
    fresh.seed = int(torch.randint(2**31 - 1, ()).item())
    if (old := model._observations) is not None:
        generator = seeded(fresh.seed, "noise of observations")
        noise = standard_normal((fresh.num_samples, *old.noise.shape[1:]), old.noise, generator)
        fresh._observations = replace(old, noise=noise)
    fresh._draw()
    return FunctionPaths(fresh, sample_shape)
