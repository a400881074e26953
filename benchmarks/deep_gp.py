"""GPyTorch's deep Gaussian process, as its documentation builds one: the other side of the benchmarks of DSVI."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from inducing.nn.likelihoods import FIRST_VARIANCE

try:
    import gpytorch
    from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
except ImportError as error:
    raise ImportError("the benchmarks compare with GPyTorch; pip install 'inducing[test]'") from error


class Layer(DeepGPLayer):
    """Independent processes with whitened Cholesky posteriors, and a linear mean in hidden layers.

    Arguments:
        inputs: Number of inputs.
        outputs: Number of processes; None for a last layer with a single output.
        inducing_points: Initial inducing points.
        shared: Whether the processes of a layer share one kernel and one set of inducing points. GPyTorch's documentation
            gives each process its own.
    """

    def __init__(self, inputs: int, outputs: int | None, inducing_points: Tensor, shared: bool) -> None:
        processes = torch.Size([] if outputs is None else [outputs])
        kernels = torch.Size([]) if shared else processes
        points = inducing_points.expand(*kernels, -1, -1).clone()
        distribution = gpytorch.variational.CholeskyVariationalDistribution(points.shape[-2], processes)
        strategy = gpytorch.variational.VariationalStrategy(self, points, distribution)
        # DeepGPLayer repeats its inputs output_dims times; one copy broadcasts against the posteriors of all processes
        super().__init__(strategy, inputs, 1 if shared and outputs is not None else outputs)
        self.mean_module = gpytorch.means.ZeroMean() if outputs is None else gpytorch.means.LinearMean(inputs)
        kernel = gpytorch.kernels.RBFKernel(batch_shape=kernels, ard_num_dims=inputs)
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel, batch_shape=kernels)

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior at rows."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Model(DeepGP):
    """Layers of equal width, and one output."""

    def __init__(self, inputs: int, num_layers: int, inducing_points: Tensor, shared: bool) -> None:
        super().__init__()
        hidden = [Layer(inputs, inputs, inducing_points, shared) for _ in range(num_layers - 1)]
        self.layers = torch.nn.ModuleList([*hidden, Layer(inputs, None, inducing_points, shared)])

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """Send rows through the layers."""
        for layer in self.layers:
            x = layer(x)
        return x


def training_step(
    x: Tensor, y: Tensor, num_layers: int, num_inducing: int, num_samples: int, shared: bool
) -> Callable[[], None]:
    """One step of doubly stochastic variational inference, as a function to call."""
    model = Model(x.shape[1], num_layers, x[:num_inducing], shared)
    model, likelihood = model.to(x.dtype), gpytorch.likelihoods.GaussianLikelihood().to(x.dtype)
    likelihood.noise = FIRST_VARIANCE
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, len(x))
    elbo = gpytorch.mlls.DeepApproximateMLL(objective)
    parameters = [*model.parameters(), *likelihood.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        with gpytorch.settings.num_likelihood_samples(num_samples):
            loss = -elbo(model(x), y[:, 0])
        loss.backward()
        optimizer.step()

    return step
