"""Likelihoods of counts against scipy.stats."""

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import gammaln

import inducing

OUTPUTS = torch.linspace(-3, 8, 24).reshape(4, 3, 2).double()
COUNTS = torch.tensor([[0, 1], [5, 40], [3, 2000]])
CONCENTRATIONS = [0.3, 7.0]


def negative_binomial(concentration=CONCENTRATIONS):
    return inducing.NegativeBinomial(concentration).double()


def scipy_poisson(outputs=OUTPUTS):
    return stats.poisson(outputs.exp().numpy())


def scipy_negative_binomial(outputs=OUTPUTS):
    r = negative_binomial().concentration.detach().numpy()
    return stats.nbinom(r, r / (r + outputs.exp().numpy()))


LAWS = [
    pytest.param(inducing.Poisson(), scipy_poisson, id="Poisson"),
    pytest.param(negative_binomial(), scipy_negative_binomial, id="NegativeBinomial"),
]


@pytest.mark.parametrize(("likelihood", "law"), LAWS)
def test_densities_and_moments(likelihood, law):
    expected = law()
    actual = likelihood.log_prob(OUTPUTS, COUNTS).detach().numpy()
    np.testing.assert_allclose(actual, expected.logpmf(COUNTS.numpy()).sum(-1), rtol=1e-10)
    np.testing.assert_allclose(likelihood.mean(OUTPUTS).detach().numpy(), expected.mean(), rtol=1e-12)
    np.testing.assert_allclose(likelihood.variance(OUTPUTS).detach().numpy(), expected.var(), rtol=1e-12)


@pytest.mark.parametrize(("likelihood", "law"), LAWS)
@pytest.mark.parametrize("shift", [-1.0, -0.3, 0.0, 0.5])
def test_distribution_functions_are_steps(likelihood, law, shift):
    y = COUNTS.double() + shift
    np.testing.assert_allclose(
        likelihood.log_cdf(OUTPUTS, y).exp().numpy(), law().cdf(y.numpy()), rtol=1e-8, atol=1e-300
    )
    np.testing.assert_allclose(
        likelihood.log_survival(OUTPUTS, y).exp().numpy(), law().sf(y.numpy()), rtol=1e-8, atol=1e-300
    )


@pytest.mark.parametrize(("likelihood", "law"), LAWS)
@pytest.mark.parametrize("level", [1e-6, 0.05, 0.5, 0.9, 0.999999])
def test_quantiles(likelihood, law, level):
    np.testing.assert_array_equal(likelihood.icdf(OUTPUTS, level).numpy(), law().ppf(level))


@pytest.mark.parametrize("concentration", [1e-6, 0.02, 1.0, 15.5, 1e4, 3e8])
@pytest.mark.parametrize("y", [0, 1, 17, 500, 100_000])
def test_float32_keeps_its_digits(concentration, y):
    """Large terms cancel: in the textbook's form 0.1 to 10 nats would be lost."""
    counts = torch.full((1, 1), y)
    near = [np.log(max(y, 1)) + offset for offset in (-8.0, -1.1, -0.9, -0.01, 0.0, 0.02, 1.0, 4.0)]
    outputs = torch.tensor(near)[:, None, None]
    for make in (inducing.Poisson, lambda: inducing.NegativeBinomial(concentration)):
        likelihood = make()
        single = likelihood.log_prob(outputs, counts)
        double = likelihood.double().log_prob(outputs.double(), counts)
        torch.testing.assert_close(single.double(), double, rtol=2e-6, atol=2e-5)


def test_the_moderate_concentrations_in_float64():
    for concentration in (1e-6, 0.02, 15.5, 16.5, 1e4):
        likelihood = negative_binomial(concentration)
        r = likelihood.concentration.item()
        for y in (0, 1, 17, 500):
            outputs = torch.linspace(-10, 12, 23).double()[:, None, None]
            actual = likelihood.log_prob(outputs, torch.full((1, 1), y)).detach()[:, 0].numpy()
            mean = outputs[:, 0, 0].exp().numpy()
            log_p = -np.logaddexp(0, np.log(r) - np.log(mean)), -np.logaddexp(0, np.log(mean) - np.log(r))
            expected = gammaln(y + r) - gammaln(r) - gammaln(y + 1) + y * log_p[0] + r * log_p[1]
            np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


def test_a_large_concentration_gives_back_poisson():
    likelihood = negative_binomial(4e8)
    torch.testing.assert_close(
        likelihood.log_prob(OUTPUTS, COUNTS), inducing.Poisson().log_prob(OUTPUTS, COUNTS), rtol=1e-3, atol=1e-3
    )
    torch.testing.assert_close(
        likelihood.log_cdf(OUTPUTS[:3], COUNTS).exp(),
        inducing.Poisson().log_cdf(OUTPUTS[:3], COUNTS).exp(),
        rtol=1e-4,
        atol=1e-6,
    )


def test_gradients_reduce_outputs_that_are_far_too_large():
    """Where exp(f) overflows, the gradient is finite and has the right sign."""
    outputs = torch.tensor([30.0, 100.0, 1e6])[:, None, None].requires_grad_()
    for likelihood in (inducing.Poisson(), inducing.NegativeBinomial()):
        (gradient,) = torch.autograd.grad(likelihood.log_prob(outputs, torch.ones(1, 1)).sum(), outputs)
        assert torch.isfinite(gradient).all()
        assert (gradient < 0).all()


@pytest.mark.parametrize("make", [inducing.Poisson, inducing.NegativeBinomial])
@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (
            torch.tensor([[0.0], [1.5]]),
            ValueError,
            r"y must be counts \(0, 1, 2, \.\.\.\), but row 1 has 1.5; use Gaussian\(\) or Stud",
        ),
        (torch.tensor([[3], [-1]]), ValueError, "row 1 has -1"),
        (torch.tensor([3, 1]), ValueError, r"y must have shape \(B, 1\), got \(2,\); use y\[:, None\]"),
        (torch.tensor([[float("inf")]]), ValueError, "y contains NaN or inf"),
        ([[1]], TypeError, "y must be a torch.Tensor, got list"),
    ],
)
def test_bad_counts_are_refused(make, y, error, message):
    with pytest.raises(error, match=message):
        make().check_targets(y, (1,))


def test_bad_concentrations_are_refused():
    with pytest.raises(ValueError, match="concentration must be a positive number, or one for each output, got 0"):
        inducing.NegativeBinomial(0)
    with pytest.raises(ValueError, match=r"concentration must be between"):
        inducing.NegativeBinomial(1e10)
    with pytest.raises(ValueError, match="2 concentrations but y has 1 outputs"):
        negative_binomial().check_targets(COUNTS[:, :1], (1,))
