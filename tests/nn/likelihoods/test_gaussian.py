import math

import pytest
import torch
from torch.distributions import Normal

import inducing

OUTPUTS = torch.randn(5, 7, 3)
Y = torch.randn(7, 3)


@pytest.mark.parametrize("variance", [0.3, [0.1, 0.5, 2.0]])
@pytest.mark.parametrize("learn", [True, False])
def test_gaussian_is_that_of_torch_distributions(variance, learn):
    likelihood = inducing.Gaussian(variance, learn_variance=learn)
    normal = Normal(OUTPUTS, torch.tensor(variance).sqrt())
    torch.testing.assert_close(likelihood.log_prob(OUTPUTS, Y), normal.log_prob(Y).sum(-1))
    torch.testing.assert_close(likelihood.mean(OUTPUTS), normal.mean)
    torch.testing.assert_close(likelihood.variance(OUTPUTS), normal.variance)
    torch.testing.assert_close(likelihood.log_cdf(OUTPUTS, Y).exp(), normal.cdf(Y))
    torch.testing.assert_close(likelihood.log_survival(OUTPUTS, Y).exp(), 1 - normal.cdf(Y))
    torch.testing.assert_close(likelihood.icdf(OUTPUTS, 0.9), normal.icdf(torch.tensor(0.9)))
    assert len(list(likelihood.parameters())) == learn


def test_gaussian_does_not_broadcast():
    with pytest.raises(ValueError, match=r"y must have shape \(7, 3\) like the outputs, got \(7, 1\)"):
        inducing.Gaussian().log_prob(OUTPUTS, Y[:, :1])


def test_gaussian_samples():
    likelihood = inducing.Gaussian(0.25)
    sample = likelihood.sample(torch.zeros(100, 400, 1), torch.Generator().manual_seed(0))
    assert abs(sample.mean() / (0.5 / 200)) < 4
    assert abs((sample.var() / 0.25 - 1) / (2 / 40_000) ** 0.5) < 4


def test_gaussian_initial_noise_is_the_papers():
    likelihood = inducing.Gaussian()
    assert likelihood.noise_variance.item() == pytest.approx(math.exp(-3))
    assert likelihood.scaled_log_variance.item() == pytest.approx(-0.3)


def test_gaussian_noise_is_learned():
    likelihood = inducing.Gaussian([1.0, 1.0, 1.0])
    likelihood.log_prob(OUTPUTS, Y).sum().backward()
    assert likelihood.scaled_log_variance.grad.shape == (3,)


@pytest.mark.parametrize("variance", [0.0, -1.0, float("nan"), float("inf"), [1.0, 0.0], [[1.0]]])
def test_gaussian_refuses_impossible_variances(variance):
    with pytest.raises(ValueError, match="variance must be a positive number"):
        inducing.Gaussian(variance)


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (torch.zeros(7), ValueError, r"y must have shape \(B, 1\), got \(7,\); use y\[:, None\]"),
        (torch.zeros(7, 2), ValueError, r"y must have shape \(B, 1\), got \(7, 2\)"),
        (torch.zeros(7, 1).long(), TypeError, r"y\.float\(\), or Categorical\(\) for labels"),
        (torch.full((7, 1), float("inf")), ValueError, "y contains NaN or inf in 7 of 7 rows"),
        ([0.0], TypeError, "y must be a torch.Tensor, got list"),
    ],
)
def test_gaussian_refuses_bad_targets(y, error, message):
    with pytest.raises(error, match=message):
        inducing.Gaussian().check_targets(y, (1,))


def test_gaussian_refuses_another_number_of_outputs():
    with pytest.raises(ValueError, match="3 noise variances but y has 2 outputs"):
        inducing.Gaussian([1.0, 1.0, 1.0]).check_targets(torch.zeros(7, 2), (2,))
