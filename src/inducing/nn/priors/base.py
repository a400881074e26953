"""Base classes of priors: the weights into one output are w ~ N(0, P^-1), independently for each output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Float
from torch import Generator, Tensor, nn

from inducing.linalg.precision import Precision


class WeightLayout(NamedTuple):
    """Layout of the weights into one output: index ``channel * pixels + pixel`` as in torch's patches, the bias last.

    Arguments:
        channels: Number of input channels, or of input features in a linear layer.
        pixels: Number of pixels of the kernel, 1 in a linear layer.
        bias: Whether the last weight is a bias.
    """

    channels: int
    pixels: int = 1
    bias: bool = False

    @property
    def fan_in(self) -> int:
        """Number F of weights into one output."""
        return self.channels * self.pixels + self.bias


class PriorSample(NamedTuple):
    """A sample of a prior's own variables.

    Arguments:
        precision: P, the precision of the weights into one output.
        kl: KL of the prior's own variables, such as its scale. Zero if it has none.
    """

    precision: Precision
    kl: Float[Tensor, "#S"]


class PriorDensity(NamedTuple):
    """Log-densities of a prior's own variables. Both are zero if it has none.

    Arguments:
        precision: P, the precision of the weights into one output for these variables.
        posterior: log Q of the variables.
        prior: log P of the variables.
    """

    precision: Precision
    posterior: Float[Tensor, "#S"]
    prior: Float[Tensor, "#S"]


class PriorModule(nn.Module, ABC):
    """A prior with its parameters."""

    @abstractmethod
    def forward(self, num_samples: int, generator: Generator | None = None) -> PriorSample:
        """Sample the precision of the weights."""

    def log_density(self, precision: Precision | None) -> PriorDensity:
        """Return the log-densities of the variables behind a sampled precision, in float64."""
        raise NotImplementedError(
            f"{type(self).__name__} has no method log_density(precision), which the density of given weights needs. It must "
            "return an inducing.nn.PriorDensity"
        )


def missing_variables(name: str) -> ValueError:
    """Return an error about given weights without the variables of their prior."""
    return ValueError(
        f"the density of weights needs also {name}, a variable of their prior. Pass a draw, or "
        "inducing.nn.Variables(weights, precision) with the precision of a draw"
    )


@dataclass(frozen=True)
class Prior(ABC):
    """Specification of a prior. It is immutable, has no tensors and may be shared between layers."""

    @abstractmethod
    def build(self, layout: WeightLayout) -> PriorModule:
        """Create the parameters for a layer with this layout of weights."""
