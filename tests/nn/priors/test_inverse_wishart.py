"""Priors with learned covariances over pixels, over channels and over both, against dense algebra, scipy and torch."""

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch
from torch.distributions import Gamma, kl_divergence

import inducing
from inducing.linalg.precision import Kronecker
from inducing.linalg.pseudo_likelihood import PseudoOutputs
from inducing.linalg.regression import regress
from inducing.nn.priors import as_prior
from inducing.nn.priors.base import WeightLayout
from tests.oracles import linear_regression as oracle

NAMES = ("spatial-iw", "channel-iw", "kronecker-iw")
FAN = WeightLayout(channels=3, pixels=4, bias=True)


def build(name, fan=FAN, moved=True, kl="closed_form"):
    """The module of a prior in float64, with values that differ from the initial ones."""
    module = type(as_prior(name))(kl=kl).build(fan).double()
    if moved:
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(0.4 * torch.randn_like(parameter))
    return module


def members(module):
    """The learned matrices: L_c, L_p."""
    return [member for member in (module.channels, module.pixels) if member is not None]


def at_prior(module):
    """Move Q to P: nu = 0, Psi = 0."""
    with torch.no_grad():
        for member in members(module):
            member.scaled_log_nu.fill_(-12.0)
            member.scaled_log_diagonal.fill_(-12.0)
    return module


def seeded():
    return torch.Generator().manual_seed(0)


def eye(size):
    return torch.eye(size, dtype=torch.float64)


@pytest.mark.parametrize(
    "fan", [FAN, FAN._replace(bias=False), WeightLayout(3, 1), WeightLayout(1, 4, True), WeightLayout(1, 1)], ids=str
)
@pytest.mark.parametrize("name", NAMES)
def test_the_precision_is_a_kronecker_product_with_the_bias_apart(name, fan):
    module = build(name, fan)
    precision, _ = module(2, seeded())
    generator = seeded()
    dense = [
        eye(size).expand(2, -1, -1) if member is None else member(2, generator).precision.dense()
        for member, size in ((module.channels, fan.channels), (module.pixels, fan.pixels))
    ]
    assert fan.fan_in == precision.size == fan.channels * fan.pixels + fan.bias
    for each, over_channels, over_pixels in zip(precision.dense(), *dense, strict=True):
        blocks = torch.block_diag(torch.kron(over_channels, over_pixels), *[eye(1)] * fan.bias)
        torch.testing.assert_close(each, fan.fan_in * blocks)


@pytest.mark.parametrize("name", NAMES)
def test_every_operation_equals_the_dense_one(name):
    precision = build(name)(3).precision
    dense, w = precision.dense(), torch.randn(3, 2, 13, 4, dtype=torch.float64)
    inverse = torch.linalg.inv(dense)
    torch.testing.assert_close(precision.matmul(w), dense[:, None] @ w)
    torch.testing.assert_close(precision.solve(w), inverse[:, None] @ w)
    torch.testing.assert_close(precision.quadratic(w), torch.einsum("sgfc,sfk,sgkc->s", w, dense, w))
    torch.testing.assert_close(precision.logdet(), torch.logdet(dense))
    torch.testing.assert_close(precision.diagonal(), dense.diagonal(dim1=-2, dim2=-1))
    coloured = precision.colour(eye(13)[None, None])[:, 0]
    torch.testing.assert_close(coloured @ coloured.mT, inverse)


def test_the_order_of_weights_is_that_of_patches():
    """P = L_c (x) L_p in the order of torch's patches: channels first, then pixels."""
    precision = build("kronecker-iw", FAN._replace(bias=False))(1).precision
    assert isinstance(precision, Kronecker)
    image = torch.randn(3, 2, 2, dtype=torch.float64)
    patch = torch.nn.functional.unfold(image[None], kernel_size=2)[0, :, 0]
    # left holds fan_in L_c
    left, right = precision.first.dense()[0], precision.last.dense()[0]
    expected = torch.einsum("cij,ck,kmn,ijmn->", image, left, image, right.reshape(2, 2, 2, 2))
    torch.testing.assert_close(precision.quadratic(patch[None, None, :, None])[0], expected)


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_the_mean_of_the_covariances(name, moved):
    # E[L^-1] = (n + 1 + nu) ((n + 1) I + Psi)^-1, at first I
    for member in members(build(name, moved=moved)):
        root, degrees = member.posterior()
        expected = (degrees * torch.linalg.inv(root @ root.mT))[0].detach()
        if not moved:
            torch.testing.assert_close(expected, eye(member.size))
        samples = member(20_000, seeded()).precision.solve(eye(member.size)[None, None])[:, 0].detach()
        z = (samples.mean(0) - expected) / (samples.std(0) / 20_000**0.5)
        assert z.abs().max() < 4


