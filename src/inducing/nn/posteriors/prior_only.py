"""The prior as the posterior. Nothing is learned."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.linalg.density import prior_log_density, standard_log_density
from inducing.linalg.noise import standard_normal
from inducing.linalg.precision import Precision
from inducing.linalg.regression import WeightSample
from inducing.nn.context import DrawContext
from inducing.nn.posteriors import base


@dataclass(frozen=True)
class PriorOnly(base.WeightPosterior, base.ValuePosterior):
    """Weights or functions drawn from the prior. Nothing is learned, and the KL is zero."""

    def build_weights(self, context: base.WeightContext) -> PriorWeights:
        return PriorWeights(context.layout.fan_in, context.out_features)

    def build_values(self, context: base.ValueContext) -> PriorValues:
        return PriorValues()


class PriorWeights(base.WeightModule):
    """w ~ N(0, P^-1)."""

    def __init__(self, fan_in: int, outputs: int) -> None:
        super().__init__()
        self.shape = (fan_in, outputs)

    def forward(self, inputs: Float[Tensor, "#S M F"] | None, prior: Precision, context: DrawContext) -> WeightSample:
        like = prior.logdet()
        noise = standard_normal((context.num_samples, 1, *self.shape), like, context.generator)
        return WeightSample(prior.colour(noise)[:, 0], like.new_zeros(context.num_samples))

    def log_density(
        self,
        weights: Float[Tensor, "S F O"],
        inputs: Float[Tensor, "#S M *F"] | None,
        prior: Precision,
        context: DrawContext,
    ) -> Float[Tensor, " S"]:
        return prior_log_density(weights, prior)


class PriorValues(base.ValueModule):
    """a ~ N(0, I)."""

    inducing_inputs = None

    def forward(self, prior: base.ValuePrior, context: DrawContext, integrate: bool = False) -> base.ValueSample:
        root, (rows, outputs) = prior.root, prior.mean.shape[1:]
        whitened = standard_normal((context.num_samples, rows, outputs), root, context.generator)
        sample = base.ValueSample(whitened, root.new_zeros(context.num_samples))
        if not integrate:
            return sample
        identity = torch.eye(rows, dtype=root.dtype, device=root.device)
        return sample._replace(mean=root.new_zeros(1, rows, outputs), spread=identity[None, None])

    def log_density(
        self, whitened: Float[Tensor, "S M O"], prior: base.ValuePrior, context: DrawContext
    ) -> Float[Tensor, " S"]:
        return standard_log_density(whitened)
