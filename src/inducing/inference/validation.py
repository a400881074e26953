"""Validation of a training problem: errors for wrong types and data, warnings for likely mistakes."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from inducing.checks import check_dtype, check_inputs, check_kind
from inducing.errors import DataWarning
from inducing.inference.batches import Data
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.nn.posteriors.point import PointWeights
from inducing.nn.posteriors.pseudo_likelihood import PseudoLikelihood


def check_model(network: object, likelihood: object) -> None:
    """Raise an error if the arguments are not a network and a likelihood of this library."""
    check_kind("network", network, Network, "an inducing.Network")
    check_kind("likelihood", likelihood, Likelihood, "an inducing.nn.Likelihood, e.g. inducing.Gaussian()")


def check_previous(network: Network, previous: Network) -> None:
    """Raise an error if the posterior of another network cannot replace the prior of this one."""
    check_kind("previous", previous, Network, "a fitted inducing.Network")
    if previous.dtype != network.dtype or previous.device != network.device:
        raise ValueError(
            f"previous is {previous.dtype} on {previous.device}, the network {network.dtype} on {network.device}. Convert "
            "one of them, e.g. previous.to(network.device, network.dtype)"
        )
    own, other = (_describe_layers(each) for each in (network, previous))
    if own != other:
        different = next(name for name in {**own, **other} if own.get(name) != other.get(name))
        raise ValueError(
            f"previous must have the same layers and priors, but {different} is {other.get(different)} there and "
            f"{own.get(different)} here. Start from a copy: copy.deepcopy(previous)"
        )
    if network.optimal_last is not None:
        raise ValueError(
            "the last layer has its exact posterior (OptimalInducing), which has no parameters to learn from new rows. "
            "Update it without gradient steps, or fit a network with GlobalInducing posteriors"
        )
    for name, layer in network.layers.bayesian_layers():
        if layer.resamples or isinstance(layer.posterior, PointWeights):
            raise ValueError(
                f"{name} {layer} has no density of its weights, so no KL from an earlier posterior. Use another posterior"
            )
    ours, theirs = network.defining_parameters(), previous.defining_parameters()
    for name in {**ours, **theirs}:
        one, two = ours.get(name), theirs.get(name)
        if one is None or two is None or one.requires_grad or not torch.equal(one, two):
            raise ValueError(
                f"{name} must be the same in previous and must not be learned: it defines the variables that are compared. "
                "Use inducing.update, or start from copy.deepcopy(previous) with requires_grad_(False) for kernels and "
                "inducing inputs"
            )


def _describe_layers(network: Network) -> dict[str, str]:
    """Describe the variables of each Bayesian layer: all of its settings but the posterior."""
    descriptions = {}
    for name, layer in network.layers.bayesian_layers():
        descriptions[name] = str(layer).replace(f", {layer.posterior_spec}", "")
    return descriptions


def check_data(network: Network, likelihood: Likelihood, x: object, y: object) -> tuple[Tensor, Tensor]:
    """Return inputs and targets. Raise an error if they are not valid for the network and the likelihood."""
    x = check_inputs(x, network.input_shape, network.dtype)
    y = likelihood.check_targets(y, network.output_shape)
    check_dtype("y", y, network.dtype)
    return x, y


def check_training_data(network: Network, likelihood: Likelihood, x: object, y: Tensor) -> None:
    """Raise an error for data that are not valid, and for a target that is missing in all rows."""
    _, y = check_data(network, likelihood, x, y)
    missing = y.isnan().all(0)
    if missing.any():
        raise ValueError(
            f"column {int(missing.reshape(-1).nonzero()[0])} of y has only NaN, so nothing can be learned about it. Remove "
            "this column, and its output of the network"
        )


def warn_of_problems(network: Network, likelihood: Likelihood, data: Data, num_data: int | float) -> None:
    """Warn about many inducing points, data that are not standardised, and counts as inducing targets."""
    _check_number_of_inducing_points(network, num_data)
    if isinstance(data, tuple | list):
        _check_scale("x", data[0])
        if likelihood.support == "real":
            _check_scale("y", data[1])
    if likelihood.support == "integers":
        _check_count_targets(network, likelihood)


def _check_number_of_inducing_points(network: Network, num_data: int | float) -> None:
    # an optimal last layer always has one inducing point for each row, for any sum of the weights
    # weights with a sum of 40 add up to 39.999...
    num_data = round(num_data, 6)
    if network.optimal_last is None and network.num_inducing is not None and network.num_inducing > num_data:
        warnings.warn(
            f"there are {network.num_inducing} inducing points for {num_data} data points. Use at most one per data point: "
            "more cost time and do not improve the posterior",
            DataWarning,
            stacklevel=4,
        )


def _check_scale(name: str, tensor: Tensor) -> None:
    """Warn if a column is far from mean 0 and standard deviation 1, which the priors assume."""
    if not tensor.is_floating_point() or len(tensor) < 2:
        return
    # columns are features, or the channels of images, whose single pixels need not be standardised
    columns = tensor.detach().movedim(1, -1).flatten(0, -2) if tensor.ndim > 1 else tensor.detach()[:, None]
    # of the values that are not missing
    count, mean = (~columns.isnan()).sum(0), columns.nanmean(0)
    std = ((columns - mean).square().nansum(0) / (count - 1).clamp_min(1)).sqrt()
    # constant columns, up to rounding, do no harm
    varies = std > 10 * torch.finfo(std.dtype).eps * mean.abs()
    odd = varies & ((std < 0.01) | (std > 10) | (mean.abs() > 10 * std.clamp_min(1.0)))
    if odd.any():
        column = int(odd.nonzero()[0])
        warnings.warn(
            f"{name} is not standardised: its column {column} has mean {float(mean[column]):.3g} and standard deviation "
            f"{float(std[column]):.3g}. The priors assume unit scale: use inducing.Standardiser, and "
            "Predictive.unstandardise for the predictions",
            DataWarning,
            stacklevel=4,
        )


def _check_count_targets(network: Network, likelihood: Likelihood) -> None:
    """Warn if the initial pseudo-outputs are counts, although the outputs are logarithms of rates."""
    last = network.last_layer
    if not network.has_inducing_targets or last is None or not isinstance(last.posterior, PseudoLikelihood):
        return
    initial = last.posterior.pseudo_outputs
    if initial.abs().max() > 1 and torch.equal(initial, initial.round()):
        warnings.warn(
            f"the inducing targets are counts, but the outputs of a {type(likelihood).__name__} likelihood are logarithms. "
            "Pass inducing_targets=torch.log(y + 0.5), or leave them out",
            DataWarning,
            stacklevel=4,
        )
