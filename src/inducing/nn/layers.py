"""Bayesian layers. A layer is a specification until a `Network` builds it; drawing it returns a function.

F_l = phi(F_{l-1}) W_l,    W_l ~ Q(W_l | what the inducing points look like below)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from inducing.linalg.noise import standard_normal
from inducing.nn.draw import Draw, Function
from inducing.nn.fans import Fan, Prior, PriorModule
from inducing.nn.posteriors import Factorised, Posterior, as_posterior
from inducing.nn.priors import as_prior
from inducing.nn.pseudo import PosteriorModule
from inducing.nn.sites import Site
from inducing.nn.weights import FactorisedWeights, Weights

Shape = tuple[int, ...]


class Place(NamedTuple):
    """Where in a network a layer is built.

    Arguments:
        input_shape: Shape of one input row.
        num_inducing: M, or None where nothing is said about inducing points.
        targets: First values of the pseudo-outputs, given for the last layer of a network.
        is_last: Whether this is the last layer.
        rows: Where the inducing points are when they reach this layer, if each layer below is its mean function; None if
            that is not known, as above layers of weights.
        generator: Source of initial values; None is torch's global one.
    """

    input_shape: Shape
    num_inducing: int | None
    targets: Float[Tensor, "M O"] | None
    is_last: bool
    rows: Float[Tensor, "M *in"] | None
    generator: Generator | None = None


class Layer(nn.Module, ABC):
    """Anything with a prior and a posterior.

    A layer has no parameters until `build` makes them all; it cannot be built twice, so it belongs to one network.
    """

    posterior_spec: Posterior
    posterior: PosteriorModule
    out_features: int
    is_built: bool

    @property
    @abstractmethod
    def input_shape(self) -> Shape | None:
        """The shape of one input row, if the layer takes only one."""

    @property
    def needs_inducing(self) -> bool:
        """Whether the layer depends on the inducing points that come from below."""
        return self.posterior_spec.needs_inducing

    @property
    def starts_from_rows(self) -> bool:
        """Whether the layer takes first values for inducing inputs of its own from the network's inducing points."""
        return False

    @abstractmethod
    def build(self, place: Place) -> Shape:
        """Make the parameters and return the shape of the outputs."""

    def mean_rows(self, rows: Tensor | None) -> Tensor | None:
        """Where rows of inputs end up at first, by the layer's mean function; None if that tells nothing."""
        return None

    @abstractmethod
    def draw(
        self,
        inducing: Float[Tensor, "#S M *in"] | None,
        num_samples: int,
        generator: Generator | None = None,
        consistent: bool = False,
    ) -> Draw:
        """Sample the layer given its input at the inducing points.

        Arguments:
            inducing: Output of the layer below at the inducing points; a leading 1 is the same in every sample.
            num_samples: S.
            generator: Source of the noise.
            consistent: Ask for a function that gives the same answer each time, which marginal draws do not.
        """

    @property
    def resamples(self) -> bool:
        """Whether drawn functions may resample for every row, so that no layer with inducing points can follow."""
        return False

    def _check_place(self, place: Place) -> None:
        if self.is_built:
            raise RuntimeError("it is part of a network already; make a new layer for each place")
        if place.input_shape != self.input_shape:
            flatten = ", e.g. torch.nn.Flatten() before it" if len(place.input_shape) > 1 else ""
            wanted = " x ".join(map(str, self.input_shape or ()))
            raise ValueError(f"it takes rows of {wanted} features, but what reaches it is {place.input_shape}{flatten}")

    def _check_built(self) -> None:
        if not self.is_built:
            raise RuntimeError(f"{self} has no parameters yet; put it in a Network, which builds them")

    def __repr__(self) -> str:
        # one line: the specification says what the parameters are
        return f"{type(self).__name__}({self.extra_repr()})"


@dataclass(frozen=True, eq=False)
class Affine(Function):
    """x -> (x, 1) W, or x W without a bias."""

    weights: Float[Tensor, "S F O"]
    bias: bool

    def __call__(self, x: Float[Tensor, "#S B in"]) -> Float[Tensor, "S B O"]:
        return torch.matmul(with_ones(x) if self.bias else x, self.weights)


