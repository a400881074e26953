"""GPyTorch's side with shared kernels computes what GPyTorch computes with equal kernels and inducing points."""

import pytest
import torch

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of GPyTorch


def test_a_shared_kernel_gives_the_values_of_equal_kernels():
    from benchmarks.deep_gp import Layer

    x = torch.randn(20, 3, dtype=torch.float64)
    samples = torch.randn(2, 20, 3, dtype=torch.float64)
    layers = [Layer(3, 4, x[:5], shared=shared).double() for shared in (True, False)]
    mean, root = torch.randn(4, 5, dtype=torch.float64), torch.randn(4, 5, 5, dtype=torch.float64)
    for layer in layers:
        # the first call initialises the posterior
        layer(x)
        with torch.no_grad():
            posterior = layer.variational_strategy._variational_distribution
            posterior.variational_mean.copy_(mean)
            posterior.chol_variational_covar.copy_(root)
            layer.mean_module.weights.fill_(0.3)
            layer.mean_module.bias.fill_(0.1)
    shared, own = (layer(samples, are_samples=True) for layer in layers)
    assert shared.mean.shape == (2, 20, 4)
    torch.testing.assert_close(shared.mean, own.mean)
    torch.testing.assert_close(shared.variance, own.variance)
    # one kernel and one set of inducing points
    assert layers[0].variational_strategy.inducing_points.shape == (5, 3)
    assert layers[0].covar_module.raw_outputscale.numel() == 1
