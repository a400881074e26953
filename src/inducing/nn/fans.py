"""The weights into one output, and what a prior says about them: the precision P of w ~ N(0, P^-1).

Here is what a prior is; those that there are stand in `inducing.nn.priors`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Float
from torch import Generator, Tensor, nn

from inducing.linalg.precision import Precision


class Fan(NamedTuple):
    """The weights into one output, in the order of torch's patches: index ``channel * pixels + pixel``, the bias last.

    Arguments:
        channels: Channels of the input; all features of a linear layer.
        pixels: d, pixels of the kernel; 1 in a linear layer.
        bias: Whether there is a bias, one more weight.
    """

    channels: int
    pixels: int = 1
    bias: bool = False

    @property
    def fan_in(self) -> int:
        """F, the number of weights into one output."""
        return self.channels * self.pixels + self.bias


class PriorSample(NamedTuple):
    """The precision P of the weights into one output, and the KL of the prior's own variables."""

    precision: Precision
    kl: Float[Tensor, "#S"]


class PriorModule(nn.Module, ABC):
    """A prior with its parameters."""

    @abstractmethod
    def forward(self, num_samples: int, generator: Generator | None = None) -> PriorSample:
        """Sample the precision of the weights."""


@dataclass(frozen=True)
class Prior(ABC):
    """A specification of a prior: without tensors, immutable, shared between layers as one likes."""

    @abstractmethod
    def build(self, fan: Fan) -> PriorModule:
        """Make the parameters for a layer with these weights into each output."""