@dataclass(frozen=True, eq=False)
class ReparameterisedAffine(Function):
    """x -> (x, 1) W with W drawn afresh for every row: local reparameterisation (Kingma et al., 2015).

    Given a row x, its outputs are independent normals with mean x'M and variance (x^2)'V.
    """

    mean: Affine
    variance: Affine
    num_samples: int
    generator: Generator | None

    @property
    def consistent(self) -> bool:
        return False

    def __call__(self, x: Float[Tensor, "#S B in"]) -> Float[Tensor, "S B O"]:
        mean = self.mean(x)
        noise = standard_normal((self.num_samples, *mean.shape[1:]), mean, self.generator)
        # where all inputs are zero so is the variance, and the gradient of its root would be infinite
        variance = self.variance(x.square()).clamp_min(torch.finfo(mean.dtype).tiny)
        return mean + variance.sqrt() * noise


class Linear(Layer):
    """A fully connected Bayesian layer.

    Arguments:
        in_features: Number of inputs.
        out_features: Number of outputs.
        bias: Whether a column of ones is added to the inputs; the bias is then one more weight, with the same prior.
        prior: A prior or its name: "neal", "standard", "scale", "spatial-iw", "channel-iw", "kronecker-iw".
        posterior: A posterior or its name: "factorised", "local", "global", "optimal", "prior".

    Example:
        >>> import inducing, torch
        >>> layer = inducing.Linear(3, 1, posterior="factorised")
        >>> network = inducing.Network([layer])
        >>> network(torch.zeros(5, 3), num_samples=2).shape
        torch.Size([2, 5, 1])
    """

    prior: PriorModule
    posterior: Weights

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        prior: Prior | str = "neal",
        posterior: Posterior | str = "global",
    ) -> None:
        super().__init__()
        if in_features < 1 or out_features < 1:
            raise ValueError(f"in_features and out_features must be at least 1, got {in_features} and {out_features}")
        self.in_features, self.out_features, self.bias = in_features, out_features, bias
        self.prior_spec, self.posterior_spec = as_prior(prior), as_posterior(posterior)
        self.is_built = False

    @property
    def input_shape(self) -> Shape:
        return (self.in_features,)

    def build(self, place: Place) -> Shape:
        self._check_place(place)
        fan = Fan(self.in_features, bias=self.bias)
        site = Site(fan.fan_in, self.out_features, place.num_inducing, place.targets, place.is_last, place.generator)
        self.posterior = self.posterior_spec.build(site)
        self.prior = self.prior_spec.build(fan)
        self.is_built = True
        return (self.out_features,)

    def draw(
        self,
        inducing: Float[Tensor, "#S M in"] | None,
        num_samples: int,
        generator: Generator | None = None,
        consistent: bool = False,
    ) -> Draw:
        self._check_built()
        precision, prior_kl = self.prior(num_samples, generator)
        function: Function
        if self.resamples and not consistent:
            assert isinstance(self.posterior, FactorisedWeights)
            mean, variance = (Affine(moment[None], self.bias) for moment in self.posterior.moments())
            function = ReparameterisedAffine(mean, variance, num_samples, generator)
            kl = self.posterior.closed_form_kl(precision).expand(num_samples)
        else:
            rows = with_ones(inducing) if self.bias and inducing is not None else inducing
            weights, kl = self.posterior(rows, precision, num_samples, generator)
            function = Affine(weights, self.bias)
            above = None if rows is None else torch.matmul(rows, weights)
            return Draw(function, above, kl, prior_kl.expand(num_samples))
        return Draw(function, None if inducing is None else function(inducing), kl, prior_kl.expand(num_samples))

    @property
    def resamples(self) -> bool:
        return isinstance(self.posterior_spec, Factorised) and self.posterior_spec.local_reparameterisation

    def extra_repr(self) -> str:
        bias = "" if self.bias else "bias=False, "
        return f"{self.in_features}, {self.out_features}, {bias}{self.prior_spec}, {self.posterior_spec}"


def with_ones(x: Float[Tensor, "... F"]) -> Float[Tensor, "... F+1"]:
    """(x, 1), with the column of ones that the bias multiplies."""
    return torch.nn.functional.pad(x, (0, 1), value=1.0)
