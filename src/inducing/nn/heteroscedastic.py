"""The exact last layer under noise that depends on the inputs.

The outputs are [f | g]: means, and logarithms of noise variances. Given g the targets have Gaussian noise of known variances
v(g), so the posterior of the weights of f is exact again, row by row with its own precision (the paper's Eq. 7):

    Q(w) = Q(w_g) P(w_f | y, g),    P(w_f | y, g) proportional to N(y; X w_f, diag v(g)) P(w_f).

Only Q(w_g) is learned, by pseudo-outputs as in every other layer. No other Q(w_f | w_g) has a better ELBO.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from inducing.linalg.precision import Precision
from inducing.linalg.pseudo_outputs import PseudoOutputs
from inducing.linalg.regression import WeightSample, regress
from inducing.nn.likelihoods import HeteroscedasticGaussian
from inducing.nn.pseudo import Optimum
from inducing.nn.weights import InducingWeights, Weights


class HeteroscedasticWeights(Optimum[HeteroscedasticGaussian], Weights):
    """Weights [w_f | w_g]: those of the means are exact given those of the noise, which are learned.

    Arguments:
        targets: Y beside first values for the pseudo-outputs of the noise.
        log_precision: First value of the logarithm of their precision.
    """

    noise = HeteroscedasticGaussian
    sample_is_quiet = True

    def __init__(self, targets: Float[Tensor, "M outputs"], log_precision: float = 0.0) -> None:
        means, deviations = targets.chunk(2, -1)
        super().__init__(means.clone())
        self.of_noise = InducingWeights(deviations.clone(), None, "shared", log_precision, False)

    def forward(
        self,
        inputs: Float[Tensor, "#S M F"] | None,
        prior: Precision,
        num_samples: int,
        generator: Generator | None = None,
    ) -> WeightSample:
        assert inputs is not None
        self.of_noise.use_closed_form = self.use_closed_form
        of_noise = self.of_noise(inputs, prior, num_samples, generator)
        log_variance = self.likelihood.log_noise_variance(inputs @ of_noise.weights)
        root = (-log_variance / 2).exp() * self.row_weights.sqrt()[:, None]
        of_means = [
            self._regress(inputs, root[..., [k]], k, prior, num_samples, generator) for k in range(root.shape[-1])
        ]
        weights = torch.cat([*(sample.weights for sample in of_means), of_noise.weights], -1)
        return WeightSample(weights, sum((sample.kl for sample in of_means), of_noise.kl))

    def _regress(
        self,
        inputs: Float[Tensor, "#S M F"],
        root: Float[Tensor, "S M 1"],
        target: int,
        prior: Precision,
        num_samples: int,
        generator: Generator | None,
    ) -> WeightSample:
        """The regression of one target, with rows divided by the standard deviations of their noise."""
        # L'y ~ N(L'X w, I) with LL' = diag 1/v(g)
        whitened = PseudoOutputs(root * self.targets[:, [target]], root.new_ones(1, root.shape[1]))
        return regress(
            root * inputs,
            whitened,
            prior,
            num_samples,
            generator=generator,
            closed_form_kl=self.use_closed_form,
            exact=True,
        )
