import math

import pytest
import torch
from torch.distributions import Normal

import inducing
from inducing.nn.likelihoods.heteroscedastic import outputs_of

GENERATOR = torch.Generator().manual_seed(0)
OUTPUTS = torch.randn(5, 7, 4, generator=GENERATOR).double()
Y = torch.randn(7, 2, generator=GENERATOR).double()


def ratio(g):
    """The positive root of r - 1/r = g."""
    return g / 2 + (1 + (g / 2).square()).sqrt()


def test_it_is_a_gaussian_with_its_own_variance():
    likelihood = inducing.HeteroscedasticGaussian([0.1, 0.5]).double()
    std = likelihood.base_variance.sqrt() * ratio(OUTPUTS[..., 2:])
    normal = Normal(OUTPUTS[..., :2], std)
    torch.testing.assert_close(likelihood.log_prob(OUTPUTS, Y), normal.log_prob(Y).sum(-1))
    torch.testing.assert_close(likelihood.mean(OUTPUTS), normal.mean)
    torch.testing.assert_close(likelihood.variance(OUTPUTS), normal.variance)
    torch.testing.assert_close(likelihood.log_cdf(OUTPUTS, Y).exp(), normal.cdf(Y))
    torch.testing.assert_close(likelihood.log_survival(OUTPUTS, Y).exp(), 1 - normal.cdf(Y))
    torch.testing.assert_close(likelihood.icdf(OUTPUTS, 0.9), normal.icdf(torch.tensor(0.9, dtype=torch.float64)))


def test_the_noise_grows_exponentially_and_then_linearly():
    likelihood, g = inducing.HeteroscedasticGaussian(1.0).double(), torch.tensor([-1e6, -0.01, 0.0, 0.01, 1e6]).double()
    torch.testing.assert_close(likelihood.log_noise_variance(g)[1:4], g[1:4], rtol=1e-4, atol=0.0)
    std = (likelihood.log_noise_variance(g) / 2).exp()
    torch.testing.assert_close(std[-1], g[-1])
    torch.testing.assert_close(std[0], -1 / g[0])
    mean, variance = torch.randn(4, 2).double(), torch.tensor([1e-12, 1e-3, 1.0, 1e6]).double()[:, None].expand(4, 2)
    outputs = outputs_of(mean, variance)[None]
    torch.testing.assert_close(likelihood.variance(outputs)[0], variance)
    torch.testing.assert_close(likelihood.mean(outputs)[0], mean)


def test_it_starts_as_the_gaussian_does():
    zeros, y = torch.zeros(5, 7, 2), torch.randn(7, 1)
    likelihood = inducing.HeteroscedasticGaussian()
    assert likelihood.base_variance.item() == pytest.approx(math.exp(-3))
    torch.testing.assert_close(likelihood.log_prob(zeros, y), inducing.Gaussian().log_prob(zeros[..., :1], y))


@pytest.mark.parametrize(
    ("y", "shape", "error", "message"),
    [
        (
            torch.zeros(7, 2),
            (2,),
            ValueError,
            r"\(B, 1\), .*got \(7, 2\)",
        ),
        (torch.zeros(7), (2,), ValueError, r"got \(7,\); use y\[:, None\]"),
        (
            torch.zeros(7, 1),
            (1,),
            ValueError,
            r"two outputs for each target.*of shape \(1,\)",
        ),
        (torch.zeros(7, 1), (), ValueError, "two outputs for each target"),
        (torch.zeros(7, 1).long(), (2,), TypeError, "y must be floating point"),
        (torch.zeros(7, 3), (6,), ValueError, "2 noise variances but y has 3 outputs"),
    ],
)
def test_bad_targets_are_refused(y, shape, error, message):
    variance = [0.1, 0.1] if shape == (6,) else 0.1
    with pytest.raises(error, match=message):
        inducing.HeteroscedasticGaussian(variance).check_targets(y, shape)


def test_bad_variances_are_refused():
    with pytest.raises(ValueError, match="variance must be a positive number"):
        inducing.HeteroscedasticGaussian(0.0)
    with pytest.raises(ValueError, match=r"variance must be between"):
        inducing.HeteroscedasticGaussian(1e-12)


def test_nothing_broadcasts():
    with pytest.raises(ValueError, match=r"y must have shape \(7, 2\) like the outputs, got \(7, 1\)"):
        inducing.HeteroscedasticGaussian().log_prob(OUTPUTS, Y[:, :1])
