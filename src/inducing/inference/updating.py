"""New data without a new fit.

The last layer of each posterior draw is updated exactly given the layers below (`inducing.nn.last_layer`). The layers below,
the hyperparameters and the noise stay as they were fitted, and the draws keep equal weights. With one layer the result is
that of a fit to all rows.

With gradient steps, the whole network learns from the new rows, with its posterior in place of the prior (streaming
variational inference; Broderick et al., 2013).
"""

from __future__ import annotations

import copy
from typing import Any, overload

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.autocasting import without_autocasting
from inducing.checks import check_kind, check_rows, check_whole
from inducing.inference.streaming import learn_new_data
from inducing.inference.validation import check_data
from inducing.nn.draw import FunctionSamples
from inducing.nn.last_layer import MAX_INDUCING, draw_last_layer, noise_variance, sample_updated_functions
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.nn.posteriors import DEFAULT_NUM_INDUCING

NewData = tuple[Float[Tensor, "n *in"], Tensor]


class UpdatedNetwork:
    """A network given new data. `inducing.predict` takes it like a network, and `inducing.update` adds more data.

    Arguments:
        network: The fitted network.
        likelihood: Its likelihood.
        x: The new inputs.
        y: The new targets.
        num_inducing: The largest number of new rows that become inducing inputs of a last Gaussian process.
    """

    def __init__(
        self,
        network: Network,
        likelihood: Likelihood,
        x: Float[Tensor, "n *in"],
        y: Tensor,
        num_inducing: int = MAX_INDUCING,
    ) -> None:
        self.network, self.likelihood, self.x, self.y, self.num_inducing = network, likelihood, x, y, num_inducing
        self.input_shape, self.output_shape = network.input_shape, network.output_shape
        self.dtype, self.device = network.dtype, network.device

    def sample_functions(
        self, num_samples: int, seed: int = 0, likelihood: Likelihood | None = None
    ) -> FunctionSamples:
        """Sample functions as `Network.sample_functions` does. They can be run, saved and exported in the same way."""
        likelihood = self.likelihood if likelihood is None else likelihood
        rows = self.x, self.y
        with without_autocasting(self.device):
            return sample_updated_functions(self.network, likelihood, *rows, num_samples, seed, self.num_inducing)


@overload
def update(
    network: Network | UpdatedNetwork, likelihood: Likelihood, data: NewData, *, num_inducing: int | None = None
) -> UpdatedNetwork: ...


@overload
def update(
    network: Network | UpdatedNetwork, likelihood: Likelihood, data: NewData, num_steps: int, **settings: Any
) -> Network: ...


def update(
    network: Network | UpdatedNetwork,
    likelihood: Likelihood,
    data: NewData,
    num_steps: int | None = None,
    *,
    num_inducing: int | None = None,
    **settings: Any,
) -> UpdatedNetwork | Network:
    """Condition a fitted network on new data without a new fit. The network is not changed.

    Without ``num_steps`` the last layer is updated exactly given the layers below. The cost of a prediction grows linearly
    with the number of new rows. The other layers and the noise do not learn from them.

    With ``num_steps`` the whole network learns from the new rows by gradient steps. Its posterior takes the place of the
    prior, so the earlier data are not needed: what was learned from them is kept in the posterior. The steps maximise

        E_Q[log p(y_new | f)] - KL(Q | Q_old)

    Some of the new rows become inducing points, and for real targets the last layer starts with an update by these rows. The
    result is a network. Any likelihood can be used. The noise stays as it was fitted. So do the kernels and the inducing
    points of networks with Gaussian processes.

    Arguments:
        network: A fitted network, or the result of an update. For an update without steps it must end with a `Linear` or a
            `GPLayer`.
        likelihood: The likelihood of the fit. For an update without steps, noise that is not Gaussian counts as Gaussian
            with the same variance.
        data: New inputs and targets.
        num_steps: Number of gradient steps, e.g. 500. Default: none.
        num_inducing: The largest number of new rows that become inducing points. Of more rows, these are evenly spaced.
            Without ``num_steps`` this concerns a `GPLayer` at the end of the network: up to this number of new rows it is
            updated exactly, at a cost that is cubic in this number; further rows update its values at the inducing points
            (FITC approximation). Default: 200. With ``num_steps`` it concerns all layers, if those that use inducing
            points have `GlobalInducing` posteriors, there is no `InducingNorm`, and inducing images have the size of the
            data; other networks keep their inducing points. Default: 100.
        settings: Settings of the steps, as for `inducing.fit`, e.g. ``batch_size=500, progress=False``.

    Example:
        >>> import inducing, torch
        >>> x, y = torch.randn(20, 3), torch.randn(20, 1)
        >>> network, likelihood = inducing.models.mlp(3, 1, num_inducing=10), inducing.Gaussian()
        >>> updated = inducing.update(network, likelihood, (x, y))
        >>> inducing.predict(updated, likelihood, x).mean.shape
        torch.Size([20, 1])
        >>> trained = inducing.update(network, likelihood, (x, y), num_steps=5, progress=False)
        >>> isinstance(trained, inducing.Network)
        True
    """
    check_kind("likelihood", likelihood, Likelihood, "a likelihood, e.g. inducing.Gaussian()")
    given: object = data
    if not (isinstance(given, tuple) and len(given) == 2):
        kind = f"{len(given)} values" if isinstance(given, tuple) else f"a {type(given).__name__}"
        raise TypeError(f"data must be a pair of tensors (x, y), got {kind}")
    if "previous" in settings:
        raise TypeError("the network itself is the previous posterior of an update. Leave out previous")
    old = network if isinstance(network, UpdatedNetwork) else None
    fitted = network.network if isinstance(network, UpdatedNetwork) else network
    check_kind("network", fitted, Network, "a Network or the result of inducing.update")
    if settings and num_steps is None:
        raise TypeError(
            f"{', '.join(settings)}: these are settings of gradient steps. Pass num_steps, e.g. num_steps=500"
        )
    x, y = check_new_data(fitted, likelihood, *data)
    if old is not None:
        x, y = torch.cat([old.x, x]), torch.cat([old.y, y])
    if num_steps is not None:
        most = check_whole("num_inducing", DEFAULT_NUM_INDUCING if num_inducing is None else num_inducing)
        return learn_new_data(fitted, likelihood, (x, y), most, {"num_steps": num_steps, **settings})
    if num_inducing is None:
        num_inducing = MAX_INDUCING if old is None else old.num_inducing
    num_inducing = check_whole("num_inducing", num_inducing)
    check_gaussian_noise(fitted, likelihood)
    # an error that would otherwise appear in predictions
    draw_last_layer(fitted, 1, likelihood=likelihood).require_covariance()
    # later changes of the arguments have no effect
    fitted = copy.deepcopy(fitted) if old is None else fitted
    return UpdatedNetwork(fitted, copy.deepcopy(likelihood), x, y, num_inducing)


def check_new_data(network: Network, likelihood: Likelihood, x: object, y: object) -> NewData:
    """Return new inputs and targets. Raise an error if they are not valid for the network and the likelihood."""
    x, y = check_data(network, likelihood, x, y)
    check_rows(x, y)
    return x.detach().clone(), y.detach().clone()


def check_gaussian_noise(network: Network, likelihood: Likelihood) -> None:
    """Raise an error if the noise has no variance, which an update of the last layer needs."""
    noise_variance(likelihood, torch.zeros(1, 1, *network.output_shape, dtype=network.dtype, device=network.device))
