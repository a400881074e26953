"""Wishart distributions against scipy, and samples against their known moments and the gradients of those."""

import numpy as np
import pytest
import scipy.stats
import torch

from inducing.linalg.precision import Dense
from inducing.linalg.wishart import (
    InverseWishartSample,
    inverse_wishart_kl,
    inverse_wishart_log_prob,
    sample_bartlett,
    sample_inverse_wishart,
)

SAMPLES = 20_000
# real degrees of freedom, down to just above d - 1
CASES = [(1, 0.7), (1, 5.0), (3, 2.4), (3, 4.0), (3, 7.5), (9, 10.0), (9, 30.3)]


def number(value):
    return torch.tensor([value], dtype=torch.float64)


def lower(size, samples=1):
    root = torch.randn(samples, size, size, dtype=torch.float64)
    return torch.linalg.cholesky(root @ root.mT + torch.eye(size, dtype=torch.float64))


def generator():
    return torch.Generator().manual_seed(0)


def assert_mean(samples, expected):
    """|z| < 4 for every entry."""
    error = samples.std(0) / len(samples) ** 0.5
    z = (samples.mean(0) - expected) / error.clamp_min(1e-12)
    assert z.abs().max() < 4, z


@pytest.mark.parametrize(("size", "degrees"), CASES)
def test_the_density_is_scipys(size, degrees):
    root, factors = lower(size), lower(size, 4)
    scale, matrices = (root @ root.mT)[0].numpy(), (factors @ factors.mT).numpy()
    ours = inverse_wishart_log_prob(Dense(factors @ factors.mT), root, number(degrees))
    np.testing.assert_allclose(ours, inverse_wishart_density(matrices, scale, degrees), rtol=1e-9)


@pytest.mark.parametrize(("size", "degrees"), [(1, 5.0), (3, 7.5), (9, 30.3)])
def test_the_expectation_of_a_sample_is_that_of_its_distribution(size, degrees):
    root = lower(size)
    sample = sample_inverse_wishart(root, number(degrees), SAMPLES, generator())
    mean, logdet = sample.expectation()
    scale = (root @ root.mT)[0].numpy()
    expected = np.atleast_2d(scipy.stats.invwishart(degrees, scale).mean())
    np.testing.assert_allclose(mean.dense()[0], expected, rtol=1e-10)
    assert_mean(sample.logdet(), logdet)


def inverse_wishart_density(matrices, scale, degrees):
    """log IW(L; Psi, nu) = log W(L^-1; Psi^-1, nu) - (d + 1) log |L|; scipy's invwishart wants nu >= d."""
    size = len(scale)
    if degrees >= size:
        return np.ravel([scipy.stats.invwishart(degrees, scale).logpdf(matrix) for matrix in matrices])
    wishart = scipy.stats.wishart(degrees, np.linalg.inv(scale))
    return np.ravel([wishart.logpdf(np.linalg.inv(m)) - (size + 1) * np.linalg.slogdet(m)[1] for m in matrices])


@pytest.mark.parametrize(("size", "degrees"), CASES)
def test_the_density_of_a_sample_comes_from_its_factors(size, degrees):
    root = lower(size)
    sample = sample_inverse_wishart(root, number(degrees), 5, generator())
    ours = inverse_wishart_log_prob(sample, root, number(degrees))
    # log p(L) = nu/2 logdet Psi - nu d/2 log 2 - log Gamma_d(nu/2) - (nu+d+1)/2 logdet L - |T|_F^2/2
    from_factors = (
        degrees * torch.logdet(root @ root.mT)
        - degrees * size * np.log(2)
        - 2 * torch.special.multigammaln(number(degrees / 2), size)
        - (degrees + size + 1) * sample.logdet()
        - sample.bartlett.square().sum((1, 2))
    ) / 2
    torch.testing.assert_close(ours, from_factors)


def test_float32_keeps_the_density():
    root, degrees = lower(9), number(10.0)
    sample = sample_inverse_wishart(root, degrees, 50, generator()).to(torch.float32)
    ours = inverse_wishart_log_prob(sample, root.float(), degrees.float())
    assert ours.dtype == torch.float32
    expected = inverse_wishart_log_prob(sample.to(torch.float64), root, degrees)
    torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=1e-3)


def test_moments_of_bartletts_factors():
    # E[S] = nu V, E[log |S|] = psi_d(nu/2) + d log 2 + log |V|
    root, degrees = lower(3), 4.3
    factor = root @ sample_bartlett(number(degrees), 3, SAMPLES, generator())
    scale = root @ root.mT
    assert_mean(factor @ factor.mT, degrees * scale[0])
    shapes = (degrees - torch.arange(3.0, dtype=torch.float64)) / 2
    expected = shapes.digamma().sum() + 3 * np.log(2) + torch.logdet(scale[0])
    assert_mean(torch.logdet(factor @ factor.mT), expected)
    # Var[S_ij] = nu (V_ij^2 + V_ii V_jj)
    diagonal = scale[0].diagonal()
    expected = degrees * (scale[0].square() + diagonal[:, None] * diagonal)
    assert_mean((factor @ factor.mT - degrees * scale).square(), expected)


