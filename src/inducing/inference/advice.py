"""What `fit` says about a problem before it begins, and about a step that went wrong."""

from __future__ import annotations

import warnings

import torch

from inducing.inference.batches import Data
from inducing.inference.objective import ELBO, ELBOTerms
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.nn.pseudo import PseudoLikelihood


def advise(network: Network, likelihood: Likelihood, data: Data, num_data: int | float) -> None:
    """Warn of what is rarely meant."""
    _explain_many_inducing_points(network, num_data)
    _explain_scales(data, likelihood)
    _explain_count_targets(network, likelihood)


def explain_divergence(elbo: ELBO, terms: ELBOTerms) -> str:
    """Say where the first number went wrong."""
    finite = torch.isfinite(terms.kl).all(1) & torch.isfinite(terms.prior_kl).all(1)
    layers = [name for name, good in zip(elbo.network.layer_names, finite.tolist(), strict=True) if not good]
    if layers:
        where = f"the KL of {', '.join(layers)}"
    elif not torch.isfinite(terms.log_likelihood).all():
        where = "the log-likelihood"
    else:
        # Adam needs their squares
        learned = ((name, p.grad) for name, p in elbo.named_parameters() if p.grad is not None)
        bad = [name for name, gradient in learned if not torch.isfinite(gradient.square().sum())]
        where = f"the gradient of {', '.join(bad)}"
    return (
        f"{where} is not finite. Likely causes: a learning rate that is too high, or data on an extreme scale. Remedies: "
        "lower learning_rate, standardise x and y, or use float64 (`network.double()`, `likelihood.double()`)."
    )


def _explain_many_inducing_points(network: Network, num_data: int | float) -> None:
    # those of an optimal last layer are the rows, whatever they weigh
    if network.optimal_last is None and network.num_inducing is not None and network.num_inducing > num_data:
        warnings.warn(
            f"{network.num_inducing} inducing points for {num_data} data points: this is allowed, and costs more than "
            "it can gain; as many inducing points as data already contain the optimal last layer",
            stacklevel=4,
        )


def _explain_count_targets(network: Network, likelihood: Likelihood) -> None:
    """First values of outputs that are logarithms must not be the counts themselves."""
    last = network.last_layer
    if not network.has_inducing_targets or likelihood.support != "integers" or last is None:
        return
    if not isinstance(last.posterior, PseudoLikelihood):
        return
    first = last.posterior.pseudo_outputs
    if first.abs().max() > 1 and torch.equal(first, first.round()):
        warnings.warn(
            f"the inducing targets are counts, but the outputs of a {type(likelihood).__name__} likelihood are logarithms: "
            "pass inducing_targets=torch.log(y + 0.5), or leave them out",
            stacklevel=4,
        )


def _explain_scales(data: Data, likelihood: Likelihood) -> None:
    """Inputs and real targets of tensors should be about standard; error bars are wrong long before the mean is."""
    if not isinstance(data, tuple | list):
        return
    for name, tensor in zip("xy", data, strict=False):
        counts = name == "y" and likelihood.support != "real"
        if counts or not tensor.is_floating_point() or len(tensor) < 2:
            continue
        # features, or the channels of maps, whose pixels need not be standard one by one
        columns = tensor.detach().movedim(1, -1).flatten(0, -2) if tensor.ndim > 1 else tensor.detach()[:, None]
        std, mean = columns.std(0), columns.mean(0).abs()
        # constant columns do no harm
        odd = (std > 0) & ((std < 0.01) | (std > 10) | (mean > 10 * std.clamp_min(1.0)))
        if odd.any():
            column = int(odd.nonzero()[0])
            warnings.warn(
                f"{name} is not standardised: its column {column} has mean {float(columns[:, column].mean()):.3g} and "
                f"standard deviation {float(std[column]):.3g}. The priors are about unit scale, and error bars suffer "
                "first; see inducing.Standardiser, and Predictive.unstandardise to bring predictions back",
                stacklevel=4,
            )
