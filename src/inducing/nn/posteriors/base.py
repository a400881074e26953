"""Base classes of approximate posteriors.

A posterior is specified by an immutable object without tensors. A layer builds a module from it, which holds the parameters.
Given the layer's inputs at the inducing points and its prior, the module returns a sample and its KL. There are two kinds of
specifications, and a class may be both:

- `WeightPosterior`: over the weights of a linear layer or convolution.
- `ValuePosterior`: over the values of a Gaussian process at its inducing inputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from inducing.linalg.convolution.geometry import Geometry
from inducing.linalg.noise import initial_normal
from inducing.linalg.precision import Precision
from inducing.linalg.regression import WeightSample
from inducing.nn.context import BuildContext, DrawContext
from inducing.nn.priors.base import WeightLayout

# default number of inducing points of an estimator or of a Gaussian process layer
DEFAULT_NUM_INDUCING = 100


@dataclass(frozen=True)
class Posterior(ABC):  # noqa: B024
    """Specification of a posterior. It is immutable, has no tensors and may be shared between layers."""

    # whether it depends on the global inducing points
    needs_inducing: ClassVar[bool] = False
    # description of its random variables, for error messages
    over: ClassVar[str] = "the parameters of a layer"


class PosteriorModule(nn.Module, ABC):
    """A posterior with its parameters."""

    # whether training with sampled KLs is about as good as with the closed form; sampling costs less
    sampled_kl_has_low_variance: ClassVar[bool] = False


class WeightContext(NamedTuple):
    """The weights that a posterior is built for.

    Arguments:
        layout: The weights into one output.
        out_features: Number of outputs.
        is_last: Whether the layer is the last of the network.
        network: The position in the network.
        geometry: The patches of a convolution, or None in a linear layer.
    """

    layout: WeightLayout
    out_features: int
    is_last: bool
    network: BuildContext
    geometry: Geometry | None = None

    @property
    def targets(self) -> Float[Tensor, "M O"] | None:
        """Initial pseudo-outputs, if this is the last layer and the user gave any."""
        return self.network.targets if self.is_last else None

    def initial_log_precision(self, given: float | None) -> float:
        """Return the user's value. Default: the paper's, 0 in the last layer and -4 elsewhere."""
        return paper_log_precision(self.is_last) if given is None else given


class WeightModule(PosteriorModule, ABC):
    """A posterior over the weights of a layer."""

    @abstractmethod
    def forward(self, inputs: Float[Tensor, "#S M *F"] | None, prior: Precision, context: DrawContext) -> WeightSample:
        """Sample weights, with their KL.

        Arguments:
            inputs: The layer's inputs at the inducing points, with a column of ones for the bias; maps in a convolution.
            prior: Prior precision of the weights into one output.
            context: Number of samples, source of noise, kind of KL.
        """

    def log_density(
        self,
        weights: Float[Tensor, "S F O"],
        inputs: Float[Tensor, "#S M *F"] | None,
        prior: Precision,
        context: DrawContext,
    ) -> Float[Tensor, " S"]:
        """Return log Q of given weights, in float64. The other arguments are those of `forward`."""
        raise _without_density(self, "log_density(weights, inputs, prior, context)")


class WeightPosterior(Posterior, ABC):
    """Specification of a posterior over weights."""

    over: ClassVar[str] = "weights"

    @abstractmethod
    def build_weights(self, context: WeightContext) -> WeightModule:
        """Create the parameters for the weights of a layer."""


class ValueContext(NamedTuple):
    """The values of a Gaussian process that a posterior is built for.

    Arguments:
        in_features: Number of inputs.
        out_features: Number of outputs.
        is_last: Whether the layer is the last of the network.
        network: The position in the network. Its example rows are candidates for inducing inputs.
        mean: The mean function at the example rows, or None if it is zero or the rows are unknown.
        root: Cholesky factor of the kernel matrix of the example rows, or None if they are unknown.
    """

    in_features: int
    out_features: int
    is_last: bool
    network: BuildContext
    mean: Float[Tensor, "M O"] | None
    root: Float[Tensor, "M M"] | None

    @property
    def targets(self) -> Float[Tensor, "M O"] | None:
        """Initial pseudo-outputs, if this is the last layer and the user gave any."""
        return self.network.targets if self.is_last else None

    def initial_inputs(self, number: int | None) -> Float[Tensor, "M D"]:
        """Return initial inducing inputs of the layer: example rows, or draws from N(0, 1)."""
        rows = self.network.example_rows
        number = number or self.network.num_inducing or DEFAULT_NUM_INDUCING
        if rows is not None and number <= len(rows):
            return rows[:number].clone()
        return initial_normal(number, self.in_features, generator=self.network.generator)

    def initial_pseudo_outputs(self, number: int) -> Float[Tensor, "M O"]:
        """Return initial pseudo-outputs: the targets, else the mean function, else draws from N(0, 1)."""
        for values in (self.targets, self.mean):
            if values is not None and number <= len(values):
                return values[:number].clone()
        return initial_normal(number, self.out_features, generator=self.network.generator)

    def initial_log_precision(self, given: float | None) -> float:
        """Return the user's value. Default: 2 in hidden layers with a nonzero mean function, else the paper's.

        The initial pseudo-outputs of these hidden layers are the mean function. With 2 the layers start close to it; with
        the paper's -4 they would start close to the prior.
        """
        if given is not None:
            return given
        return 2.0 if self.mean is not None and not self.is_last else paper_log_precision(self.is_last)

    def initial_scale(self, given: float | None) -> float:
        """Return the user's value. Default: 1 in the last layer and 1e-5 elsewhere."""
        if given is not None:
            return given
        return 1.0 if self.is_last else 1e-5


