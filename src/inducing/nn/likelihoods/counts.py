"""Likelihoods of counts 0, 1, 2, ... The outputs of the network are the logarithms of their means.

`soft_limit` is applied to the logarithms: beyond exp(+-20) the mean, or its inverse, grows linearly with the output.
Densities are computed relative to their mode, with delta = log(mean / y), which is accurate for large counts in float32.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from inducing.linalg.noise import standard_gamma
from inducing.nn.likelihoods.base import Likelihood, Support
from inducing.nn.likelihoods.integers import integer_quantile
from inducing.nn.likelihoods.parameters import LOG_VARIANCE_SCALE, Positive, check_number, register_log
from inducing.nn.likelihoods.special import from_scipy, soft_limit, stirling_remainder
from inducing.nn.likelihoods.targets import (
    check_like,
    check_shape,
    check_whole,
    fill_missing,
    may_be_missing,
    sum_observed,
)


class Poisson(Likelihood):
    """y ~ Poisson(exp(f)). Targets are whole numbers in any dtype and have the shape of the outputs.

    Example:
        >>> import inducing, torch
        >>> inducing.Poisson().log_prob(torch.zeros(1, 2, 1), torch.tensor([[0], [1]]))
        tensor([[-1., -1.]])
    """

    support: ClassVar[Support] = "integers"

    def check_targets(self, y: object, output_shape: tuple[int, ...]) -> Tensor:
        return _check_counts(y, output_shape)

    def log_prob(
        self, outputs: Float[Tensor, "S B *O"], y: Float[Tensor, "B *O"] | Int[Tensor, "B *O"] | Bool[Tensor, "B *O"]
    ) -> Float[Tensor, "S B"]:
        check_like(y, outputs.shape)
        log_rate, count = soft_limit(outputs), fill_missing(y.to(outputs.dtype))
        # log p = y log rate - rate - log y! = y delta - y (exp(delta) - 1) - remainder(y),   or -rate for y = 0
        delta = log_rate - count.clamp_min(1).log()
        density = torch.where(count > 0, count * (delta - delta.expm1()), -log_rate.exp())
        return sum_observed(density - stirling_remainder(count), y)

    def expected_log_prob(
        self,
        mean: Float[Tensor, "S B *O"],
        variance: Float[Tensor, "..."],
        y: Float[Tensor, "B *O"] | Int[Tensor, "B *O"] | Bool[Tensor, "B *O"],
    ) -> Float[Tensor, "S B"]:
        # y mean - exp(mean + variance / 2) - log y! = log p(y; mean) - exp(mean) (exp(variance / 2) - 1)
        log_rate, log_expected = soft_limit(mean), soft_limit(mean + variance.expand(mean.shape) / 2)
        lost = log_rate.exp() * (log_expected - log_rate).expm1()
        return self.log_prob(mean, y) - sum_observed(lost, y)

    def mean(self, outputs: Float[Tensor, "S B *O"]) -> Float[Tensor, "S B *O"]:
        return soft_limit(outputs).exp()

    def variance(self, outputs: Float[Tensor, "S B *O"]) -> Float[Tensor, "S B *O"]:
        return self.mean(outputs)

    def sample(self, outputs: Float[Tensor, "S B *O"], generator: Generator | None = None) -> Float[Tensor, "S B *O"]:
        return _poisson(self.mean(outputs.double()), generator).to(outputs.dtype)

    def log_cdf(self, outputs: Float[Tensor, "S B *O"], y: Tensor) -> Float[Tensor, "S B *O"]:
        # P(Y <= k) = P(Gamma(k + 1) > rate)
        rate, least = self.mean(outputs.double()), y.double().floor()
        below = torch.special.gammaincc(least.clamp_min(0) + 1, rate)
        return torch.where(least < 0, -torch.inf, below.log()).to(outputs.dtype)

    def log_survival(self, outputs: Float[Tensor, "S B *O"], y: Tensor) -> Float[Tensor, "S B *O"]:
        rate, least = self.mean(outputs.double()), y.double().floor()
        above = torch.special.gammainc(least.clamp_min(0) + 1, rate)
        return torch.where(least < 0, 0.0, above.log()).to(outputs.dtype)

    def icdf(self, outputs: Float[Tensor, "S B *O"], probability: float) -> Float[Tensor, "S B *O"]:
        return integer_quantile(self, outputs[None], probability).to(outputs.dtype)


class NegativeBinomial(Likelihood):
    """Counts y with mean m = exp(f) and variance m + m^2 / concentration. Targets are whole numbers in any dtype.

    It is a Poisson distribution whose rate is Gamma distributed. The limit of large concentrations is `Poisson`. Small
    concentrations are for overdispersed counts. `soft_limit` is applied to the logarithm of the concentration.

    Arguments:
        concentration: Initial concentration, one number for all outputs or one for each.
        learn_concentration: Whether the concentration is learned.

    Example:
        >>> import inducing, torch
        >>> likelihood = inducing.NegativeBinomial(concentration=2.0)
        >>> likelihood.variance(torch.zeros(1, 1, 1)).item()
        1.5
    """

    support: ClassVar[Support] = "integers"
    scaled_log_concentration: Tensor

    def __init__(self, concentration: Positive = 1.0, learn_concentration: bool = True) -> None:
        super().__init__()
        register_log(self, "scaled_log_concentration", "concentration", concentration, learn_concentration)

    @property
    def concentration(self) -> Float[Tensor, ""] | Float[Tensor, " O"]:
        """The concentration, a scalar or one for each output."""
        return self._log_concentration().exp()

    def check_targets(self, y: object, output_shape: tuple[int, ...]) -> Tensor:
        y = _check_counts(y, output_shape)
        check_number(self.scaled_log_concentration, "concentrations", y)
        return y

    def log_prob(
        self, outputs: Float[Tensor, "S B *O"], y: Float[Tensor, "B *O"] | Int[Tensor, "B *O"] | Bool[Tensor, "B *O"]
    ) -> Float[Tensor, "S B"]:
        check_like(y, outputs.shape)
        log_mean, count = soft_limit(outputs), fill_missing(y.to(outputs.dtype))
        log_r = self._log_concentration()
        r, safe = log_r.exp(), count.clamp_min(1)
        # log p = log Gamma(y + r) - log Gamma(r) - log y! + y log m + r log r - (y + r) log(m + r)
        #       = c(y, r) + y delta - (y + r) log((m + r) / (y + r))
        constant = (
            stirling_remainder(count + r) - stirling_remainder(r) - stirling_remainder(count) - (count / r).log1p()
        )
        delta = log_mean - safe.log()
        # the last logarithm is log(1 + (m - y) / (y + r)), or the logarithm of a sum for m < y / e, where 1 + ... cancels
        difference = torch.where(count > 0, count / (count + r) * delta.expm1(), (log_mean - log_r).exp())
        summed = torch.logaddexp(-(count / r).log1p(), delta - (r / safe).log1p())
        ratio = torch.where((delta < -1) & (count > 0), summed, difference.clamp_min(math.expm1(-1)).log1p())
        return sum_observed(constant + count * delta - (count + r) * ratio, y)

    def mean(self, outputs: Float[Tensor, "S B *O"]) -> Float[Tensor, "S B *O"]:
        return soft_limit(outputs).exp()

    def variance(self, outputs: Float[Tensor, "S B *O"]) -> Float[Tensor, "S B *O"]:
        mean = self.mean(outputs)
        return mean + mean.square() / self.concentration

    def sample(self, outputs: Float[Tensor, "S B *O"], generator: Generator | None = None) -> Float[Tensor, "S B *O"]:
        # y ~ Poisson(m gamma / r), gamma ~ Gamma(r, 1)
        r = self.concentration.double().expand(outputs.shape)
        rate = self.mean(outputs.double()) / r * standard_gamma(r, generator)
        return _poisson(rate, generator).to(outputs.dtype)

    def log_cdf(self, outputs: Float[Tensor, "S B *O"], y: Tensor) -> Float[Tensor, "S B *O"]:
        least = y.double().floor()
        below = self._incomplete_beta(outputs, least.clamp_min(0), below=True)
        return torch.where(least < 0, -torch.inf, below.log()).to(outputs.dtype)

    def log_survival(self, outputs: Float[Tensor, "S B *O"], y: Tensor) -> Float[Tensor, "S B *O"]:
        least = y.double().floor()
        above = self._incomplete_beta(outputs, least.clamp_min(0), below=False)
        return torch.where(least < 0, 0.0, above.log()).to(outputs.dtype)

    def icdf(self, outputs: Float[Tensor, "S B *O"], probability: float) -> Float[Tensor, "S B *O"]:
        return integer_quantile(self, outputs[None], probability).to(outputs.dtype)

    def extra_repr(self) -> str:
        learned = self.scaled_log_concentration.requires_grad
        return f"concentration={self.concentration.tolist()}, learn_concentration={learned}"

    def _log_concentration(self) -> Tensor:
        return soft_limit(LOG_VARIANCE_SCALE * self.scaled_log_concentration)

    def _incomplete_beta(self, outputs: Tensor, k: Tensor, below: bool) -> Tensor:
        """Return P(Y <= k) or P(Y > k), computed from p = m / (m + r) or from 1 - p, whichever is more accurate."""
        # imported here, since scipy is slow to import
        from scipy import special

        log_r = self._log_concentration().double()
        log_odds = soft_limit(outputs.double()) - log_r
        p, rest, r = torch.sigmoid(log_odds), torch.sigmoid(-log_odds), log_r.exp()
        # P(Y > k) = I_p(k + 1, r) = 1 - I_{1-p}(r, k + 1)
        by_p = from_scipy(special.betaincc if below else special.betainc, k + 1, r, p)
        by_rest = from_scipy(special.betainc if below else special.betaincc, r, k + 1, rest)
        return torch.where(p < 0.5, by_p, by_rest)


def _check_counts(y: object, output_shape: tuple[int, ...]) -> Tensor:
    remedy = "use Gaussian() or StudentT() for real numbers"
    y = check_shape(y, output_shape)
    return check_whole(y, None, "counts (0, 1, 2, ...)", remedy, missing=may_be_missing(y))


def _poisson(rate: Tensor, generator: Generator | None) -> Tensor:
    device = rate.device if generator is None else generator.device
    return torch.poisson(rate.to(device), generator=generator).to(rate.device)
