import json
import math
from dataclasses import asdict

import pytest
import scipy.integrate
import torch
from torch.distributions import Gamma, kl_divergence

import inducing
from inducing.linalg.precision import Kronecker
from inducing.linalg.regression import PseudoOutputs, regress
from inducing.nn.priors import PRIORS, Fan, as_prior
from tests.oracles import linear_regression as oracle


@pytest.mark.parametrize(("name", "scale"), [("neal", 7.0), ("standard", 1.0)])
def test_fixed_priors(name, scale):
    precision, kl = as_prior(name).build(Fan(3, 2, bias=True))(num_samples=3)
    torch.testing.assert_close(precision.dense(), scale * torch.eye(7)[None])
    assert (kl == 0).all()


def test_scale_prior_samples_its_posterior_and_gives_its_kl():
    module = inducing.ScalePrior().build(Fan(3, 2, bias=True))
    with torch.no_grad():
        module.log_alpha.fill_(1.0)
        module.log_beta.fill_(-0.5)
    posterior = Gamma(2 + torch.tensor(1.0).exp(), 2 + torch.tensor(-0.5).exp())
    precision, kl = module(100_000, torch.Generator().manual_seed(0))
    scale = precision.scale / 7
    torch.testing.assert_close(kl[0], kl_divergence(posterior, Gamma(torch.tensor(2.0), torch.tensor(2.0))))
    assert abs((scale.mean() - posterior.mean) / (posterior.stddev / 100_000**0.5)) < 4
    # the KL in closed form is the mean of log Q - log P
    ratio = posterior.log_prob(scale) - Gamma(2.0, 2.0).log_prob(scale)
    assert abs((ratio.mean() - kl[0]) / (ratio.std() / 100_000**0.5)) < 4


def test_scale_prior_gradients_are_those_of_the_expectation():
    # d E[s] / d log alpha = alpha / rate,  d E[s] / d log beta = -beta shape / rate^2
    module = inducing.ScalePrior().build(Fan(1)).double()
    scale = module(400_000, torch.Generator().manual_seed(0)).precision.scale
    scale.mean().backward()
    torch.testing.assert_close(module.log_alpha.grad.item(), 1 / 3, rtol=0.01, atol=0)
    torch.testing.assert_close(module.log_beta.grad.item(), -3 / 9, rtol=0.01, atol=0)


def test_scale_prior_at_its_prior_has_no_kl():
    module = inducing.ScalePrior(shape=3.0, rate=1.0).build(Fan(1))
    with torch.no_grad():
        module.log_alpha.fill_(-30.0)
        module.log_beta.fill_(-30.0)
    assert abs(module(1).kl.item()) < 1e-6


@pytest.mark.parametrize("arguments", [{"shape": 0.0}, {"rate": -1.0}, {"shape": float("nan")}])
def test_scale_prior_refuses_impossible_settings(arguments):
    with pytest.raises(ValueError, match="shape > 0 and rate > 0"):
        inducing.ScalePrior(**arguments)


SPATIAL = Fan(channels=3, pixels=4, bias=True)


def spatial(fan=SPATIAL, moved=True, **arguments):
    """The module of a SpatialIWPrior in float64, somewhere that is not its first value."""
    module = inducing.SpatialIWPrior(**arguments).build(fan).double()
    if moved:
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(0.4 * torch.randn_like(parameter))
    return module


def covariances(module, num_samples):
    """L^-1, from draws."""
    pixels = module.pixels(num_samples, torch.Generator().manual_seed(0)).precision
    return pixels.solve(torch.eye(pixels.size, dtype=torch.float64)[None, None])[:, 0]


@pytest.mark.parametrize("bias", [True, False])
def test_the_spatial_precision_is_a_kronecker_product_with_the_bias_apart(bias):
    fan = SPATIAL._replace(bias=bias)
    module = spatial(fan)
    precision, _ = module(2, torch.Generator().manual_seed(0))
    pixels = module.pixels(2, torch.Generator().manual_seed(0)).precision.dense()
    assert fan.fan_in == precision.size == 12 + bias
    for each, square in zip(precision.dense(), pixels, strict=True):
        weights = torch.kron(torch.eye(3, dtype=torch.float64), square)
        blocks = [weights, torch.ones(1, 1, dtype=torch.float64)] if bias else [weights]
        torch.testing.assert_close(each, fan.fan_in * torch.block_diag(*blocks))


