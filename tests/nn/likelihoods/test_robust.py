"""Student t likelihoods against scipy.stats."""

import numpy as np
import pytest
import torch
from scipy import stats

import inducing

OUTPUTS = torch.linspace(-3, 3, 24).reshape(4, 3, 2).double()
Y = torch.tensor([[0.0, 1.0], [-2.0, 30.0], [0.5, -400.0]]).double()


def student_t(degrees_of_freedom=(3.0, 50.0)):
    return inducing.StudentT([0.5, 2.0], degrees_of_freedom).double()


def scipy_t(likelihood):
    freedom, scale = likelihood.degrees_of_freedom.detach().numpy(), likelihood.scale.detach().numpy()
    return stats.t(freedom, OUTPUTS.numpy(), scale)


def test_densities_and_moments():
    likelihood = student_t()
    expected = scipy_t(likelihood)
    np.testing.assert_allclose(
        likelihood.log_prob(OUTPUTS, Y).detach().numpy(), expected.logpdf(Y.numpy()).sum(-1), rtol=1e-10
    )
    np.testing.assert_allclose(likelihood.mean(OUTPUTS).numpy(), expected.mean())
    np.testing.assert_allclose(likelihood.variance(OUTPUTS).detach().numpy(), expected.var(), rtol=1e-6)


def test_distribution_functions():
    likelihood = student_t()
    expected = scipy_t(likelihood)
    np.testing.assert_allclose(likelihood.log_cdf(OUTPUTS, Y).detach().exp().numpy(), expected.cdf(Y), rtol=1e-10)
    np.testing.assert_allclose(likelihood.log_survival(OUTPUTS, Y).detach().exp().numpy(), expected.sf(Y), rtol=1e-10)


@pytest.mark.parametrize("level", [1e-12, 0.05, 0.5, 0.9, 0.999999])
def test_quantiles(level):
    likelihood = student_t()
    np.testing.assert_allclose(
        likelihood.icdf(OUTPUTS, level).detach().numpy(), scipy_t(likelihood).ppf(level), rtol=1e-8
    )


def test_a_scale_that_depends_on_the_inputs():
    """The same, of each row's own scale."""
    outputs, y = torch.cat([OUTPUTS, OUTPUTS.flip(0) / 2], -1), Y
    likelihood = inducing.HeteroscedasticStudentT([0.5, 2.0], [3.0, 50.0]).double()
    scale = (likelihood.log_noise_variance(outputs[..., 2:]) / 2).exp().detach().numpy()
    expected = stats.t(likelihood.degrees_of_freedom.detach().numpy(), OUTPUTS.numpy(), scale)
    for found, wanted in (
        (likelihood.log_prob(outputs, y), expected.logpdf(y.numpy()).sum(-1)),
        (likelihood.mean(outputs), expected.mean()),
        (likelihood.variance(outputs), expected.var()),
        (likelihood.log_cdf(outputs, y).exp(), expected.cdf(y)),
        (likelihood.log_survival(outputs, y).exp(), expected.sf(y)),
        (likelihood.icdf(outputs, 0.05), expected.ppf(0.05)),
        (likelihood.icdf(outputs, 0.999), expected.ppf(0.999)),
    ):
        np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-6)


def test_many_degrees_of_freedom_give_back_the_gaussian():
    """In float32 too, where the textbook's Gamma functions would lose several nats."""
    y = torch.linspace(-2, 2, 6).reshape(3, 2)
    gaussian = inducing.Gaussian([0.25, 4.0]).log_prob(OUTPUTS.float(), y)
    likelihood = inducing.StudentT([0.5, 2.0], 1e8)
    torch.testing.assert_close(likelihood.log_prob(OUTPUTS.float(), y), gaussian, rtol=1e-5, atol=1e-5)


def test_the_variance_always_exists():
    """However training moves the parameter, the degrees of freedom stay above 2."""
    likelihood = inducing.StudentT()
    with torch.no_grad():
        for value in (-1e4, -3.0, 3.0, 1e4):
            likelihood.scaled_log_excess.fill_(value)
            assert likelihood.degrees_of_freedom >= 2
            assert torch.isfinite(likelihood.variance(torch.zeros(1, 1, 1))).all()
            assert torch.isfinite(likelihood.log_prob(torch.zeros(1, 1, 1), torch.ones(1, 1))).all()


@pytest.mark.parametrize("learn_scale", [True, False])
@pytest.mark.parametrize("learn_degrees_of_freedom", [True, False])
def test_what_is_learned(learn_scale, learn_degrees_of_freedom):
    likelihood = inducing.StudentT(learn_scale=learn_scale, learn_degrees_of_freedom=learn_degrees_of_freedom)
    learned = {name for name, _ in likelihood.named_parameters()}
    assert ("scaled_log_scale" in learned, "scaled_log_excess" in learned) == (learn_scale, learn_degrees_of_freedom)
    assert f"learn_scale={learn_scale}, learn_degrees_of_freedom={learn_degrees_of_freedom}" in repr(likelihood)


def test_bad_arguments_and_targets_are_refused():
    with pytest.raises(ValueError, match="degrees_of_freedom must be a number above 2, or one for each output, got 2"):
        inducing.StudentT(degrees_of_freedom=2.0)
    with pytest.raises(ValueError, match="scale must be a positive number"):
        inducing.StudentT(-1.0)
    with pytest.raises(ValueError, match="2 scales but y has 1 outputs"):
        student_t().check_targets(Y[:, :1], (1,))
    with pytest.raises(ValueError, match="2 degrees of freedom but y has 3 outputs"):
        inducing.StudentT(1.0, [3.0, 4.0]).check_targets(torch.zeros(7, 3), (3,))
    with pytest.raises(TypeError, match="y must be floating point"):
        student_t().check_targets(Y.long(), (2,))
