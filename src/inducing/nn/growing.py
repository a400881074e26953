"""More inducing points for a fitted network, without a change of its posterior.

A new row of the pseudo-outputs with zero precision says nothing about the weights:

    Q(w)  proportional to  N(V; X w, Lambda^-1) N(w; 0, P^-1),    Lambda = diag(Lambda_old, 0)

The values of a Gaussian process at the new points are then those of its prior given the values at the old ones. Training can
then change the posterior at the new points.
"""

from __future__ import annotations

import copy

import torch
from jaxtyping import Float
from torch import Tensor, nn

from inducing.nn.layers.normalisation import InducingNorm
from inducing.nn.network import Network
from inducing.nn.posteriors.pseudo_likelihood import PseudoLikelihood

# logarithm of a precision that counts as zero
NEGLIGIBLE = -30.0


def can_grow(network: Network) -> bool:
    """Return whether inducing points can be added without a change of the posterior.

    All layers that use the inducing points must have `GlobalInducing` posteriors. No Gaussian process may have inducing
    inputs of its own, because a saved network is built again with as many of them as it has inducing points. `InducingNorm`
    is not allowed, since it changes with the points. New points are rows of data, so inducing images must have their size.
    """
    layers = [layer for _, layer in network.layers.bayesian_layers()]
    return (
        network.inducing_points is not None
        and network.inducing_points.shape[1:] == network.input_shape
        and all(isinstance(layer.posterior, PseudoLikelihood) for layer in layers if layer.needs_inducing)
        and not any(layer.starts_from_rows for layer in layers)
        and not any(isinstance(part, InducingNorm) for _, part in network.layers.walk())
    )


def add_inducing_points(network: Network, points: Float[Tensor, "K *in"]) -> Network:
    """Return a copy of a network with more inducing points and the same posterior."""
    network = copy.deepcopy(network)
    old = network.inducing_points
    assert old is not None
    for _, posterior in pseudo_likelihoods(network):
        posterior.add_rows(len(points), NEGLIGIBLE)
    together = torch.cat([old.detach(), points.to(old)])
    network.inducing_points = nn.Parameter(together, old.requires_grad) if isinstance(old, nn.Parameter) else together
    network.num_initial_points = len(together)
    return network


def pseudo_likelihoods(network: Network) -> list[tuple[int, PseudoLikelihood]]:
    """Return the posteriors with pseudo-outputs at the inducing points, with the numbers of their Bayesian layers."""
    posteriors = (layer.posterior for _, layer in network.layers.bayesian_layers())
    return [
        (number, each)
        for number, each in enumerate(posteriors)
        if isinstance(each, PseudoLikelihood) and each.inducing_inputs is None
    ]