def test_the_order_of_weights_is_that_of_patches():
    """P = I (x) L in the order of torch's patches: channels first, then pixels."""
    precision = spatial(SPATIAL._replace(bias=False))(1).precision
    assert isinstance(precision, Kronecker)
    image = torch.zeros(1, 3, 2, 2, dtype=torch.float64)
    image[0, 1] = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    patch = torch.nn.functional.unfold(image, kernel_size=2)[0, :, 0]
    pixels = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    expected = precision.size * pixels @ precision.right.dense()[0] @ pixels
    torch.testing.assert_close(precision.quadratic(patch[None, None, :, None])[0], expected)


@pytest.mark.parametrize("moved", [False, True])
def test_the_mean_of_the_spatial_covariance(moved):
    # E[L^-1] = (d + 1 + nu) ((d + 1) I + Psi)^-1, at first I
    module = spatial(moved=moved)
    root, degrees = module.pixels.posterior()
    expected = (degrees * torch.linalg.inv(root @ root.mT))[0].detach()
    if not moved:
        torch.testing.assert_close(expected, torch.eye(4, dtype=torch.float64))
    samples = covariances(module, 20_000).detach()
    z = (samples.mean(0) - expected) / (samples.std(0) / 20_000**0.5)
    assert z.abs().max() < 4


def at_prior(module):
    """Move Q to P: nu = 0, Psi = 0."""
    with torch.no_grad():
        module.pixels.scaled_log_nu.fill_(-12.0)
        module.pixels.scaled_log_diagonal.fill_(-12.0)
    return module


def test_prior_weights_have_the_covariance_of_neals_prior_on_average():
    module = at_prior(spatial())
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(40_000, 1, 13, 1, dtype=torch.float64, generator=generator)
    weights = module(40_000, generator).precision.colour(noise)[:, 0].detach()
    products = 13 * weights @ weights.mT
    z = (products.mean(0) - torch.eye(13)) / (products.std(0) / 40_000**0.5)
    assert z.abs().max() < 4


@pytest.mark.parametrize("fan", [Fan(5, bias=True), SPATIAL, Fan(2, 9)])
def test_spatial_kl(fan):
    sampled, closed_form = spatial(fan, kl="sample"), spatial(fan)
    closed_form.load_state_dict(sampled.state_dict())
    samples, kl = sampled(20_000).kl.detach(), closed_form(1).kl.item()
    assert kl > 0
    assert abs((samples.mean() - kl) / (samples.std() / 20_000**0.5)) < 4
    assert abs(at_prior(closed_form)(1).kl.item()) < 1e-9
    assert at_prior(sampled)(5).kl.abs().max() < 1e-9


def test_spatial_kl_keeps_its_digits_in_float32_with_many_weights():
    module = inducing.SpatialIWPrior().build(Fan(512, 9))
    with torch.no_grad():
        # about what 512 x 512 kernels would teach it
        module.pixels.scaled_log_nu.fill_(4.0)
        module.pixels.scaled_log_diagonal.fill_(4.0)
    kl = module(1).kl
    assert kl.dtype == torch.float32
    torch.testing.assert_close(kl.double(), module.double()(1).kl, rtol=1e-6, atol=1e-6)


def test_one_pixel_is_a_gamma_scale():
    # L^-1 ~ Gamma((2 + nu)/2, (2 + Psi)/2) against Gamma(1, 1)
    module = spatial(Fan(5))
    nu, psi = (3 * p.detach().ravel()[0] for p in (module.pixels.scaled_log_nu, module.pixels.scaled_log_diagonal))
    one = torch.ones((), dtype=torch.float64)
    posterior = Gamma((2 + nu.exp()) / 2, (2 + psi.exp()) / 2)
    torch.testing.assert_close(module(1).kl[0], kl_divergence(posterior, Gamma(one, one)))


