"""Gaussian noise with constant variance, the usual likelihood for regression."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from inducing.linalg.cholesky import cholesky, logdet, solve_lower
from inducing.linalg.density import standard_log_density
from inducing.linalg.noise import standard_normal
from inducing.nn.likelihoods.base import Likelihood, Support
from inducing.nn.likelihoods.parameters import (
    FIRST_VARIANCE,
    LOG_VARIANCE_SCALE,
    Positive,
    check_number,
    register_log,
)
from inducing.nn.likelihoods.targets import check_like, check_real, check_shape, fill_missing, sum_observed


class Gaussian(Likelihood):
    """y = f + noise, noise ~ N(0, variance).

    Arguments:
        variance: Initial noise variance, one number for all outputs or one for each. Default: the paper's, exp(-3).
        learn_variance: Whether the noise variance is learned.

    Example:
        >>> import inducing
        >>> likelihood = inducing.Gaussian(variance=0.1, learn_variance=False)
    """

    support: ClassVar[Support] = "real"
    scaled_log_variance: Tensor

    def __init__(self, variance: Positive = FIRST_VARIANCE, learn_variance: bool = True) -> None:
        super().__init__()
        register_log(self, "scaled_log_variance", "variance", variance, learn_variance, limited=False)

    @property
    def noise_variance(self) -> Float[Tensor, ""] | Float[Tensor, " O"]:
        """The noise variance, a scalar or one for each output."""
        return self._log_variance().exp()

    def check_targets(self, y: object, output_shape: tuple[int, ...]) -> Tensor:
        y = check_shape(y, output_shape)
        check_number(self.scaled_log_variance, "noise variances", y)
        return check_real(y)

    def log_prob(self, outputs: Float[Tensor, "S B *O"], y: Float[Tensor, "B *O"]) -> Float[Tensor, "S B"]:
        check_like(y, outputs.shape)
        # log N(y; f, v) = -(y - f)^2 / 2v - log(2 pi v) / 2
        log_variance = self._log_variance()
        square = (fill_missing(y) - outputs).square()
        density = square * (-log_variance).exp() + log_variance + math.log(2 * math.pi)
        return -0.5 * sum_observed(density, y)

    def expected_log_prob(
        self, mean: Float[Tensor, "S B *O"], variance: Float[Tensor, "..."], y: Float[Tensor, "B *O"]
    ) -> Float[Tensor, "S B"]:
        # E log N(y; f, v) = log N(y; mean, v) - variance / 2v
        lost = variance.expand(mean.shape) * (-self._log_variance()).exp() / 2
        return self.log_prob(mean, y) - sum_observed(lost, y)

    def conditional_gain(
        self,
        mean: Float[Tensor, "S B *O"],
        variance: Float[Tensor, "..."],
        conditional_variance: Float[Tensor, "#S B 1"],
    ) -> Float[Tensor, "S B"]:
        # d / v, for each output
        ratio = conditional_variance.expand(mean.shape) * (-self._log_variance()).exp()
        return gain_of_tight_conditional(ratio).flatten(2).sum(-1)

    def joint_log_prob(
        self, mean: Float[Tensor, "S N O"], covariance: Float[Tensor, "#S N N"], y: Float[Tensor, "N O"]
    ) -> Float[Tensor, " S"]:
        # log N(y; mean, D + v I) of each output, in float64
        noise = self.noise_variance.double().expand(y.shape)
        matrix, residual = covariance.double()[:, None], y - mean.double()
        missing = y.isnan()
        if missing.any():
            # missing targets become independent, with residual 0 and variance 1
            observed = ~missing.mT
            matrix = matrix * (observed[:, :, None] & observed[:, None])
            noise, residual = torch.where(missing, 1.0, noise), torch.where(missing, 0.0, residual)
        factor = cholesky(matrix + torch.diag_embed(noise.mT))
        whitened = solve_lower(factor, residual.mT[..., None])
        density = standard_log_density(whitened) - logdet(factor).sum(-1) / 2
        return density + missing.sum() * math.log(2 * math.pi) / 2

    def mean(self, outputs: Float[Tensor, "S B *O"]) -> Float[Tensor, "S B *O"]:
        return outputs

    def variance(self, outputs: Float[Tensor, "S B *O"]) -> Float[Tensor, "S B *O"]:
        return self.noise_variance.expand(outputs.shape)

    def sample(self, outputs: Float[Tensor, "S B *O"], generator: Generator | None = None) -> Float[Tensor, "S B *O"]:
        noise = standard_normal(tuple(outputs.shape), outputs, generator)
        return outputs + self.noise_variance.sqrt() * noise

    def log_cdf(self, outputs: Float[Tensor, "S B *O"], y: Float[Tensor, "B *O"]) -> Float[Tensor, "S B *O"]:
        return torch.special.log_ndtr((y - outputs) / self.noise_variance.sqrt())

    def log_survival(self, outputs: Float[Tensor, "S B *O"], y: Float[Tensor, "B *O"]) -> Float[Tensor, "S B *O"]:
        return torch.special.log_ndtr((outputs - y) / self.noise_variance.sqrt())

    def icdf(self, outputs: Float[Tensor, "S B *O"], probability: float) -> Float[Tensor, "S B *O"]:
        level = torch.special.ndtri(torch.tensor(probability, dtype=torch.float64)).item()
        return outputs + level * self.noise_variance.sqrt()

    def extra_repr(self) -> str:
        return f"variance={self.noise_variance.tolist()}, learn_variance={self.scaled_log_variance.requires_grad}"

    def _log_variance(self) -> Tensor:
        return LOG_VARIANCE_SCALE * self.scaled_log_variance


def gain_of_tight_conditional(ratio: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
    """Return (r - log(1 + r)) / 2 for the conditional variance r in units of the noise variance.

    The tight conditional has the variance r v instead of r. The loss of expected log-likelihood is v r / 2 instead of r / 2,
    and its KL is (v - 1 - log v) / 2. The optimum v = 1 / (1 + r) replaces the loss r / 2 by log(1 + r) / 2.
    """
    return (ratio - torch.log1p(ratio)) / 2
