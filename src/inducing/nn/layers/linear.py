"""Fully connected Bayesian layers.

F_l = phi(F_{l-1}) W_l,    W_l ~ Q(W_l | inducing points at the layer's input)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from inducing.checks import check_sizes
from inducing.linalg.noise import standard_normal
from inducing.nn.context import BuildContext, DrawContext, Shape
from inducing.nn.density import LayerDensity, weight_density
from inducing.nn.draw import Draw, Function, Variables
from inducing.nn.layers.base import Layer
from inducing.nn.posteriors.base import Posterior, WeightContext, WeightModule, WeightPosterior
from inducing.nn.posteriors.by_name import as_posterior
from inducing.nn.posteriors.factorised import Factorised, FactorisedWeights
from inducing.nn.priors import Prior, PriorModule, WeightLayout, as_prior


@dataclass(frozen=True, eq=False)
class Affine(Function):
    """x -> (x, 1) W, or x W without a bias."""

    weights: Float[Tensor, "S F O"]
    bias: bool

    def __call__(self, x: Float[Tensor, "#S B in"]) -> Float[Tensor, "S B O"]:
        if not self.bias:
            return _multiply(x, self.weights)
        weights, bias = self.weights.split([self.weights.shape[1] - 1, 1], 1)
        return _multiply(x, weights).add_(bias)


@dataclass(frozen=True, eq=False)
class ReparameterisedAffine(Function):
    """x -> (x, 1) W with new W for every row: local reparameterisation (Kingma et al., 2015).

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
        # if all inputs are zero, the variance is zero, and the gradient of its root would be infinite
        variance = self.variance(x.square()).clamp_min(torch.finfo(mean.dtype).tiny)
        return mean + variance.sqrt() * noise


class Linear(Layer):
    """A fully connected Bayesian layer.

    Arguments:
        in_features: Number of inputs.
        out_features: Number of outputs.
        bias: Whether a column of ones is added to the inputs. The bias is the weight of this column and has the same prior.
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
    posterior_spec: WeightPosterior
    posterior: WeightModule

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        prior: Prior | str = "neal",
        posterior: Posterior | str = "global",
    ) -> None:
        super().__init__()
        check_sizes(in_features=in_features, out_features=out_features)
        self.in_features, self.out_features, self.bias = in_features, out_features, bias
        self.prior_spec, self.posterior_spec = as_prior(prior), as_posterior(posterior, WeightPosterior)
        self.is_built = False

    @property
    def input_shape(self) -> Shape:
        return (self.in_features,)

    @property
    def resamples(self) -> bool:
        return isinstance(self.posterior_spec, Factorised) and self.posterior_spec.local_reparameterisation

    def create(self, context: BuildContext) -> Shape:
        self._check_features(context)
        layout = WeightLayout(self.in_features, bias=self.bias)
        is_last = self is context.last_bayesian_layer
        self.posterior = self.posterior_spec.build_weights(WeightContext(layout, self.out_features, is_last, context))
        self.prior = self.prior_spec.build(layout)
        return (self.out_features,)

    def draw(self, inducing: Float[Tensor, "#S M in"] | None, context: DrawContext) -> Draw:
        precision, prior_kl = self.prior(context.num_samples, context.generator)
        prior_kl = prior_kl.expand(context.num_samples)
        if self.resamples and not (context.consistent or context.joint):
            assert isinstance(self.posterior, FactorisedWeights)
            mean, variance = (Affine(moment[None], self.bias) for moment in self.posterior.moments())
            function = ReparameterisedAffine(mean, variance, context.num_samples, context.generator)
            kl = self.posterior.closed_form_kl(precision).expand(context.num_samples)
            return Draw(function, None if inducing is None else function(inducing), kl, prior_kl)
        rows = with_ones(inducing) if self.bias and inducing is not None else inducing
        weights, kl = self.posterior(rows, precision, context)
        above = None if rows is None else _multiply(rows, weights)
        return Draw(self.function(weights), above, kl, prior_kl, Variables(weights, precision))

    def density(
        self, inducing: Float[Tensor, "#S M in"] | None, variables: Variables, context: DrawContext
    ) -> tuple[Float[Tensor, "S M O"] | None, LayerDensity]:
        weights, rows = variables.values, with_ones(inducing) if self.bias and inducing is not None else inducing
        self._check_values(weights, self.in_features + self.bias)
        density = weight_density(self.prior, self.posterior, variables, rows, context)
        return None if rows is None else _multiply(rows, weights), density

    def function(self, weights: Float[Tensor, "S F O"]) -> Affine:
        """The layer as a function with given weights."""
        return Affine(weights, self.bias)

    def extra_repr(self) -> str:
        bias = "" if self.bias else "bias=False, "
        return f"{self.in_features}, {self.out_features}, {bias}{self.prior_spec}, {self.posterior_spec}"


def with_ones(x: Float[Tensor, "*rows in"]) -> Float[Tensor, "*rows F"]:
    """Append a column of ones for the bias: (x, 1)."""
    return torch.cat([x, x.new_ones(1).expand(*x.shape[:-1], 1)], -1)


def _multiply(x: Float[Tensor, "#S B F"], weights: Float[Tensor, "#S F O"]) -> Float[Tensor, "S B O"]:
    """Return x W. It does the same as `torch.matmul`, which adds five more steps to the graph of each product."""
    samples = max(x.shape[0], weights.shape[0])
    return torch.bmm(*(each if each.shape[0] == samples else each.expand(samples, -1, -1) for each in (x, weights)))