def test_spatial_gradients_are_those_of_the_expectation():
    # E[log |L|] and E[tr L^-1] in closed form, differentiated; batches of draws for the standard errors
    module = spatial()
    parameters = list(module.parameters())

    def value():
        root, degrees = module.pixels.posterior()
        scale = root @ root.mT
        trace = degrees * torch.linalg.inv(scale).diagonal(dim1=-2, dim2=-1).sum(-1)
        return torch.logdet(scale) - ((degrees - torch.arange(4)) / 2).digamma().sum() + trace

    expected = torch.autograd.grad(value().sum(), parameters)
    generator = torch.Generator().manual_seed(0)
    slopes = []
    for _ in range(100):
        pixels = module.pixels(200, generator).precision
        trace = pixels.solve(torch.eye(4, dtype=torch.float64)[None, None]).diagonal(dim1=-2, dim2=-1).sum((1, 2))
        slopes.append(torch.autograd.grad((pixels.logdet() + trace).mean(), parameters))
    for each, mean in zip(zip(*slopes, strict=True), expected, strict=True):
        error = torch.stack(each).std(0) / 10
        z = (torch.stack(each).mean(0) - mean) / error.clamp_min(1e-9)
        assert z.abs().max() < 4


@pytest.mark.parametrize("form", ["primal", "dual"])
@pytest.mark.parametrize("rows", [4, 20])
def test_regression_with_a_spatial_precision(form, rows):
    """log Q - log P of the weights against dense algebra, for each sampled precision."""
    precision = spatial()(3).precision
    inputs = torch.randn(3, rows, 13, dtype=torch.float64)
    pseudo = PseudoOutputs(torch.randn(rows, 2, dtype=torch.float64), torch.rand(1, rows, dtype=torch.float64) + 0.5)
    weights, kl = regress(inputs, pseudo, precision, 3, form=form)
    _, mean_kl = regress(inputs, pseudo, precision, 3, form=form, closed_form_kl=True)
    for s, dense in enumerate(precision.dense()):
        before = oracle.prior(dense)
        after = [oracle.posterior(inputs[s], pseudo.values, pseudo.root, dense, o) for o in range(2)]
        ratio = sum(q.log_prob(weights[s, :, o]) - before.log_prob(weights[s, :, o]) for o, q in enumerate(after))
        torch.testing.assert_close(kl[s], ratio, rtol=1e-8, atol=1e-8)
        expected = sum(kl_divergence(q, before) for q in after)
        torch.testing.assert_close(mean_kl[s], expected, rtol=1e-8, atol=1e-8)


def test_the_evidence_is_that_of_a_wishart_covariance():
    """E_Q[P(y, W, L) / Q(W, L)] = P(y), the integral over the covariance L^-1 ~ Exp(1) done by quadrature."""
    x, y = torch.randn(6, 2, dtype=torch.float64), torch.randn(6, 1, dtype=torch.float64)

    def likelihood(variance):
        covariance = variance * x @ x.mT / 2 + 0.3 * torch.eye(6, dtype=torch.float64)
        zeros = torch.zeros(6, dtype=torch.float64)
        return torch.distributions.MultivariateNormal(zeros, covariance).log_prob(y[:, 0]).exp().item()

    evidence, _ = scipy.integrate.quad(lambda t: math.exp(-t) * likelihood(t), 0, 60)
    layer = inducing.Linear(2, 1, bias=False, prior=inducing.SpatialIWPrior(kl="sample"), posterior="optimal")
    network = inducing.Network([layer], inducing_points=x, inducing_targets=y, learn_inducing_locations=False).double()
    elbo = inducing.ELBO(network, inducing.Gaussian(0.3).double(), num_data=6)
    ratio = elbo(x, y, 20_000, generator=torch.Generator().manual_seed(0)).samples.detach().exp() / evidence
    assert abs((ratio.mean() - 1) / (ratio.std() / 20_000**0.5)) < 4
    assert ratio.std() < 2


def test_spatial_prior_refuses_an_unknown_kl():
    with pytest.raises(ValueError, match="kl must be one of 'sample', 'closed_form', got 'exact'"):
        inducing.SpatialIWPrior(kl="exact")


def test_unknown_priors_are_refused_with_the_known_names():
    with pytest.raises(
        ValueError, match=r"unknown prior 'cauchy'; known are \"neal\", \"standard\", \"scale\", \"spatial-iw\""
    ):
        inducing.Linear(1, 1, prior="cauchy")
    with pytest.raises(ValueError, match="given as a class, call it"):
        inducing.Linear(1, 1, prior=inducing.NealPrior)


@pytest.mark.parametrize("cls", PRIORS.values())
def test_specifications_are_values(cls):
    """Equal, hashable, immutable, JSON."""
    assert cls() == cls()
    assert hash(cls()) == hash(cls())
    assert cls(**json.loads(json.dumps(asdict(cls())))) == cls()
    with pytest.raises(AttributeError):
        cls().shape = 3.0