@pytest.mark.parametrize("name", NAMES)
def test_prior_weights_have_the_covariance_of_neals_prior_on_average(name):
    module, generator = at_prior(build(name)), seeded()
    noise = torch.randn(40_000, 1, 13, 1, dtype=torch.float64, generator=generator)
    weights = module(40_000, generator).precision.colour(noise)[:, 0].detach()
    products = 13 * weights @ weights.mT
    z = (products.mean(0) - torch.eye(13)) / (products.std(0) / 40_000**0.5)
    assert z.abs().max() < 4


@pytest.mark.parametrize(
    "fan", [WeightLayout(5, bias=True), FAN, WeightLayout(2, 9), WeightLayout(1, 9), WeightLayout(1)], ids=str
)
@pytest.mark.parametrize("name", NAMES)
def test_the_kl_in_closed_form_is_the_mean_of_its_samples(name, fan):
    sampled, closed_form = build(name, fan, kl="sample"), build(name, fan)
    closed_form.load_state_dict(sampled.state_dict())
    samples, kl = sampled(20_000, seeded()).kl.detach(), closed_form(1).kl.item()
    assert kl > 0
    assert abs((samples.mean() - kl) / (samples.std() / 20_000**0.5)) < 4
    assert abs(at_prior(closed_form)(1).kl.item()) < 1e-9
    assert at_prior(sampled)(5).kl.abs().max() < 1e-9


