"""New data without a new fit: the last layer of each posterior draw is updated exactly given the layers below.

See `inducing.nn.last_layer`. The layers below, the hyperparameters and the noise stay as they were fitted, and the draws
keep equal weights. With one layer the result is that of a fit to all rows.
"""

from __future__ import annotations

import copy

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.checks import check_kind, check_rows
from inducing.inference.validation import check_data
from inducing.nn.draw import FunctionSamples
from inducing.nn.last_layer import draw_last_layer, noise_variance, sample_updated_functions
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network


class UpdatedNetwork:
    """A network given new data. `inducing.predict` takes it like a network, and `inducing.update` adds more data.

    Arguments:
        network: The fitted network.
        likelihood: Its likelihood.
        x: The new inputs.
        y: The new targets.
    """

    def __init__(self, network: Network, likelihood: Likelihood, x: Float[Tensor, "n *in"], y: Tensor) -> None:
        self.network, self.likelihood, self.x, self.y = network, likelihood, x, y
        self.input_shape, self.output_shape = network.input_shape, network.output_shape
        self.dtype, self.device = network.dtype, network.device

    def sample_functions(
        self, num_samples: int, seed: int = 0, likelihood: Likelihood | None = None
    ) -> FunctionSamples:
        """Sample functions as `Network.sample_functions` does. They can be run, saved and exported in the same way."""
        likelihood = self.likelihood if likelihood is None else likelihood
        return sample_updated_functions(self.network, likelihood, self.x, self.y, num_samples, seed)


def update(
    network: Network | UpdatedNetwork, likelihood: Likelihood, data: tuple[Float[Tensor, "n *in"], Tensor]
) -> UpdatedNetwork:
    """Condition a fitted network on new data without a new fit.

    The last layer is updated exactly given the layers below, at a cost that is cubic in the number of new rows. The network
    is not changed. After many new rows, fit again: the other layers and the noise do not learn from them.

    Arguments:
        network: A fitted network that ends with a `Linear` or a `GPLayer`, or the result of an update.
        likelihood: The likelihood of the fit. Noise that is not Gaussian counts as Gaussian with the same variance.
        data: New inputs and targets.

    Example:
        >>> import inducing, torch
        >>> x, y = torch.randn(20, 3), torch.randn(20, 1)
        >>> network, likelihood = inducing.models.mlp(3, 1, num_inducing=10), inducing.Gaussian()
        >>> updated = inducing.update(network, likelihood, (x, y))
        >>> inducing.predict(updated, likelihood, x).mean.shape
        torch.Size([20, 1])
    """
    check_kind("likelihood", likelihood, Likelihood, "a likelihood, e.g. inducing.Gaussian()")
    if not (isinstance(data, tuple) and len(data) == 2):
        raise TypeError(f"data must be a pair of tensors (x, y), got {type(data).__name__}")
    old = network if isinstance(network, UpdatedNetwork) else None
    fitted = network.network if isinstance(network, UpdatedNetwork) else network
    check_kind("network", fitted, Network, "a Network or the result of inducing.update")
    x, y = check_new_data(fitted, likelihood, *data)
    if old is not None:
        x, y = torch.cat([old.x, x]), torch.cat([old.y, y])
        return UpdatedNetwork(fitted, likelihood, x, y)
    fitted = copy.deepcopy(fitted).requires_grad_(False)
    # an error that would otherwise appear in predictions
    draw_last_layer(fitted, 1, likelihood=likelihood).require_covariance()
    return UpdatedNetwork(fitted, copy.deepcopy(likelihood).requires_grad_(False), x, y)


def check_new_data(
    network: Network, likelihood: Likelihood, x: object, y: object
) -> tuple[Float[Tensor, "n *in"], Tensor]:
    """Return new inputs and targets. Raise an error if they are not valid for an update of the network."""
    x, y = check_data(network, likelihood, x, y)
    check_rows(x, y)
    # the noise must have a variance
    noise_variance(likelihood, torch.zeros(1, 1, *network.output_shape, dtype=network.dtype, device=network.device))
    return x.detach(), y.detach()
