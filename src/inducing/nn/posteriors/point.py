"""One set of weights, trained by maximum likelihood: a plain network, with the layers and the training of the others."""

from __future__ import annotations

import math
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from inducing.linalg.noise import initial_normal
from inducing.linalg.precision import Precision
from inducing.linalg.regression import WeightSample
from inducing.nn.context import DrawContext
from inducing.nn.posteriors.base import WeightContext, WeightModule, WeightPosterior


@dataclass(frozen=True)
class PointEstimate(WeightPosterior):
    """One value for each weight, and no KL. Initial weights have variance 2 / fan-in (He et al., 2015).

    The objective is the log-likelihood and not a bound on the evidence.
    """

    def build_weights(self, context: WeightContext) -> PointWeights:
        return PointWeights(
            initial_normal(context.layout.fan_in, context.out_features, generator=context.network.generator)
        )


class PointWeights(WeightModule):
    """The weights, scaled as the means of a factorised posterior are, so that a learning rate means the same."""

    def __init__(self, scaled: Float[Tensor, "F O"]) -> None:
        super().__init__()
        self.scale, self.scaled = math.sqrt(2 / len(scaled)), nn.Parameter(scaled)

    @property
    def weights(self) -> Float[Tensor, "F O"]:
        """The weights, with the bias in the last row."""
        return self.scale * self.scaled

    def forward(self, inputs: Float[Tensor, "#S M *F"] | None, prior: Precision, context: DrawContext) -> WeightSample:
        weights = self.weights.expand(context.num_samples, -1, -1)
        return WeightSample(weights, weights.new_zeros(context.num_samples))