def test_moments_of_the_inverse_wishart():
    # E[L] = Psi / (nu - d - 1), E[L^-1] = nu Psi^-1
    root, degrees = lower(3), 9.4
    sample = sample_inverse_wishart(root, number(degrees), SAMPLES, generator())
    scale = (root @ root.mT)[0]
    assert_mean(sample.dense(), scale / (degrees - 4))
    assert_mean(inverse(sample), degrees * torch.linalg.inv(scale))


def test_at_few_degrees_of_freedom_only_the_inverse_has_a_mean():
    # IW((d + 1) I, d + 1): E[L^-1] = I, while the mean of L does not exist
    root = 10**0.5 * torch.eye(9, dtype=torch.float64)[None]
    assert_mean(inverse(sample_inverse_wishart(root, number(10.0), SAMPLES, generator())), torch.eye(9))


def test_each_sample_may_have_its_own_parameters():
    degrees = torch.tensor([3.5, 20.0], dtype=torch.float64).repeat_interleave(SAMPLES // 2)
    roots = torch.cat([lower(3), lower(3)]).repeat_interleave(SAMPLES // 2, 0)
    inverses = inverse(sample_inverse_wishart(roots, degrees, SAMPLES, generator()))
    for half in (slice(None, SAMPLES // 2), slice(SAMPLES // 2, None)):
        root = roots[half][0]
        assert_mean(inverses[half], degrees[half][0] * torch.linalg.inv(root @ root.mT))


def inverse(sample: InverseWishartSample):
    return sample.solve(torch.eye(sample.size, dtype=sample.root.dtype)[None, None])[:, 0]


def test_gradients_are_those_of_the_expectation():
    """A leaf for each sample, so that their gradients have a mean and a standard error."""
    size, value = 3, 4.6
    root = lower(size)
    degrees = number(value).repeat(SAMPLES).requires_grad_()
    roots = root.repeat(SAMPLES, 1, 1).requires_grad_()
    sample = sample_inverse_wishart(roots, degrees, SAMPLES, generator())

    # E[log |L|] = log |Psi| - d log 2 - psi_d(nu/2), differentiated in nu by finite differences
    def log_determinant(nu):
        return -((nu - torch.arange(size)) / 2).digamma().sum()

    (slope,) = torch.autograd.grad(sample.logdet().sum(), degrees, retain_graph=True)
    expected = (log_determinant(number(value + 1e-4)) - log_determinant(number(value - 1e-4))) / 2e-4
    assert_mean(slope, expected)
    # E[tr(A L^-1)] = nu tr(A Psi^-1)
    matrix = lower(size)[0]
    trace = (matrix.mT * inverse(sample)).sum()
    slope, slopes = torch.autograd.grad(trace, (degrees, roots))
    leaf = root.clone().requires_grad_()
    unit = torch.trace(matrix @ torch.linalg.inv((leaf @ leaf.mT)[0]))
    assert_mean(slope, unit.detach())
    (expected,) = torch.autograd.grad(value * unit, leaf)
    assert_mean(slopes.tril(), expected[0].tril())


@pytest.mark.parametrize(("degrees", "prior_degrees"), [(5.5, 4.0), (4.0, 7.2), (40.0, 4.0)])
def test_the_closed_form_kl_is_the_mean_of_log_q_minus_log_p(degrees, prior_degrees):
    root, prior_root = lower(3), lower(3)
    sample = sample_inverse_wishart(root, number(degrees), SAMPLES, generator())
    ratio = inverse_wishart_log_prob(sample, root, number(degrees))
    ratio = ratio - inverse_wishart_log_prob(sample, prior_root, number(prior_degrees))
    closed_form = inverse_wishart_kl(root, number(degrees), prior_root, number(prior_degrees))
    assert closed_form > 0
    assert_mean(ratio, closed_form[0])


@pytest.mark.parametrize(("size", "degrees"), CASES)
def test_the_kl_of_equal_distributions_is_zero(size, degrees):
    root = lower(size)
    kl = inverse_wishart_kl(root, number(degrees), root, number(degrees))
    torch.testing.assert_close(kl, torch.zeros_like(kl), rtol=0, atol=1e-10)


def test_the_closed_form_kl_in_one_dimension_is_that_of_gammas():
    # L^-1 ~ Gamma(nu/2, Psi/2)
    gammas = [torch.distributions.Gamma(number(a), number(b)) for a, b in ((1.7, 2.1), (1.0, 0.8))]
    roots, degrees = [(2 * g.rate).sqrt()[:, None, None] for g in gammas], [2 * g.concentration for g in gammas]
    ours = inverse_wishart_kl(roots[0], degrees[0], roots[1], degrees[1])
    torch.testing.assert_close(ours, torch.distributions.kl_divergence(*gammas))


def test_a_generator_decides_the_sample():
    first, again = (sample_inverse_wishart(lower(3), number(4.0), 2, generator()).bartlett for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(first, first.tril())
