"""Predictions of several models in one, against the mixture written out."""

from dataclasses import replace

import pytest
import torch
from scipy import stats

from inducing import Categorical, Gaussian, HeteroscedasticGaussian, StudentT
from inducing.prediction.blended import blend
from inducing.prediction.predictive import Predictive

GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=GENERATOR)


def numbers():
    """Three models of five rows and two targets, with their own likelihoods, scales and numbers of draws."""
    scales = [(torch.tensor([1.0, -2.0]).double(), torch.tensor([2.0, 0.5]).double()), (0.5, 3.0), (0.0, 1.0)]
    likelihoods = [Gaussian(2), HeteroscedasticGaussian(2), StudentT(2)]
    widths, draws = (2, 4, 2), (3, 1, 4)
    return [
        Predictive(normal(count, 5, width), likelihood.double(), *scale)
        for likelihood, width, count, scale in zip(likelihoods, widths, draws, scales, strict=True)
    ]


def weighted(parts, statistic):
    """The mean over draws: each model with its share."""
    return sum(len(part.outputs) * statistic(part) for part in parts) / sum(len(part.outputs) for part in parts)


def probability(predictive, y, tail="log_cdf"):
    """The probability of smaller, or of larger targets."""
    z = (y - predictive.location) / predictive.scale
    return getattr(predictive.likelihood, tail)(predictive.outputs, z).exp().mean(0)


def test_densities_and_moments_are_those_of_the_mixture():
    parts = numbers()
    blended, y = blend(parts), 2 * normal(5, 2)
    torch.testing.assert_close(blended.log_prob(y).exp(), weighted(parts, lambda part: part.log_prob(y).exp()))
    for tail in ("log_cdf", "log_survival"):
        expected = weighted(parts, lambda part, tail=tail: probability(part, y, tail))
        torch.testing.assert_close(probability(blended, y, tail), expected)
    torch.testing.assert_close(blended.mean, weighted(parts, lambda part: part.mean))
    second = weighted(parts, lambda part: part.variance + part.mean**2)
    torch.testing.assert_close(blended.variance, second - blended.mean**2)
    torch.testing.assert_close(blended.aleatoric, weighted(parts, lambda part: part.aleatoric))
    assert torch.equal(blended.function_means, torch.cat([part.function_means for part in parts]))


def test_some_draws_keep_their_models():
    parts, y = numbers(), 2 * normal(5, 2)
    draws = [replace(part, outputs=part.outputs[[place]]) for part in parts for place in range(len(part.outputs))]
    chosen = [7, 0, 3, 7, 1]
    some = blend(parts).take_draws(torch.tensor(chosen))
    torch.testing.assert_close(some.function_means, torch.cat([draws[place].function_means for place in chosen]))
    expected = sum(draws[place].log_prob(y).exp() for place in chosen) / len(chosen)
    torch.testing.assert_close(some.log_prob(y).exp(), expected)
    only_last = blend(parts).take_draws(torch.tensor([6, 5]))
    torch.testing.assert_close(only_last.mean, parts[2].take_draws(torch.tensor([2, 1])).mean)


def test_quantiles_invert_the_distribution_function():
    blended = blend(numbers())
    levels = [0.01, 0.3, 0.5, 0.99]
    for level, quantile in zip(levels, blended.quantile(levels), strict=True):
        torch.testing.assert_close(
            probability(blended, quantile), torch.full((5, 2), level).double(), atol=1e-6, rtol=0
        )


def test_missing_targets_are_left_out():
    parts = numbers()
    y = normal(5, 2)
    y[1, 0] = y[3, 1] = torch.nan
    expected = weighted(parts, lambda part: part.log_prob(y).exp())
    assert expected.isfinite().all()
    torch.testing.assert_close(blend(parts).log_prob(y).exp(), expected)


def test_samples_have_the_distribution():
    """The ranks of samples of one row in the distribution function are uniform."""
    parts = [
        Predictive(each.outputs.repeat_interleave(100, 0), each.likelihood, each.location, each.scale)
        for each in numbers()
    ]
    blended = blend(parts)
    samples = blended.samples
    ranks = torch.stack([probability(blended, sample) for sample in samples[::3]])
    assert stats.kstest(ranks[:, 0, 0].detach().numpy(), "uniform").pvalue > 1e-3
    assert torch.equal(blended.samples, samples), "the same seed"


def test_classes_share_a_likelihood():
    parts = [Predictive(normal(count, 5, 3), Categorical()) for count in (2, 6)]
    labels = torch.tensor([0, 1, 2, 1, 0])
    blended = blend(parts)
    torch.testing.assert_close(blended.mean, 0.25 * parts[0].mean + 0.75 * parts[1].mean)
    torch.testing.assert_close(
        blended.log_prob(labels).exp(), weighted(parts, lambda part: part.log_prob(labels).exp())
    )


def test_one_model_is_itself_and_wrong_targets_are_refused():
    parts = numbers()
    assert blend(parts[:1]) is parts[0]
    with pytest.raises(ValueError, match="y"):
        blend(parts).log_prob(normal(5, 3))
