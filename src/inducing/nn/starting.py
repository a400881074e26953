"""Start a posterior at given weights, for example those of a network that was trained by maximum likelihood.

The inducing points are sent through the layers with these weights. The output of each layer becomes its pseudo-outputs:

    V_l = phi(U_{l-1}) W_l

With precise pseudo-outputs, and at least as many inducing points as inputs of a layer, the regression of V_l on the inputs
of the layer returns W_l.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from inducing.linalg.noise import seeded
from inducing.linalg.regression import WeightSample
from inducing.nn.network import Network
from inducing.nn.parameterisation import LOG_PRECISION_SCALE
from inducing.nn.posteriors.convolution import ConvolvedWeights
from inducing.nn.posteriors.factorised import FactorisedWeights
from inducing.nn.posteriors.inducing import InducingWeights
from inducing.nn.posteriors.point import PointWeights

# logarithm of the initial precision: a function drawn at the start is close to the given one, but not equal
LOG_PRECISION = 5.0


def point_weights(network: Network) -> list[Tensor]:
    """The weights of all layers of a network of `PointEstimate` posteriors."""
    posteriors = [layer.posterior for _, layer in network.layers.bayesian_layers()]
    if not all(isinstance(each, PointWeights) for each in posteriors):
        raise TypeError("only networks whose layers all have a PointEstimate posterior have one set of weights")
    return [each.weights.detach() for each in posteriors if isinstance(each, PointWeights)]


def start_at(network: Network, weights: Iterable[Tensor], log_precision: float = LOG_PRECISION) -> None:
    """Set the pseudo-outputs of all layers such that their functions are close to those of the given weights.

    The weights are the means of `Factorised` posteriors, and the values of `PointEstimate` ones.

    Arguments:
        network: A network whose layers have `GlobalInducing`, `Factorised` or `PointEstimate` posteriors.
        weights: The weights of each layer, (fan-in, outputs), with the bias in the last row.
        log_precision: Logarithm of the precision of the pseudo-outputs.
    """
    layers, weights = network.layers.bayesian_layers(), list(weights)
    if len(layers) != len(weights):
        raise ValueError(f"got weights of {len(weights)} layers for a network of {len(layers)} layers")
    hooks: list[_GivenWeights] = []
    with torch.no_grad(), ExitStack() as stack:
        for (name, layer), each in zip(layers, weights, strict=True):
            posterior = layer.posterior
            if not _can_start(posterior):
                kind = type(layer.posterior_spec).__name__
                raise TypeError(
                    f"{name} has a {kind} posterior; only GlobalInducing, Factorised and PointEstimate posteriors start at "
                    "given weights"
                )
            hooks.append(_GivenWeights(name, each, posterior))
            stack.callback(posterior.register_forward_hook(hooks[-1]).remove)
        network.draw(1, seeded(0, "start", network.device), consistent=True)
        for hook in hooks:
            hook.start(log_precision)


def _can_start(posterior: nn.Module) -> bool:
    if isinstance(posterior, InducingWeights | ConvolvedWeights):
        return posterior.inducing_inputs is None
    return isinstance(posterior, FactorisedWeights | PointWeights)


class _GivenWeights:
    """Hook that replaces the sampled weights of a layer by given ones, and keeps their outputs at the inducing points."""

    outputs: Tensor

    def __init__(self, name: str, weights: Float[Tensor, "F O"], posterior: nn.Module) -> None:
        self.name, self.weights, self.posterior = name, weights, posterior

    def __call__(self, module: nn.Module, arguments: Any, sample: WeightSample) -> WeightSample:
        if sample.weights.shape[1:] != self.weights.shape:
            found, wanted = tuple(self.weights.shape), tuple(sample.weights.shape[1:])
            raise ValueError(f"{self.name} has weights {wanted}, with the bias in the last row, but got {found}")
        self.weights = self.weights.to(sample.weights)
        if isinstance(self.posterior, InducingWeights | ConvolvedWeights):
            self.outputs = self.posterior.outputs_at(arguments[0], self.weights)
        return sample._replace(weights=self.weights[None])

    def start(self, log_precision: float) -> None:
        """Set the parameters of the posterior."""
        posterior = self.posterior
        if isinstance(posterior, FactorisedWeights):
            posterior.scaled_mean.copy_(self.weights * posterior.mean_scale)
        elif isinstance(posterior, PointWeights):
            posterior.scaled.copy_(self.weights / posterior.scale)
        else:
            assert isinstance(posterior, InducingWeights | ConvolvedWeights)
            posterior.pseudo_outputs.copy_(self.outputs)
            posterior.scaled_log_precision.fill_(log_precision / LOG_PRECISION_SCALE)