@pytest.mark.parametrize("name", NAMES)
def test_samples_of_the_kl_equal_scipys_densities(name):
    module = build(name, kl="sample")
    kl, generator, expected = module(3, seeded()).kl, seeded(), torch.zeros(3, dtype=torch.float64)
    for member in members(module):
        matrices = member(3, generator).precision.dense().detach().numpy()
        root, degrees = (tensor.detach().numpy()[0] for tensor in member.posterior())
        posterior = scipy.stats.invwishart(degrees, root @ root.T)
        prior = scipy.stats.invwishart(member.size + 1, (member.size + 1) * np.eye(member.size))
        expected += torch.tensor([posterior.logpdf(each) - prior.logpdf(each) for each in matrices])
    torch.testing.assert_close(kl.detach(), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_the_kl_keeps_its_digits_in_float32_with_many_weights(name):
    module = type(as_prior(name))().build(WeightLayout(128, 9))
    with torch.no_grad():
        # about what 128 x 128 kernels would teach it
        for member in members(module):
            member.scaled_log_nu.fill_(4.0)
            member.scaled_log_diagonal.fill_(4.0)
    kl = module(1).kl
    assert kl.dtype == torch.float32
    torch.testing.assert_close(kl.double(), module.double()(1).kl, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["channel-iw", "kronecker-iw"])
def test_float32_holds_with_512_channels(name):
    """At n + 1 degrees of freedom a sample of size n = 512 has a condition number of about n^2."""
    module = type(as_prior(name))().build(WeightLayout(512, 2))
    precision, kl = module(1, seeded())
    wide = precision.to(torch.float64)
    # a draw from the prior, whose quadratic form is chi-squared, and a vector that is nothing like one
    for w in (precision.colour(torch.randn(1, 1, 1024, 1)), torch.randn(1, 1, 1024, 1)):
        torch.testing.assert_close(precision.quadratic(w).double(), wide.quadratic(w.double()), rtol=1e-3, atol=0)
        torch.testing.assert_close(precision.solve(w).double(), wide.solve(w.double()), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(precision.logdet().double(), wide.logdet(), rtol=1e-6, atol=0)
    (kl + precision.logdet()).sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in module.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_a_matrix_of_one_is_a_gamma_scale(name):
    # L^-1 ~ Gamma((2 + nu)/2, (2 + Psi)/2) against Gamma(1, 1)
    module, expected = build(name, WeightLayout(1)), torch.zeros((), dtype=torch.float64)
    one = torch.ones((), dtype=torch.float64)
    for member in members(module):
        nu, psi = (3 * p.detach().ravel()[0] for p in (member.scaled_log_nu, member.scaled_log_diagonal))
        expected += kl_divergence(Gamma((2 + nu.exp()) / 2, (2 + psi.exp()) / 2), Gamma(one, one))
    torch.testing.assert_close(module(1).kl[0], expected)


@pytest.mark.parametrize("fan", [FAN, WeightLayout(3), WeightLayout(1, 4), WeightLayout(1)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_the_expectation(name, fan):
    # E[log |L|] and E[tr L^-1] in closed form, differentiated; batches of draws for the standard errors
    for member in members(build(name, fan)):
        parameters, size = list(member.parameters()), member.size
        root, degrees = member.posterior()
        scale = root @ root.mT
        trace = degrees * torch.linalg.inv(scale).diagonal(dim1=-2, dim2=-1).sum(-1)
        volume = torch.logdet(scale) - ((degrees - torch.arange(size)) / 2).digamma().sum()
        expected = torch.autograd.grad((volume + trace).sum(), parameters)
        generator, slopes = seeded(), []
        for _ in range(60):
            sample = member(300, generator).precision
            trace = sample.solve(eye(size)[None, None]).diagonal(dim1=-2, dim2=-1).sum((1, 2))
            slopes.append(torch.autograd.grad((sample.logdet() + trace).mean(), parameters))
        for each, mean in zip(zip(*slopes, strict=True), expected, strict=True):
            error = torch.stack(each).std(0) / 60**0.5
            z = (torch.stack(each).mean(0) - mean) / error.clamp_min(1e-9)
            assert z.abs().max() < 4


@pytest.mark.parametrize("form", ["primal", "dual"])
@pytest.mark.parametrize("rows", [4, 20])
@pytest.mark.parametrize("name", NAMES)
def test_regression_with_a_learned_precision(name, form, rows):
    """log Q - log P of the weights against dense algebra, for each sampled precision."""
    precision = build(name)(3).precision
    inputs = torch.randn(3, rows, 13, dtype=torch.float64)
    pseudo = PseudoOutputs(torch.randn(rows, 2, dtype=torch.float64), torch.rand(1, rows, dtype=torch.float64) + 0.5)
    weights, kl = regress(inputs, pseudo, precision, 3, form=form)
    _, mean_kl = regress(inputs, pseudo, precision, 3, form=form, closed_form_kl=True)
    for s, dense in enumerate(precision.dense()):
        before = oracle.prior(dense)
        after = [oracle.posterior(inputs[s], pseudo.values, pseudo.root, dense, o) for o in range(2)]
        ratio = sum(q.log_prob(weights[s, :, o]) - before.log_prob(weights[s, :, o]) for o, q in enumerate(after))
        torch.testing.assert_close(kl[s], ratio, rtol=1e-7, atol=1e-7)
        expected = sum(kl_divergence(q, before) for q in after)
        torch.testing.assert_close(mean_kl[s], expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_the_evidence_is_that_of_wishart_covariances(name):
    """E_Q[P(y, W, L) / Q(W, L)] = P(y), where the integral over the covariances is done with draws of scipy's."""
    x, y = torch.randn(6, 2, dtype=torch.float64), torch.randn(6, 1, dtype=torch.float64)
    draws, random = 20_000, np.random.default_rng(0)
    # L^-1 ~ W(I / (n + 1), n + 1)
    over_inputs = scipy.stats.wishart(3, np.eye(2) / 3).rvs(draws, random) if name != "spatial-iw" else np.eye(2)
    scales = scipy.stats.wishart(2, 0.5).rvs(draws, random) if name != "channel-iw" else np.ones(draws)
    prior_covariance = torch.from_numpy(over_inputs * scales[:, None, None]) / 2
    marginal = torch.distributions.MultivariateNormal(
        torch.zeros(6, dtype=torch.float64), x @ prior_covariance @ x.mT + 0.3 * eye(6)
    )
    densities = marginal.log_prob(y[:, 0]).exp()
    layer = inducing.Linear(2, 1, bias=False, prior=type(as_prior(name))(kl="sample"), posterior="optimal")
    network = inducing.Network([layer], inducing_points=x, inducing_targets=y, learn_inducing_locations=False).double()
    elbo = inducing.ELBO(network, inducing.Gaussian(0.3).double(), num_data=6)
    ratio = elbo(x, y, draws, generator=seeded()).samples.detach().exp()
    error = math.hypot(ratio.std() / draws**0.5, densities.std() / draws**0.5)
    assert abs(ratio.mean() - densities.mean()) < 4 * error
    assert error < 0.02 * densities.mean()


def test_the_evidence_by_quadrature():
    """The same where the covariance is one number, L_p^-1 ~ Exp(1)."""
    x, y = torch.randn(6, 2, dtype=torch.float64), torch.randn(6, 1, dtype=torch.float64)

    def likelihood(variance):
        covariance = variance * x @ x.mT / 2 + 0.3 * eye(6)
        zeros = torch.zeros(6, dtype=torch.float64)
        return torch.distributions.MultivariateNormal(zeros, covariance).log_prob(y[:, 0]).exp().item()

    evidence, _ = scipy.integrate.quad(lambda t: math.exp(-t) * likelihood(t), 0, 60)
    layer = inducing.Linear(2, 1, bias=False, prior=inducing.SpatialIWPrior(kl="sample"), posterior="optimal")
    network = inducing.Network([layer], inducing_points=x, inducing_targets=y, learn_inducing_locations=False).double()
    elbo = inducing.ELBO(network, inducing.Gaussian(0.3).double(), num_data=6)
    ratio = elbo(x, y, 20_000, generator=seeded()).samples.detach().exp() / evidence
    assert abs((ratio.mean() - 1) / (ratio.std() / 20_000**0.5)) < 4
    assert ratio.std() < 2


def test_a_channel_prior_learns_which_inputs_matter():
    x, weights = torch.randn(100, 4), torch.randn(4, 20)
    weights[2:] = 0
    y = x @ weights + 0.1 * torch.randn(100, 20)
    layer = inducing.Linear(4, 20, bias=False, prior="channel-iw")
    network = inducing.Network([layer], inducing_points=x[:30], inducing_targets=y[:30])
    inducing.fit(network, inducing.Gaussian(0.01), (x, y), num_steps=100, progress=False)
    root, degrees = layer.prior.channels.posterior()
    variance = (degrees * torch.linalg.inv(root @ root.mT))[0].detach().diagonal()
    assert variance[:2].min() > 5 * variance[2:].max()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("initial", [1.0, 30.0])
def test_the_start_has_the_mean_covariance_of_neal(name, initial):
    """E[L^-1] = (n + 1 + nu) ((n + 1) I + Psi)^-1 = I, and nu is the given one."""
    for member in members(type(as_prior(name))(initial=initial).build(FAN).double()):
        root, degrees = member.posterior()
        assert degrees.item() == pytest.approx(member.size + 1 + initial, rel=1e-6)
        torch.testing.assert_close((root @ root.mT)[0] / degrees, eye(member.size), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("initial", [0.0, -1.0, 1e-8, 1e30, math.inf, math.nan])
def test_a_start_without_digits_is_refused(name, initial):
    with pytest.raises(ValueError, match="initial must be between"):
        type(as_prior(name))(initial=initial)


@pytest.mark.parametrize("initial", [None, "1", True, torch.eye(9)], ids=str)
def test_a_start_that_is_no_number_is_refused(initial):
    with pytest.raises(TypeError, match=r"initial must be a number between 0.001 and 1e\+06, got a"):
        inducing.SpatialIWPrior(initial=initial)


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_kl_is_refused(name):
    with pytest.raises(ValueError, match="kl must be one of 'sample', 'closed_form', got 'exact'"):
        type(as_prior(name))(kl="exact")
