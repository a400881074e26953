"""Where a posterior is built, and with which first values."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Generator, Tensor

from inducing.linalg.noise import initial_normal

# inducing points of an estimator, or of a Gaussian process layer's own, where nobody says how many
DEFAULT_NUM_INDUCING = 100


class Site(NamedTuple):
    """Where a posterior over weights is built.

    Arguments:
        fan_in: F, weights into each output, the bias among them.
        out_features: Number of outputs.
        num_inducing: M, rows of the global inducing points; None where there are none.
        targets: First values of the pseudo-outputs, given for the last layer of a network.
        is_last: Whether this is the last layer.
        generator: Source of initial values; None is torch's global one.
    """

    fan_in: int
    out_features: int
    num_inducing: int | None
    targets: Float[Tensor, "M O"] | None
    is_last: bool
    generator: Generator | None = None

    def first_log_precision(self, given: float | None) -> float:
        """What the user asked for, or the paper's: 0 in the last layer and -4 elsewhere."""
        return paper_log_precision(self.is_last) if given is None else given


class ValueSite(NamedTuple):
    """Where a posterior over the values of a Gaussian process is built.

    Arguments:
        in_features: Number of inputs.
        out_features: Number of outputs.
        num_inducing: M, rows of the global inducing points, or as many as a layer should have of its own; None if
            nothing was said.
        targets: First values of the pseudo-outputs, given for the last layer of a network.
        is_last: Whether this is the last layer.
        rows: First places of the inducing inputs, where the data tell them.
        mean: The mean function there, unless it is zero.
        root: The root of the covariance there.
        generator: Source of initial values; None is torch's global one.
    """

    in_features: int
    out_features: int
    num_inducing: int | None
    targets: Float[Tensor, "M O"] | None
    is_last: bool
    rows: Float[Tensor, "M D"] | None
    mean: Float[Tensor, "M O"] | None
    root: Float[Tensor, "M M"] | None
    generator: Generator | None = None

    def first_inputs(self, number: int | None) -> Float[Tensor, "M D"]:
        """First values for inducing inputs of a layer's own: where the data are, or else from N(0, 1)."""
        number = number or self.num_inducing or DEFAULT_NUM_INDUCING
        if self.rows is not None and number <= len(self.rows):
            return self.rows[:number].clone()
        return initial_normal(number, self.in_features, generator=self.generator)

    def first_pseudo_outputs(self, number: int) -> Float[Tensor, "M O"]:
        """First values for V: the targets, or where the mean function leads, or else from N(0, 1)."""
        for values in (self.targets, self.mean):
            if values is not None and number <= len(values):
                return values[:number].clone()
        return initial_normal(number, self.out_features, generator=self.generator)

    def first_log_precision(self, given: float | None) -> float:
        """What the user asked for, or the paper's, except in hidden layers whose V begins at the mean function.

        Those begin there too with 2, and not near the prior as with -4.
        """
        if given is not None:
            return given
        return 2.0 if self.mean is not None and not self.is_last else paper_log_precision(self.is_last)

    def first_scale(self, given: float | None) -> float:
        """What the user asked for, or 1 in the last layer and elsewhere next to nothing."""
        if given is not None:
            return given
        return 1.0 if self.is_last else 1e-5


def paper_log_precision(is_last: bool) -> float:
    """The paper's first log-precision: 0 in the last layer and -4 elsewhere."""
    return 0.0 if is_last else -4.0
