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
    """Independent processes with their own kernels, whitened Cholesky posteriors, and a linear mean in hidden layers."""

    def __init__(self, inputs: int, outputs: int | None, inducing_points: Tensor) -> None:
        batch = torch.Size([] if outputs is None else [outputs])
        points = inducing_points.expand(*batch, -1, -1).clone()
        distribution = gpytorch.variational.CholeskyVariationalDistribution(points.shape[-2], batch)
        strategy = gpytorch.variational.VariationalStrategy(self, points, distribution)
        super().__init__(strategy, inputs, outputs)
        self.mean_module = gpytorch.means.ZeroMean() if outputs is None else gpytorch.means.LinearMean(inputs)
        kernel = gpytorch.kernels.RBFKernel(batch_shape=batch, ard_num_dims=inputs)
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel, batch_shape=batch)

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior at rows."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Model(DeepGP):
    """Layers of equal width, and one output."""

    def __init__(self, inputs: int, num_layers: int, inducing_points: Tensor) -> None:
        super().__init__()
        hidden = [Layer(inputs, inputs, inducing_points) for _ in range(num_layers - 1)]
        self.layers = torch.nn.ModuleList([*hidden, Layer(inputs, None, inducing_points)])

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """Send rows through the layers."""
        for layer in self.layers:
            x = layer(x)
        return x


def training_step(x: Tensor, y: Tensor, num_layers: int, num_inducing: int, num_samples: int) -> Callable[[], None]:
    """One step of doubly stochastic variational inference, as a function to call."""
    model = Model(x.shape[1], num_layers, x[:num_inducing])
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = FIRST_VARIANCE
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, len(x))
    elbo = gpytorch.mlls.DeepApproximateMLL(objective)
    parameters = [*model.parameters(), *likelihood.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        with gpytorch.settings.num_likelihood_samples(num_samples):
            loss = -elbo(model(x), y[:, 0])
        loss.backward()
        optimizer.step()

    return step
