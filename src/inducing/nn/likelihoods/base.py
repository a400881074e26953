"""What every likelihood offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Generator, Tensor, nn

Support = Literal["real", "integers", "classes"]


class Likelihood(nn.Module, ABC):
    """p(y | f), with whatever parameters it has.

    Its ``support`` says what targets are: "real" numbers, whose location and scale may be changed; "integers", whose
    distribution function is made of steps; or "classes", which have no order.
    """

    support: ClassVar[Support]

    @abstractmethod
    def check_targets(self, y: object, output_shape: tuple[int, ...]) -> Tensor:
        """Refuse targets that do not fit the outputs of the network, with the reason."""

    @abstractmethod
    def log_prob(self, outputs: Tensor, y: Tensor) -> Float[Tensor, "S B"]:
        """log p(y | f) of each row."""

    @abstractmethod
    def expected_log_prob(self, mean: Tensor, variance: Tensor, y: Tensor) -> Float[Tensor, "S B"] | None:
        """E[log p(y | f)] of each row for independent outputs f ~ N(mean, variance); None where no closed form is known.

        The mean is shaped as the outputs are, (S, B, ...); the variance may broadcast to it.
        """

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
        """The smallest value of each output that is not exceeded with at least this probability."""
