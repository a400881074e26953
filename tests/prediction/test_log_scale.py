"""Predictions of targets that were modelled on a log scale, against scipy.stats.lognorm and closed forms."""

import numpy as np
import pytest
import torch
from scipy import integrate, stats

import inducing
from inducing.prediction import metrics
from inducing.prediction.log_scale import LogScale
from inducing.prediction.predictive import Predictive

GENERATOR = torch.Generator().manual_seed(0)
OUTPUTS = torch.randn(30, 5, 2, generator=GENERATOR).double()
LOCATION, SCALE = torch.tensor([1.0, -2.0]).double(), torch.tensor([0.5, 3.0]).double()
VARIANCE = 0.3
# the second target is on its own scale
IS_LOG = torch.tensor([True, False])


def predictive(outputs=OUTPUTS, is_log=IS_LOG):
    noise = inducing.Gaussian(VARIANCE, learn_variance=False).double()
    return Predictive(outputs, LogScale(noise, LOCATION, SCALE, is_log))


def lognormals(outputs=OUTPUTS):
    """The first target under each draw."""
    return stats.lognorm(s=0.5 * np.sqrt(VARIANCE), scale=np.exp(1 + 0.5 * outputs[..., 0].numpy()))


def test_a_single_component_is_log_normal():
    one = predictive(OUTPUTS[:1], torch.tensor([True, True]))
    expected = lognormals(OUTPUTS[:1])
    np.testing.assert_allclose(one.mean[:, 0], expected.mean()[0], rtol=1e-6)
    np.testing.assert_allclose(one.stddev[:, 0], expected.std()[0], rtol=1e-6)
    for q in (1e-9, 0.05, 0.5, 0.99):
        np.testing.assert_allclose(one.quantile(q)[:, 0], expected.ppf(q)[0], rtol=1e-6)
    other = stats.lognorm(s=3 * np.sqrt(VARIANCE), scale=np.exp(-2 + 3 * OUTPUTS[0, :, 1].numpy()))
    y = torch.rand(5, 2, generator=GENERATOR).double() + 0.1
    density = expected.logpdf(y[:, 0])[0] + other.logpdf(y[:, 1])
    np.testing.assert_allclose(one.log_prob(y), density, rtol=1e-6)


def test_the_moments_are_those_of_the_mixture():
    found, components = predictive(), lognormals()
    np.testing.assert_allclose(found.mean[:, 0], components.mean().mean(0), rtol=1e-6)
    np.testing.assert_allclose(found.function_means[..., 0], components.mean(), rtol=1e-6)
    np.testing.assert_allclose(found.aleatoric[:, 0], components.var().mean(0), rtol=1e-6)
    np.testing.assert_allclose(found.epistemic[:, 0], components.mean().var(0), rtol=1e-6)


def test_a_target_that_is_not_on_a_log_scale_is_as_without():
    plain = Predictive(OUTPUTS[..., 1:], inducing.Gaussian(VARIANCE).double(), LOCATION[1:], SCALE[1:])
    found = predictive()
    for statistic in ("mean", "variance"):
        torch.testing.assert_close(getattr(found, statistic)[:, 1:], getattr(plain, statistic))
    torch.testing.assert_close(found.quantile([0.1, 0.9])[..., 1:], plain.quantile([0.1, 0.9]))


def test_the_density_integrates_to_one_and_gives_the_quantiles():
    outputs = OUTPUTS[:, :1]
    one = Predictive(
        outputs[..., :1], LogScale(inducing.Gaussian(VARIANCE).double(), LOCATION[:1], SCALE[:1], IS_LOG[:1])
    )

    def density(y):
        return one.log_prob(torch.tensor([[y]]).double()).exp().item()

    assert integrate.quad(density, 0, 60, limit=200)[0] == pytest.approx(1, abs=1e-6)
    for q in (0.05, 0.5, 0.9):
        assert integrate.quad(density, 0, one.quantile(q).item(), limit=200)[0] == pytest.approx(q, abs=1e-6)
    first = integrate.quad(lambda y: y * density(y), 0, 200, limit=400)[0]
    assert first == pytest.approx(one.mean.item(), rel=1e-5)


def test_samples_have_these_quantiles():
    found = predictive(OUTPUTS[:, :1].expand(-1, 20_000, -1))
    levels = torch.tensor([0.1, 0.5, 0.9]).double()
    expected = predictive(OUTPUTS[:, :1]).quantile(levels)[:, 0, 0]
    torch.testing.assert_close(found.samples[..., 0].reshape(-1).quantile(levels), expected, rtol=0.02, atol=0)


def test_targets_that_are_not_positive_have_density_zero():
    y = torch.ones(5, 2).double()
    y[1, 0], y[2, 0], y[3, 1] = 0.0, -1.0, -1.0
    assert torch.isinf(predictive().log_prob(y)).tolist() == [False, True, True, False, False]


def test_scores():
    y = torch.ones(5, 2).double()
    for score in (metrics.rmse, metrics.crps, metrics.coverage, metrics.log_likelihood):
        assert np.isfinite(score(predictive(), y))


def test_heavy_tails_have_no_mean():
    with pytest.raises(ValueError, match="not StudentT"):
        LogScale(inducing.StudentT(), LOCATION, SCALE, IS_LOG)
