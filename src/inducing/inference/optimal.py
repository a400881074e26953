"""Initialisation of the last layer at its optimal posterior, and a check of `OptimalInducing` against the training data.

For a Gaussian likelihood the best posterior of the last layer given the layers below is Bayesian linear regression on the
data: the pseudo-outputs are the targets, and the precision is 1 / noise variance (Eq. 8 of the paper). With M of N data
points as inducing points, each represents N / M data points. An `OptimalInducing` posterior always has these values. For a
`GlobalInducing` posterior they are initial values.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.inference.batches import Data
from inducing.nn.likelihoods import Gaussian, Likelihood
from inducing.nn.network import Network
from inducing.nn.parameterisation import LOG_PRECISION_SCALE
from inducing.nn.posteriors import GlobalInducing, LocalInducing
from inducing.nn.posteriors.pseudo_likelihood import PseudoLikelihood


def check_optimum(network: Network, data: Data, num_data: int | float) -> Float[Tensor, " N"]:
    """Check that an `OptimalInducing` last layer, if there is one, was built with these data. Return the row weights."""
    optimum = network.optimal_last
    if optimum is None:
        return torch.ones(0)
    weights = data[2] if isinstance(data, tuple | list) and len(data) == 3 else None
    rows = num_data if weights is None else len(weights)
    if network.num_inducing != rows:
        raise ValueError(
            f"the last layer has an OptimalInducing posterior for {network.num_inducing} rows, but there are {rows} "
            "data points. Pass all of them as inducing points and targets"
        )
    if isinstance(data, tuple | list):
        known = (network.inducing_points, optimum.targets)
        for name, ours, theirs in zip("xy", known, data, strict=False):
            # missing targets are equal
            if ours is None or not torch.allclose(ours, theirs.to(ours), rtol=0, atol=0, equal_nan=True):
                raise ValueError(
                    f"the last layer has an OptimalInducing posterior for other data: {name} differs from the data that "
                    "the network was built with. Pass inducing points and targets with the same rows in the same order"
                )
    return torch.ones_like(optimum.row_weights) if weights is None else weights


def start_optimally(network: Network, likelihood: Likelihood, num_data: int | float) -> bool:
    """Initialise the precision of the last layer's pseudo-outputs at its optimum, and return whether it was changed.

    The precision is changed only if the likelihood is Gaussian, the network was built with inducing targets, and the
    precision still has the paper's initial value. A value that the user chose or that training found is not overwritten.
    """
    last = network.last_layer
    weights = None if last is None else last.posterior
    if not (
        network.has_inducing_targets and isinstance(likelihood, Gaussian) and isinstance(weights, PseudoLikelihood)
    ):
        return False
    assert network.num_inducing is not None
    chosen = (
        last is not None
        and isinstance(last.posterior_spec, GlobalInducing | LocalInducing)
        and (last.posterior_spec.log_precision is not None)
    )
    if chosen or weights.scaled_log_precision.any():
        return False
    # log Lambda = log(N / M) - log(noise variance), one for all outputs or one for each
    share = torch.log(torch.tensor(num_data / network.num_inducing))
    log_precision = (share - likelihood.noise_variance.log()).reshape(-1, 1)
    shared = weights.scaled_log_precision.shape[0] == 1
    with torch.no_grad():
        weights.scaled_log_precision.copy_((log_precision.mean(0) if shared else log_precision) / LOG_PRECISION_SCALE)
    return True
