"""The optimal last layer: as a place to start from, and matched to the data that it is the optimum for.

For a Gaussian likelihood the best posterior of the last layer given those below is Bayesian linear regression on the data:
pseudo-outputs at the targets, precision 1 / noise variance (the paper's Eq. 7). With M of N data as inducing points, each
stands for N / M of them. `OptimalInducing` keeps it so; this sets a `GlobalInducing` last layer there and lets it learn on.
"""

from __future__ import annotations

import torch

from inducing.inference.batches import Data
from inducing.nn.likelihoods import Gaussian, Likelihood
from inducing.nn.network import Network
from inducing.nn.pseudo import LOG_PRECISION_SCALE, PseudoLikelihood


def match_optimum(network: Network, data: Data, num_data: int | float) -> None:
    """Let an optimal last layer know how often each row counts; refuse it for other data than it was built with."""
    optimum = network.optimal_last
    if optimum is None:
        return
    weights = data[2] if isinstance(data, tuple | list) and len(data) == 3 else None
    rows = num_data if weights is None else len(weights)
    if network.num_inducing != rows:
        raise ValueError(
            f"the last layer has an OptimalInducing posterior for {network.num_inducing} rows, but there are {rows} "
            "data points: it is the optimum for all of them or none. Pass all of them as inducing points and targets"
        )
    if isinstance(data, tuple | list):
        known = (network.inducing_points, optimum.targets)
        for name, ours, theirs in zip("xy", known, data, strict=False):
            if ours is None or not torch.equal(ours, theirs.to(ours)):
                raise ValueError(
                    f"the last layer has an OptimalInducing posterior for other data: {name} is not what the network was "
                    "built with; pass inducing points and targets with the same rows in the same order"
                )
    # of an earlier fit there may be others
    optimum.weigh(torch.ones_like(optimum.row_weights) if weights is None else weights)


def start_optimally(network: Network, likelihood: Likelihood, num_data: int | float) -> bool:
    """Set the precision of the last layer's pseudo-outputs to its optimum, where there is one; return whether.

    It is left alone unless the likelihood is Gaussian, the network was built with inducing targets, and the precision is
    still at the paper's first value: one that the user chose or that training found is not overwritten.
    """
    last = network.last_layer
    weights = None if last is None else last.posterior
    if not (
        network.has_inducing_targets and isinstance(likelihood, Gaussian) and isinstance(weights, PseudoLikelihood)
    ):
        return False
    assert network.num_inducing is not None
    if weights.scaled_log_precision.any():
        return False
    # log Lambda = log(N / M) - log(noise variance), for all outputs or for each
    share = torch.log(torch.tensor(num_data / network.num_inducing))
    log_precision = (share - likelihood.noise_variance.log()).reshape(-1, 1)
    shared = weights.scaled_log_precision.shape[0] == 1
    with torch.no_grad():
        weights.scaled_log_precision.copy_((log_precision.mean(0) if shared else log_precision) / LOG_PRECISION_SCALE)
    return True