class ValuePrior(NamedTuple):
    """The prior N(m, RR') of the values of a Gaussian process at its inducing inputs.

    Arguments:
        root: R, the lower Cholesky factor of the covariance.
        mean: The mean m.
    """

    root: Float[Tensor, "#S M M"]
    mean: Float[Tensor, "#S M O"]


class ValueSample(NamedTuple):
    """A sample of the whitened values a of a Gaussian process, u = m + R a.

    Arguments:
        whitened: The whitened values a.
        kl: log Q - log P of each sample, or its expectation.
        mean: E[a], if a is integrated out.
        spread: Root of V[a], for each output or one for all, if a is integrated out.
    """

    whitened: Float[Tensor, "S M O"]
    kl: Float[Tensor, " S"]
    mean: Float[Tensor, "#S M O"] | None = None
    spread: Float[Tensor, "#S #O M M"] | None = None


class ValueModule(PosteriorModule, ABC):
    """A posterior over the values of a Gaussian process at its inducing inputs.

    The values are u = m + R a, with a ~ N(0, I) under the prior. So this is a regression with inputs R, weights a and prior
    precision I, and K^-1 is never formed.
    """

    # the layer's own inducing inputs, or None if it uses the global inducing points
    inducing_inputs: nn.Parameter | None

    @abstractmethod
    def forward(self, prior: ValuePrior, context: DrawContext, integrate: bool = False) -> ValueSample:
        """Sample the whitened values, with their KL.

        Arguments:
            prior: The Gaussian process at the inducing inputs.
            context: Number of samples, source of noise, kind of KL.
            integrate: Whether to return also the moments of a.
        """

    def log_density(
        self, whitened: Float[Tensor, "S M O"], prior: ValuePrior, context: DrawContext
    ) -> Float[Tensor, " S"]:
        """Return log Q of given whitened values, in float64. The other arguments are those of `forward`."""
        raise _without_density(self, "log_density(whitened, prior, context)")


class ValuePosterior(Posterior, ABC):
    """Specification of a posterior over the values of a Gaussian process."""

    over: ClassVar[str] = "the values of a Gaussian process (GPLayer)"

    @abstractmethod
    def build_values(self, context: ValueContext) -> ValueModule:
        """Create the parameters for the values of a Gaussian process."""


def paper_log_precision(is_last: bool) -> float:
    """Return the paper's initial log-precision: 0 in the last layer and -4 elsewhere."""
    return 0.0 if is_last else -4.0


def _without_density(module: PosteriorModule, method: str) -> NotImplementedError:
    return NotImplementedError(
        f"{type(module).__name__} has no method {method}, which the density of given weights or values needs"
    )


def check_number(num_inducing: int | None) -> None:
    """Raise an error if the number of inducing inputs is below 1."""
    if num_inducing is not None and num_inducing < 1:
        raise ValueError(f"num_inducing must be at least 1, got {num_inducing}")


def check_scale(scale: float | None) -> None:
    """Raise an error if the initial scale is not positive."""
    if scale is not None and not scale > 0:
        raise ValueError(f"initial_scale must be positive, got {scale}")
