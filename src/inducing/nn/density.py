"""Log-densities of given weights and Gaussian process values, under the posterior and under the prior.

The posterior of a layer with global inducing points depends on the layers below. So the inducing points are sent through the
given layers, and the log-densities of the layers are added up:

    log Q(w_1, ..., w_L) = sum_l log Q(w_l | inducing points at the input of layer l, given w_1, ..., w_{l-1})

A prior with variables of its own, such as a scale, adds their log-densities. All are in float64.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from inducing.linalg.density import prior_log_density
from inducing.nn.context import DrawContext
from inducing.nn.draw import Variables
from inducing.nn.posteriors.base import WeightModule
from inducing.nn.priors.base import PriorModule


class LayerDensity(NamedTuple):
    """Log-densities of the variables of one layer.

    Arguments:
        posterior: log Q of the weights, or of the values of a Gaussian process, and of the prior's own variables.
        prior: log P of the same.
    """

    posterior: Float[Tensor, " S"]
    prior: Float[Tensor, " S"]


class PartDensity(NamedTuple):
    """Log-densities of the layers in a part of a network.

    Arguments:
        inducing: The output of the part at the inducing points, or None if there are none.
        layers: The log-densities of its Bayesian layers.
    """

    inducing: Float[Tensor, "S M *out"] | None
    layers: tuple[LayerDensity, ...]


class LogDensity(NamedTuple):
    """Log-densities of the variables of a network, in the order of `Network.layer_names`.

    Arguments:
        posterior: log Q of each layer, given the layers below.
        prior: log P of each layer.
    """

    posterior: Float[Tensor, "L S"]
    prior: Float[Tensor, "L S"]

    @property
    def kl(self) -> Float[Tensor, " S"]:
        """log Q - log P, summed over the layers."""
        return (self.posterior - self.prior).sum(0)


def weight_density(
    prior: PriorModule,
    posterior: WeightModule,
    variables: Variables,
    inputs: Float[Tensor, "#S M *F"] | None,
    context: DrawContext,
) -> LayerDensity:
    """Return the log-densities of the weights of a layer, and of its prior's own variables."""
    precision, of_posterior, of_prior = prior.log_density(variables.precision)
    log_posterior = posterior.log_density(variables.values, inputs, precision, context)
    log_prior = prior_log_density(variables.values, precision)
    samples = len(variables.values)
    return LayerDensity((log_posterior + of_posterior).expand(samples), (log_prior + of_prior).expand(samples))
