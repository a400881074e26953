"""Predictions as a module: the moments and quantiles of `Predictive`."""

import pytest
import torch

import inducing
from inducing.prediction.blended import blend
from inducing.prediction.log_scale import LogScale
from inducing.prediction.module import ModelModule, PredictionModule
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
    module = PredictionModule([ModelModule((mean, std), functions, likelihood, location, scale)], LEVELS)
    found = dict(zip(module.names, module(x), strict=True))
    expected = Predictive(functions((x - mean) / std), likelihood, location, scale)
    torch.testing.assert_close(found["mean"], expected.mean)
    torch.testing.assert_close(found["std"], expected.stddev)
    torch.testing.assert_close(found["quantiles"] / scale, expected.quantile(LEVELS) / scale, rtol=1e-7, atol=1e-7)


def draws_of(likelihood, outputs, num_draws):
    network = inducing.models.mlp(3, outputs, [5], inducing_points=torch.randn(4, 3).double())
    return network.sample_functions(num_draws), likelihood.double()


@pytest.mark.parametrize("log", [False, True])
def test_a_blend_of_models_on_scales_of_their_own(log):
    x, unit = torch.randn(6, 3).double(), (torch.zeros(3).double(), torch.ones(3).double())
    likelihoods = [inducing.Gaussian([0.1, 0.3]), inducing.HeteroscedasticGaussian([0.2, 0.1])]
    if not log:
        likelihoods[1] = inducing.HeteroscedasticStudentT(0.1, [3.0, 8.0])
    is_log = torch.tensor([True, False])
    models, predictions = [], []
    for number, likelihood in enumerate(likelihoods):
        functions, noise = draws_of(likelihood, 2 * (1 + number), 3 + number)
        location, scale = torch.tensor([1.0 + number, 0.0]).double(), torch.tensor([0.5, 2.0 - number]).double()
        scales = (LogScale(noise, location, scale, is_log), 0.0, 1.0) if log else (noise, location, scale)
        models.append(ModelModule(unit, functions, *scales))
        predictions.append(Predictive(functions(x), *scales))
    module, expected = PredictionModule(models, LEVELS), blend(predictions)
    found = dict(zip(module.names, module(x), strict=True))
    torch.testing.assert_close(found["mean"], expected.mean)
    torch.testing.assert_close(found["aleatoric_std"], expected.aleatoric.sqrt())
    torch.testing.assert_close(found["epistemic_std"], expected.epistemic.sqrt())
    torch.testing.assert_close(found["quantiles"], expected.quantile(LEVELS), rtol=1e-6, atol=1e-7)
