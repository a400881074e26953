"""More inducing points for a fitted network, without a change of its posterior.

A new row of the pseudo-outputs with zero precision says nothing about the weights:

    Q(w)  proportional to  N(V; X w, Lambda^-1) N(w; 0, P^-1),    Lambda = diag(Lambda_old, 0)

The values of a Gaussian process at the new points are then those of its prior given the values at the old ones. The network
can learn at the new points what it could not represent before.
"""

from __future__ import annotations

import copy

import torch
from jaxtyping import Float
from torch import Tensor, nn

from inducing.linalg.noise import seeded
from inducing.nn.layers.normalisation import InducingNorm
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.nn.parameterisation import LOG_PRECISION_SCALE
from inducing.nn.posteriors.pseudo_likelihood import PseudoLikelihood

# logarithm of a precision that counts as zero
NEGLIGIBLE = -30.0
# initial log-precision at new points, in hidden layers: small, but with a gradient
HIDDEN = -4.0
# draws from which the initial outputs at new points are averaged
NUM_DRAWS = 32


def can_grow(network: Network) -> bool:
    """Return whether inducing points can be added without a change of the posterior.

    All layers that use the inducing points must have `GlobalInducing` posteriors. No Gaussian process may have inducing
    inputs of its own, since their number follows that of the inducing points. No `InducingNorm` is allowed, since it changes
    with the points.
    """
    layers = [layer for _, layer in network.layers.bayesian_layers()]
    return (
        network.inducing_points is not None
        and all(isinstance(layer.posterior, PseudoLikelihood) for layer in layers if layer.needs_inducing)
        and not any(layer.starts_from_rows for layer in layers)
        and not any(isinstance(part, InducingNorm) for _, part in network.layers.walk())
    )


def grow(network: Network, points: Float[Tensor, "K *in"]) -> Network:
    """Return a copy of a network with more inducing points and the same posterior."""
    network = copy.deepcopy(network)
    old = network.inducing_points
    assert old is not None
    for posterior in _users(network):
        posterior.add_rows(len(points), NEGLIGIBLE)
    together = torch.cat([old.detach(), points.to(old)])
    network.inducing_points = nn.Parameter(together, old.requires_grad) if isinstance(old, nn.Parameter) else together
    network.num_initial_points = len(together)
    return network


def start_new_points(
    network: Network, count: int, likelihood: Likelihood, targets: Float[Tensor, "K O"] | Tensor, seed: int = 0
) -> None:
    """Set the pseudo-outputs at the last inducing points of a grown network, from which training starts.

    Hidden layers start with their mean outputs there, and a low precision. For Gaussian noise the last layer starts with the
    targets and the precision of the noise: this is the exact update of the last layer by these rows.

    Arguments:
        network: The network.
        count: Number of new points.
        likelihood: The likelihood.
        targets: The targets of the new points. The mean output takes the place of missing ones.
        seed: Seed of the draws from which mean outputs are computed.
    """
    assert network.inducing_points is not None
    with torch.no_grad():
        generator = seeded(seed, "new inducing points", network.device)
        draw = network.draw(NUM_DRAWS, generator, consistent=True, likelihood=likelihood)
        outputs = draw(network.inducing_points[-count:])
        layers = [layer for _, layer in network.layers.bayesian_layers()]
        for layer, drawn in zip(layers, draw.layers, strict=True):
            posterior = layer.posterior
            if not (isinstance(posterior, PseudoLikelihood) and posterior.inducing_inputs is None):
                continue
            values, log_precision = posterior.pseudo_outputs[-count:], posterior.scaled_log_precision[:, -count:]
            if layer is not network.last_layer:
                assert drawn.inducing is not None
                values.copy_(drawn.inducing[:, -count:].mean(0))
                log_precision.fill_(HIDDEN / LOG_PRECISION_SCALE)
            else:
                values.copy_(outputs.mean(0))
                log_precision.fill_(HIDDEN / LOG_PRECISION_SCALE)
                if likelihood.support == "real":
                    _start_at_targets(values, log_precision, targets, likelihood.variance(outputs).mean(0))


def _start_at_targets(values: Tensor, log_precision: Tensor, targets: Tensor, variance: Tensor) -> None:
    """Set the outputs that are means of the targets, in place."""
    number = targets.shape[-1]
    values[:, :number] = torch.where(targets.isnan(), values[:, :number], targets.to(values))
    precision = -variance.log().expand(len(values), number).mT / LOG_PRECISION_SCALE
    if len(log_precision) == 1:
        # outputs share it
        log_precision.copy_(precision.mean(0, keepdim=True))
    else:
        log_precision[:number] = precision


def _users(network: Network) -> list[PseudoLikelihood]:
    """The posteriors with pseudo-outputs at the inducing points of the network."""
    posteriors = (layer.posterior for _, layer in network.layers.bayesian_layers())
    return [each for each in posteriors if isinstance(each, PseudoLikelihood) and each.inducing_inputs is None]
