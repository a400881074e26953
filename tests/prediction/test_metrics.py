import pytest
import torch

import inducing
from inducing.prediction.predictive import Predictive


def test_rmse_is_on_the_original_scale():
    predictive = Predictive(torch.zeros(5, 2, 1), inducing.Gaussian()).unstandardise(10.0, 2.0)
    assert inducing.metrics.rmse(predictive, torch.tensor([[13.0], [6.0]])) == pytest.approx(12.5**0.5)


def test_rmse_does_not_broadcast():
    predictive = Predictive(torch.zeros(5, 2, 1), inducing.Gaussian())
    with pytest.raises(ValueError, match="y must have shape"):
        inducing.metrics.rmse(predictive, torch.zeros(2))


def test_log_likelihood_is_the_mean_over_rows():
    predictive = Predictive(torch.randn(5, 4, 2), inducing.Gaussian(learn_variance=False))
    y = torch.randn(4, 2)
    assert inducing.metrics.log_likelihood(predictive, y) == pytest.approx(predictive.log_prob(y).mean().item())


def test_metrics_are_for_their_likelihoods():
    classes = Predictive(torch.zeros(2, 3, 4), inducing.Categorical())
    numbers = Predictive(torch.zeros(2, 3, 1), inducing.Gaussian())
    with pytest.raises(TypeError, match="use accuracy"):
        inducing.metrics.rmse(classes, torch.zeros(3).long())
    with pytest.raises(TypeError, match="use rmse"):
        inducing.metrics.accuracy(numbers, torch.zeros(3, 1))


def test_accuracy():
    predictive = Predictive(torch.eye(3)[None].expand(2, -1, -1), inducing.Categorical())
    assert inducing.metrics.accuracy(predictive, torch.tensor([0, 1, 1])) == pytest.approx(2 / 3)
