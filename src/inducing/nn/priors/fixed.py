"""Isotropic Gaussian priors with a fixed scale."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from inducing.linalg.precision import Precision, ScaledIdentity
from inducing.nn.priors.base import Prior, PriorDensity, PriorModule, PriorSample, WeightLayout


@dataclass(frozen=True)
class NealPrior(Prior):
    """w ~ N(0, I / fan_in). The scale of activations is the same in all layers (Neal, 1996)."""

    def build(self, layout: WeightLayout) -> PriorModule:
        return FixedScale(float(layout.fan_in), layout.fan_in)


@dataclass(frozen=True)
class StandardPrior(Prior):
    """w ~ N(0, I)."""

    def build(self, layout: WeightLayout) -> PriorModule:
        return FixedScale(1.0, layout.fan_in)


class FixedScale(PriorModule):
    """P = scale I."""

    scale: Tensor

    def __init__(self, scale: float, fan_in: int) -> None:
        super().__init__()
        self.fan_in = fan_in
        self.register_buffer("scale", torch.tensor([scale]), persistent=False)

    def forward(self, num_samples: int, generator: Generator | None = None) -> PriorSample:
        return PriorSample(ScaledIdentity(self.scale, self.fan_in), torch.zeros_like(self.scale))

    def log_density(self, precision: Precision | None) -> PriorDensity:
        nothing = torch.zeros_like(self.scale, dtype=torch.float64)
        return PriorDensity(ScaledIdentity(self.scale, self.fan_in), nothing, nothing)
