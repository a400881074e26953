"""Predictions as a module: the moments and quantiles of `Predictive`."""

import pytest
import torch

import inducing
from inducing.prediction.module import PredictionModule
from inducing.prediction.predictive import Predictive

LEVELS = [1e-4, 0.05, 0.5, 0.9, 0.999]


@pytest.mark.parametrize(
    ("likelihood", "outputs"),
    [
        (inducing.Gaussian([0.1, 0.3]), 2),
        (inducing.StudentT([0.1, 0.3], [2.5, 30.0]), 2),
        (inducing.HeteroscedasticGaussian([0.1, 0.3]), 4),
        (inducing.HeteroscedasticStudentT(0.1, [3.0, 8.0]), 4),
    ],
)
def test_quantiles_and_moments(likelihood, outputs):
    likelihood, x = likelihood.double(), 5 + 3 * torch.randn(6, 3).double()
    network = inducing.models.mlp(3, outputs, [5], inducing_points=torch.randn(4, 3).double())
    functions = network.sample_functions(5)
    mean, std = torch.full((3,), 5.0).double(), torch.full((3,), 3.0).double()
    location, scale = torch.tensor([100.0, 0.0]).double(), torch.tensor([20.0, 0.01]).double()
    module = PredictionModule((mean, std), functions, likelihood, location, scale, LEVELS)
    found = dict(zip(module.names, module(x), strict=True))
    expected = Predictive(functions((x - mean) / std), likelihood, location, scale)
    torch.testing.assert_close(found["mean"], expected.mean)
    torch.testing.assert_close(found["std"], expected.stddev)
    torch.testing.assert_close(found["quantiles"] / scale, expected.quantile(LEVELS) / scale, rtol=1e-7, atol=1e-7)
