"""Likelihoods p(y | f) of the targets given the outputs of a network.

All of them define the same methods in the same order. Outputs f are (S, B, ...) and targets (B, ...); what is summed
over are the outputs of one row, so `log_prob` is (S, B).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch.nn import functional

from inducing.checks import check_finite, check_tensor
from inducing.linalg.noise import standard_normal

# the paper's first noise variance
FIRST_VARIANCE = math.exp(-3)
# stored divided by 10, so that Adam moves it faster (the paper's appendix on UCI experiments)
LOG_VARIANCE_SCALE = 10.0


class Likelihood(nn.Module, ABC):
    """p(y | f), with whatever parameters it has."""

    @abstractmethod
    def check_targets(self, y: object, output_shape: tuple[int, ...]) -> Tensor:
        """Refuse targets that do not fit the outputs of the network, with the reason."""

    @abstractmethod
    def log_prob(self, outputs: Tensor, y: Tensor) -> Float[Tensor, "S B"]:
        """log p(y | f) of each row."""

    def expected_log_prob(self, mean: Tensor, variance: Tensor, y: Tensor) -> Float[Tensor, "S B"] | None:
        """E[log p(y | f)]."""
        return None

    @abstractmethod
    def mean(self, outputs: Tensor) -> Tensor:
        """E[y | f]; for classes, their probabilities."""

    @abstractmethod
    def variance(self, outputs: Tensor) -> Tensor:
        """V[y | f]."""

    @abstractmethod
    def sample(self, outputs: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw y ~ p(y | f)."""

    @abstractmethod
    def log_cdf(self, outputs: Tensor, y: Tensor) -> Tensor:
        """log P(Y <= y | f) of each output."""

    @abstractmethod
    def log_survival(self, outputs: Tensor, y: Tensor) -> Tensor:
        """log P(Y > y | f) of each output."""

    @abstractmethod
    def icdf(self, outputs: Tensor, probability: float) -> Tensor:
        """The value of each output that is not exceeded with this probability."""


class Gaussian(Likelihood):
    """y = f + noise, noise ~ N(0, variance).

    Arguments:
        variance: First value of the noise variance; one number for all outputs, or one for each.
        learn_variance: Whether it is learned.

    Example:
        >>> import inducing
        >>> likelihood = inducing.Gaussian(variance=0.1, learn_variance=False)
    """

    scaled_log_variance: Tensor

    def __init__(
        self, variance: float | Sequence[float] | Float[Tensor, " O"] = FIRST_VARIANCE, learn_variance: bool = True
    ) -> None:
        super().__init__()
        value = torch.as_tensor(variance, dtype=torch.get_default_dtype()).detach().clone()
        if value.ndim > 1 or not (torch.isfinite(value) & (value > 0)).all():
            raise ValueError(f"variance must be a positive number, or one for each output, got {variance}")
        stored = value.log() / LOG_VARIANCE_SCALE
        if learn_variance:
            self.scaled_log_variance = nn.Parameter(stored)
        else:
            self.register_buffer("scaled_log_variance", stored)

    @property
    def noise_variance(self) -> Float[Tensor, ""] | Float[Tensor, " O"]:
        """The noise variance, a scalar or one for each output."""
        return self._log_variance().exp()

    def check_targets(self, y: object, output_shape: tuple[int, ...]) -> Tensor:
        y = check_tensor("y", y)
        if tuple(y.shape[1:]) != output_shape:
            expected = ", ".join(["B", *map(str, output_shape)])
            hint = "; use y[:, None]" if y.ndim == 1 and output_shape == (1,) else ""
            raise ValueError(f"y must have shape ({expected}), got {tuple(y.shape)}{hint}")
        if self.scaled_log_variance.ndim == 1 and self.scaled_log_variance.shape[-1:] != y.shape[-1:]:
            count = len(self.scaled_log_variance)
            raise ValueError(f"the likelihood has {count} noise variances but y has {y.shape[-1]} outputs")
        if not y.is_floating_point():
            raise TypeError(f"y must be floating point, got {y.dtype}; use y.float(), or Categorical() for labels")
        check_finite("y", y)
        return y

    def log_prob(self, outputs: Float[Tensor, "S B *O"], y: Float[Tensor, "B *O"]) -> Float[Tensor, "S B"]:
        if y.shape != outputs.shape[1:]:
            raise ValueError(f"y must have shape {tuple(outputs.shape[1:])} like the outputs, got {tuple(y.shape)}")
        # log N(y; f, v) = -(y - f)^2 / 2v - log(2 pi v) / 2
        log_variance = self._log_variance()
        density = (y - outputs).square() * (-log_variance).exp() + log_variance + math.log(2 * math.pi)
        return -0.5 * density.flatten(2).sum(-1)

    def expected_log_prob(self, mean: Tensor, variance: Tensor, y: Tensor) -> Float[Tensor, "S B"] | None:
        spread = (variance / self.noise_variance).expand(mean.shape)
        return self.log_prob(mean, y) - 0.5 * spread.flatten(2).sum(-1)

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


class Categorical(Likelihood):
    """y is one of C classes, with probabilities softmax(f). Targets are labels 0 .. C-1."""

    def check_targets(self, y: object, output_shape: tuple[int, ...]) -> Tensor:
        y = check_tensor("y", y)
        if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
            raise TypeError(
                f"y must hold integer class labels, got {y.dtype}; use y.long(), or Gaussian() for regression"
            )
        if y.ndim != 1:
            hint = "; use y[:, 0]" if y.ndim == 2 and y.shape[1] == 1 else "; use y.argmax(-1) if it is one-hot"
            raise ValueError(f"y must have shape (B,), one label a row, got {tuple(y.shape)}{hint}")
        classes = output_shape[-1]
        if not torch.compiler.is_compiling() and len(y) and not (int(y.min()) >= 0 and int(y.max()) < classes):
            raise ValueError(
                f"y holds labels from {int(y.min())} to {int(y.max())}, but the network has {classes} outputs: "
                f"labels must be 0..{classes - 1}"
            )
        return y.long()

    def log_prob(self, outputs: Float[Tensor, "S B C"], y: Int[Tensor, " B"]) -> Float[Tensor, "S B"]:
        labels = y[None, :, None].expand(len(outputs), -1, -1)
        return functional.log_softmax(outputs, -1).gather(-1, labels)[..., 0]

    def mean(self, outputs: Float[Tensor, "S B C"]) -> Float[Tensor, "S B C"]:
        return functional.softmax(outputs, -1)

    def variance(self, outputs: Float[Tensor, "S B C"]) -> Float[Tensor, "S B C"]:
        # of the one-hot vector: p (1 - p)
        probabilities = self.mean(outputs)
        return probabilities * (1 - probabilities)

    def sample(self, outputs: Float[Tensor, "S B C"], generator: Generator | None = None) -> Int[Tensor, "S B"]:
        device = outputs.device if generator is None else generator.device
        probabilities = self.mean(outputs).flatten(0, 1).to(device)
        return torch.multinomial(probabilities, 1, generator=generator).view(outputs.shape[:2]).to(outputs.device)

    def log_cdf(self, outputs: Tensor, y: Tensor) -> Tensor:
        raise TypeError("classes have no order, so they have no distribution function and no quantiles; use the mean")

    def log_survival(self, outputs: Tensor, y: Tensor) -> Tensor:
        raise TypeError("classes have no order, so they have no distribution function and no quantiles; use the mean")

    def icdf(self, outputs: Tensor, probability: float) -> Tensor:
        raise TypeError("classes have no order, so they have no distribution function and no quantiles; use the mean")
