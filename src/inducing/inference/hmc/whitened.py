"""The posterior of a network over whitened variables z, whose prior is N(0, I).

Each Bayesian layer is a function of its own z, given the layers below:

    Linear    w = z / sqrt(P)              the weights, for a prior w ~ N(0, 1/P)
    GPLayer   u = m(h) + R z, K = RR'      the values at the rows of the data, K = k(h, h) at the layer's inputs h

So a deep Gaussian process at the data is a deterministic function of standard normal variables, and one step size is
suitable for all layers. The potential energy is

    U(z) = |z|^2 / 2 - sum_rows log p(y | f)
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from inducing.checks import check_rows
from inducing.errors import DivergenceError
from inducing.inference.hmc.hamiltonian import Point
from inducing.inference.validation import check_data
from inducing.linalg.noise import standard_normal
from inducing.nn.draw import Function, Variables
from inducing.nn.layers import GPLayer, Linear
from inducing.nn.layers.linear import Affine
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.nn.priors import NealPrior, StandardPrior

# most rows of the data in a network with Gaussian processes: each step factorises a matrix of this size for each chain
MAX_PROCESS_ROWS = 500


class WhitenedWeights:
    """The weights of a layer: w = z / sqrt(P)."""

    def __init__(self, name: str, layer: Linear) -> None:
        if not isinstance(layer.prior_spec, NealPrior | StandardPrior):
            raise TypeError(
                f"{name} has a {type(layer.prior_spec).__name__}, which is learned, but hmc and evidence need fixed priors. "
                'Use prior="neal" or prior="standard"'
            )
        self.bias, self.shape = layer.bias, (layer.in_features + layer.bias, layer.out_features)
        variance = 1 / layer.prior(1).precision.diagonal().double()
        self.root_variance = variance.sqrt().mT.expand(self.shape)

    def function(self, position: Float[Tensor, "S F O"]) -> Affine:
        """Return the layer."""
        return Affine(position * self.root_variance, self.bias)

    def whiten(self, weights: Variables) -> Float[Tensor, "S F O"]:
        """Return z for given weights."""
        return weights.values.detach().double() / self.root_variance


class WhitenedValues:
    """The values of a Gaussian process at the rows of the data: u = m + R z."""

    def __init__(self, layer: GPLayer, num_rows: int) -> None:
        self.layer, self.shape = layer, (num_rows, layer.out_features)

    def function(self, position: Float[Tensor, "S N O"]) -> ProcessAtRows:
        """Return the layer at the rows of the data."""
        return ProcessAtRows(self.layer, position)

    def whiten(self, values: Variables) -> Float[Tensor, "S N O"]:
        """Return z for given values."""
        if values.inputs is None:
            raise TypeError("values of a Gaussian process depend on its inputs. Pass the draw of the network itself")
        with torch.no_grad():
            return self.layer.whiten(values.inputs.detach(), values.values.detach())


@dataclass(frozen=True, eq=False)
class ProcessAtRows(Function):
    """A Gaussian process at exactly the rows of the data, a function of its whitened values there."""

    layer: GPLayer
    whitened: Float[Tensor, "S N O"]

    def __call__(self, x: Float[Tensor, "#S N D"]) -> Float[Tensor, "S N O"]:
        return self.layer.unwhiten(x, self.whitened)


class WhitenedPosterior:
    """Posterior over the whitened variables of a network: a function from positions to potential energy and gradient.

    It works in float64, on copies of the network and the likelihood.

    Arguments:
        network: The network.
        likelihood: The likelihood.
        data: The pair (x, y).
    """

    def __init__(self, network: Network, likelihood: Likelihood, data: tuple[Tensor, Tensor]) -> None:
        x, y = (tensor.to(network.device) for tensor in check_data(network, likelihood, *data))
        check_rows(x, y)
        self.network = copy.deepcopy(network).double().requires_grad_(False)
        self.likelihood = copy.deepcopy(likelihood).double().requires_grad_(False)
        self.x, self.y = x.double(), y.double() if y.is_floating_point() else y
        self.layers = [_whitened(name, layer, len(x)) for name, layer in self.network.layers.bayesian_layers()]
        self.shapes = [layer.shape for layer in self.layers]
        self.sizes = [rows * outputs for rows, outputs in self.shapes]
        self.size = sum(self.sizes)

    def functions(self, position: Float[Tensor, "S D"]) -> list[Function]:
        """Return the functions of the layers."""
        parts = position.split(self.sizes, -1)
        return [layer.function(part.unflatten(-1, layer.shape)) for layer, part in zip(self.layers, parts, strict=True)]

    def position(self, variables: Sequence[Variables | Tensor]) -> Float[Tensor, "S D"]:
        """Return the whitened variables for weights or values (S, F, outputs) of each layer."""
        given = [Variables(each) if isinstance(each, Tensor) else each for each in variables]
        found = [tuple(each.values.shape[1:]) for each in given]
        if found != self.shapes:
            raise ValueError(f"the variables of one sample must have the shapes {self.shapes}, got {found}")
        return torch.cat([layer.whiten(each).flatten(1) for layer, each in zip(self.layers, given, strict=True)], 1)

    def outputs(self, position: Float[Tensor, "S D"]) -> Float[Tensor, "S N *O"]:
        """Return the outputs of the network at the data."""
        return self.network.assemble(self.functions(position))(self.x[None])

    def log_likelihood(self, position: Float[Tensor, "S D"]) -> Float[Tensor, " S"]:
        """Return log p(y | z), summed over rows."""
        return self.likelihood.log_prob(self.outputs(position), self.y).sum(-1)

    def __call__(self, position: Float[Tensor, "S D"]) -> Point:
        position = position.detach().requires_grad_()
        with torch.enable_grad():
            log_likelihood = self.log_likelihood(position)
            (gradient,) = torch.autograd.grad(log_likelihood.sum(), position)
        position = position.detach()
        # the prior is N(0, I): U = |z|^2 / 2 - log p(y | z)
        potential = position.square().sum(-1) / 2 - log_likelihood.detach()
        return Point(position, potential, position - gradient)


def start_at_prior(target: WhitenedPosterior, num_chains: int, generator: Generator) -> Point:
    """Return draws from the prior. Raise DivergenceError if their log-likelihood is not finite."""
    point = target(standard_normal((num_chains, target.size), target.x, generator))
    if not torch.isfinite(point.potential).all():
        raise DivergenceError(
            "the log-likelihood is not finite at the initial draws from the prior. Standardise the data, or use "
            'prior="neal", which keeps outputs near unit scale'
        )
    return point


def _whitened(name: str, layer: object, num_rows: int) -> WhitenedWeights | WhitenedValues:
    if isinstance(layer, Linear):
        return WhitenedWeights(name, layer)
    if not isinstance(layer, GPLayer):
        raise TypeError(
            f"{name} {layer} is not a Linear layer or a Gaussian process. Use fit, or a network of inducing.Linear, "
            "inducing.GPLayer and plain modules"
        )
    if num_rows > MAX_PROCESS_ROWS:
        raise ValueError(
            f"the data have {num_rows} rows, but a network with Gaussian processes can have at most {MAX_PROCESS_ROWS}: "
            "each step factorises a dense covariance matrix for each chain. Use fewer rows, or the importance-weighted bound"
        )
    return WhitenedValues(layer, num_rows)
