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


def test_accuracy_of_yes_and_no():
    predictive = Predictive(torch.tensor([[2.0, -1.0], [3.0, 1.0]]).expand(2, -1, -1), inducing.Bernoulli())
    for kind in (torch.bool, torch.int64, torch.float32):
        y = torch.tensor([[1, 1], [1, 1]]).to(kind)
        assert inducing.metrics.accuracy(predictive, y) == 0.75
        brier = (1 - torch.sigmoid(torch.tensor([2.0, -1.0, 3.0, 1.0]))).square().mean().item()
        assert inducing.metrics.rmse(predictive, y) == pytest.approx(brier**0.5)


@pytest.mark.parametrize("make", [inducing.Poisson, inducing.NegativeBinomial])
def test_metrics_of_counts(make):
    predictive, y = Predictive(torch.zeros(5, 2, 1), make().requires_grad_(False)), torch.tensor([[3], [0]])
    assert inducing.metrics.rmse(predictive, y) == pytest.approx(2.5**0.5)
    expected = make().log_prob(torch.zeros(1, 2, 1), y).mean().item()
    assert inducing.metrics.log_likelihood(predictive, y) == pytest.approx(expected)
    with pytest.raises(TypeError, match=f"accuracy is for classes, not for a {make.__name__} likelihood"):
        inducing.metrics.accuracy(predictive, y)


def test_metrics_of_noise_that_depends_on_the_inputs():
    predictive = Predictive(torch.zeros(5, 2, 2), inducing.HeteroscedasticGaussian(learn_variance=False)).unstandardise(
        10.0, 2.0
    )
    y = torch.tensor([[13.0], [6.0]])
    same = Predictive(torch.zeros(5, 2, 1), inducing.Gaussian(learn_variance=False)).unstandardise(10.0, 2.0)
    assert inducing.metrics.rmse(predictive, y) == pytest.approx(12.5**0.5)
    assert inducing.metrics.log_likelihood(predictive, y) == pytest.approx(inducing.metrics.log_likelihood(same, y))
