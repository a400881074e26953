"""Base class of likelihoods.

A likelihood must define `log_prob` and `sample`. The other methods have defaults that use `NUM_DRAWS` seeded samples of the
targets. A subclass can override them by formulas.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from inducing.checks import check_finite, check_tensor, is_known
from inducing.linalg.noise import seeded

Support = Literal["real", "integers", "classes"]

# samples of the targets in the defaults; the standard error of a mean is then 1/16 of the noise's standard deviation
NUM_DRAWS = 256
# numbers in the samples of one chunk of rows
MAX_NUMBERS = 2**24


class Likelihood(nn.Module, ABC):
    """A likelihood p(y | f) and its parameters.

    ``support`` is the kind of targets: "real" numbers, which may be standardised; "integers" 0, 1, 2, ..., such as
    counts; or "classes", labels without an order.

    Example:
        >>> import inducing, torch
        >>> class Laplace(inducing.nn.Likelihood):
        ...     def log_prob(self, outputs, y):
        ...         return torch.distributions.Laplace(outputs, 0.1).log_prob(y).sum(-1)
        ...     def sample(self, outputs, generator=None):
        ...         uniform = torch.rand(outputs.shape, generator=generator)
        ...         uniform = 0.999999 * (uniform - 0.5)
        ...         return outputs - 0.1 * uniform.sign() * torch.log1p(-2 * uniform.abs())
        >>> Laplace().mean(torch.zeros(1, 2, 1)).shape
        torch.Size([1, 2, 1])
    """

    support: ClassVar[Support] = "real"

    @abstractmethod
    def log_prob(self, outputs: Tensor, y: Tensor) -> Float[Tensor, "S B"]:
        """Return log p(y | f) of each row, for outputs (S, B, ...) and targets (B, ...)."""

    @abstractmethod
    def sample(self, outputs: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw y ~ p(y | f) for each output, (S, B, ...)."""

    def check_targets(self, y: object, output_shape: tuple[int, ...]) -> Tensor:
        """Return the targets as a tensor. Raise an error if they are not valid for the outputs of the network."""
        y = check_tensor("y", y)
        check_finite("y", y)
        example = torch.zeros(1, 1, *output_shape, device=y.device)
        shape = tuple(self.sample(example, seeded(0, "shape of targets")).shape[2:])
        if tuple(y.shape[1:]) != shape or y.ndim == 0:
            raise ValueError(
                f"y must have shape {('B', *shape)} as the samples of the likelihood, got {tuple(y.shape)}"
            )
        if self.support == "integers" and is_known(y) and (y < 0).any():
            raise ValueError(
                f'support "integers" is for 0, 1, 2, ..., but y has {y.min().item():g}. Use support "real"'
            )
        return y

    def for_draws(self, chosen: Int[Tensor, " T"]) -> Likelihood:
        """Return the likelihood of some draws of the outputs, given their positions. Most are the same for all draws."""
        return self

    def expected_log_prob(self, mean: Tensor, variance: Tensor, y: Tensor) -> Float[Tensor, "S B"] | None:
        """Return E[log p(y | f)] of each row for independent outputs f ~ N(mean, variance), or None without a formula.

        If it is None, outputs are sampled. The mean has the shape (S, B, ...) of the outputs. The variance may broadcast.
        """
        return None

    def conditional_gain(
        self, mean: Tensor, variance: Tensor, conditional_variance: Float[Tensor, "#S B 1"]
    ) -> Float[Tensor, "S B"]:
        """Return how much the tight conditional of a last Gaussian process raises E[log p(y | f)] - KL of each row.

        Arguments:
            mean: Mean of the outputs.
            variance: Variance of the outputs under the prior conditional.
            conditional_variance: The part of this variance that remains if the values at the inducing inputs are known.
        """
        raise TypeError(
            f'conditional="tight" needs Gaussian noise: for {type(self).__name__} the optimal variances of q(f | u) have no '
            'closed form. Use conditional="prior", or inducing.Gaussian()'
        )

    def joint_log_prob(
        self, mean: Float[Tensor, "S N O"], covariance: Float[Tensor, "#S N N"], y: Tensor
    ) -> Float[Tensor, " S"] | None:
        """Return log p(y) of all rows together, if the outputs are jointly normal, or None without a formula.

        Arguments:
            mean: Mean of the outputs at N rows.
            covariance: Covariance of the rows, the same for all outputs. Outputs are independent.
            y: Targets.
        """
        return None

    def mean(self, outputs: Tensor) -> Tensor:
        """Return E[y | f], or the probabilities of classes."""
        if self.support == "classes":
            raise NotImplementedError(
                f"{type(self).__name__} needs a method mean(outputs) that returns the probabilities of classes"
            )
        return self._average(outputs, lambda draw: draw)

    def variance(self, outputs: Tensor) -> Tensor:
        """Return V[y | f]."""
        mean = self.mean(outputs)
        if self.support == "classes":
            return mean * (1 - mean)
        return self._average(outputs, lambda draw: (draw - mean).square())

    def log_cdf(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return log P(Y <= y | f) of each output."""
        return _log_frequency(self._average(outputs, lambda draw: (draw <= y).to(outputs.dtype)))

    def log_survival(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return log P(Y > y | f) of each output."""
        return _log_frequency(self._average(outputs, lambda draw: (draw > y).to(outputs.dtype)))

    def icdf(self, outputs: Tensor, probability: float) -> Tensor:
        """Return the quantile of each output: the smallest y with P(Y <= y | f) of at least this probability."""
        draws = torch.stack(list(self._draws(outputs)))
        return draws.kthvalue(math.ceil(probability * NUM_DRAWS), 0).values.to(outputs.dtype)

    def quantile_of_draws(self, outputs: Tensor, probability: float) -> Tensor:
        """Return the quantile of the mixture over all S outputs, from the samples of all of them together."""
        # a few rows at a time, to bound the memory
        chunks = outputs.split(max(1, MAX_NUMBERS // (NUM_DRAWS * outputs[:, :1].numel())), 1)
        found = []
        for rows in chunks:
            draws = torch.cat(list(self._draws(rows)))
            found.append(draws.kthvalue(math.ceil(probability * len(draws)), 0).values.to(outputs.dtype))
        return torch.cat(found)

    def _draws(self, outputs: Tensor) -> Iterator[Tensor]:
        """Iterate over samples of the targets, the same at each call."""
        if self.support == "classes":
            raise TypeError("classes have no order and so no distribution function or quantiles. Use the mean")
        generator = seeded(0, "defaults of likelihoods")
        for _ in range(NUM_DRAWS):
            yield self.sample(outputs, generator)

    def _average(self, outputs: Tensor, statistic: Callable[[Tensor], Tensor]) -> Tensor:
        first, *others = (statistic(draw) / NUM_DRAWS for draw in self._draws(outputs))
        return sum(others, start=first)


def _log_frequency(share: Tensor) -> Tensor:
    # half a draw is added, so that no probability is 0 or 1
    return ((share * NUM_DRAWS + 0.5) / (NUM_DRAWS + 1)).log()
