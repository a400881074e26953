"""New data by gradient steps, with the posterior of the earlier data in place of the prior.

The steps maximise E_Q[log p(y_new | f)] - KL(Q | Q_old) (streaming variational inference; Broderick et al., 2013). Some new
rows become inducing points, at which Q_old says nothing. So the network can learn about regions that it has not seen.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.arrays import evenly_spaced
from inducing.inference.training import fit
from inducing.linalg.noise import seeded
from inducing.nn.growing import add_inducing_points, can_grow, pseudo_likelihoods
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.nn.posteriors.base import paper_log_precision

# draws from which the initial outputs at new points are averaged
NUM_DRAWS = 32


def learn_new_data(
    fitted: Network,
    likelihood: Likelihood,
    data: tuple[Float[Tensor, "n *in"], Tensor],
    num_inducing: int,
    settings: dict[str, Any],
) -> Network:
    """Return a copy of a network that has learned from new data by gradient steps.

    Arguments:
        fitted: The network that was fitted to the earlier data.
        likelihood: Its likelihood, which stays as it is.
        data: New inputs and targets.
        num_inducing: The largest number of new rows that become inducing points, evenly spaced in their order. Some networks
            cannot have more inducing points (`can_grow`).
        settings: Settings of `fit`.
    """
    x, y = data
    likelihood = copy.deepcopy(likelihood).requires_grad_(False)
    rows = evenly_spaced(len(x), num_inducing).to(x.device)
    previous = add_inducing_points(fitted, x[rows]) if can_grow(fitted) else fitted
    network = copy.deepcopy(previous)
    if previous is not fitted:
        start_new_points(network, len(rows), likelihood, y[rows])
    # a later fit learns them
    fixed = [tensor for tensor in network.defining_parameters().values() if tensor.requires_grad]
    for tensor in fixed:
        tensor.requires_grad_(False)
    fit(network, likelihood, data, previous=previous, **{"description": "update", **settings})
    for tensor in fixed:
        tensor.requires_grad_(True)
    return network


def start_new_points(network: Network, count: int, likelihood: Likelihood, targets: Tensor) -> None:
    """Set the pseudo-outputs at the last inducing points, from which training starts.

    Layers start with their mean outputs there, and the paper's low precision of hidden layers. For real targets the last
    layer starts with the targets and the precision of the noise, averaged over draws, and over outputs that share it. With
    one Gaussian noise for all outputs this is the exact update of the last layer by these rows.

    Arguments:
        network: A network to which inducing points were added.
        count: Number of new points.
        likelihood: The likelihood.
        targets: The targets of the new points. The mean output takes the place of missing ones.
    """
    assert network.inducing_points is not None
    layers = [layer for _, layer in network.layers.bayesian_layers()]
    with torch.no_grad():
        draw = network.draw(NUM_DRAWS, seeded(0, "new inducing points", network.device), consistent=True)
        outputs = draw(network.inducing_points[-count:])
        for number, posterior in pseudo_likelihoods(network):
            is_last, drawn = layers[number] is network.last_layer, draw.layers[number].inducing
            values = outputs if is_last else drawn
            assert values is not None
            mean, log_precision = values[:, -count:].mean(0), torch.full((), paper_log_precision(False))
            if mean.shape[1:] != posterior.pseudo_outputs.shape[1:]:
                # a convolution with a circular boundary has pseudo-outputs beyond the borders of its outputs
                mean = torch.zeros_like(posterior.pseudo_outputs[-count:])
            if is_last and likelihood.support == "real":
                mean, log_precision = _targets_and_precision(mean, targets, likelihood.variance(outputs).mean(0))
                if len(posterior.scaled_log_precision) == 1:
                    log_precision = log_precision[: targets.shape[-1]].mean(0, keepdim=True)
            posterior.set_last_rows(mean, log_precision)


def _targets_and_precision(
    mean: Float[Tensor, "K O"], targets: Float[Tensor, "K T"], variance: Tensor
) -> tuple[Float[Tensor, "K O"], Float[Tensor, "O K"]]:
    """Return pseudo-outputs and their log-precisions: the targets and that of the noise.

    Missing targets, and outputs that are not means, such as the logarithm of the noise, are as in hidden layers.
    """
    number, observed = targets.shape[-1], ~targets.isnan()
    log_precision = torch.full_like(mean, paper_log_precision(False))
    log_precision[:, :number] = torch.where(observed, -variance.log(), log_precision[:, :number])
    known = torch.where(observed, targets.to(mean), mean[:, :number])
    return torch.cat([known, mean[:, number:]], 1), log_precision.mT
