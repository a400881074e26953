"""The posteriors over values against dense algebra."""

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from inducing.nn import DrawContext, ValuePrior
from inducing.nn.posteriors.coupled import CoupledValues
from inducing.nn.posteriors.inducing import InducingValues
from inducing.nn.posteriors.optimal import OptimalValues
from inducing.nn.posteriors.prior_only import PriorValues
from inducing.nn.posteriors.whitened import WhitenedValues
from tests.oracles import gaussian_process as oracle

ROWS, OUTPUTS, SAMPLES = 6, 2, 4


@pytest.fixture
def prior():
    """A root R, sample by sample, and a mean."""
    factors = torch.randn(SAMPLES, ROWS, ROWS + 2, dtype=torch.float64)
    return torch.linalg.cholesky(factors @ factors.mT), torch.randn(SAMPLES, ROWS, OUTPUTS, dtype=torch.float64)


def randomise(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.3 * torch.randn_like(parameter))
    return module.double()


def log_ratio(posterior, prior, u):
    return posterior.log_prob(u) - prior.log_prob(u)


def as_priors(root, mean, sample):
    return [MultivariateNormal(mean[sample, :, o], scale_tril=root[sample]) for o in range(OUTPUTS)]


@pytest.mark.parametrize("precision", ["shared", "per_output", "full", "full_per_output"])
@pytest.mark.parametrize("closed_form", [False, True])
def test_the_kl_of_the_regression_is_log_q_minus_log_p(prior, precision, closed_form):
    root, mean = prior
    module = randomise(InducingValues(torch.zeros(ROWS, OUTPUTS), None, precision, 0.0, closed_form))
    whitened, kl, *_ = module(ValuePrior(root, mean), DrawContext(SAMPLES))
    for sample in range(SAMPLES):
        u = mean[sample] + root[sample] @ whitened[sample]
        expected = 0.0
        for output, before in enumerate(as_priors(root, mean, sample)):
            lambdas = oracle.precision_of(module.precision_root(), output)
            after = oracle.posterior(before.mean, before.covariance_matrix, module.pseudo_outputs[:, output], lambdas)
            expected += kl_divergence(after, before) if closed_form else log_ratio(after, before, u[:, output])
        torch.testing.assert_close(kl[sample], expected, rtol=1e-8, atol=1e-8)


def test_samples_of_the_regression_have_its_moments(prior):
    root, mean = prior
    count = 20_000
    module = randomise(InducingValues(torch.zeros(ROWS, OUTPUTS), None, "full_per_output", 0.0, False))
    whitened, *_ = module(ValuePrior(root[:1], mean[:1]), DrawContext(count, torch.Generator().manual_seed(0)))
    u = (mean[:1] + root[:1] @ whitened).detach()
    for output, before in enumerate(as_priors(root, mean, 0)):
        lambdas = oracle.precision_of(module.precision_root(), output)
        after = oracle.posterior(before.mean, before.covariance_matrix, module.pseudo_outputs[:, output], lambdas)
        check_moments(u[:, :, output], after.mean.detach(), after.covariance_matrix.detach())


@pytest.mark.parametrize("closed_form", [False, True])
def test_the_kl_of_coupled_values(prior, closed_form):
    root, mean = prior
    reference = torch.linalg.cholesky(torch.eye(ROWS) + 0.5)
    module = randomise(
        CoupledValues(torch.randn(ROWS, OUTPUTS), reference, torch.zeros(ROWS, OUTPUTS), torch.eye(ROWS), closed_form)
    )
    whitened, kl, *_ = module(ValuePrior(root, mean), DrawContext(SAMPLES))
    for sample in range(SAMPLES):
        u = mean[sample] + root[sample] @ whitened[sample]
        expected = 0.0
        for output, before in enumerate(as_priors(root, mean, sample)):
            after = coupled_law(module, output)
            expected += kl_divergence(after, before) if closed_form else log_ratio(after, before, u[:, output])
        torch.testing.assert_close(kl[sample], expected, rtol=1e-8, atol=1e-8)


def coupled_law(module, output):
    scale = (3 * module.scaled_log_scale[output]).exp()
    spread = (
        module.reference_root
        @ torch.diag(scale)
        @ (torch.eye(ROWS, dtype=torch.float64) + module.root_lower[output].tril(-1))
    )
    mean = module.reference_mean[:, output] + module.reference_root @ module.relative_mean[:, output]
    return MultivariateNormal(mean, covariance_matrix=spread @ spread.mT)


def test_coupled_values_do_not_depend_on_the_layer_below(prior):
    """u is the same for all roots and means of the layer below."""
    root, mean = prior
    module = randomise(
        CoupledValues(torch.zeros(ROWS, OUTPUTS), torch.eye(ROWS), torch.zeros(ROWS, OUTPUTS), torch.eye(ROWS))
    )
    values = []
    for sample in (0, 1):
        whitened, *_ = module(
            ValuePrior(root[[sample]], mean[[sample]]), DrawContext(3, torch.Generator().manual_seed(0))
        )
        values.append(mean[sample] + root[sample] @ whitened)
    torch.testing.assert_close(values[0], values[1])


def test_dsvi_is_whitened_with_its_kl_in_closed_form(prior):
    module = randomise(WhitenedValues(torch.zeros(ROWS, 3), OUTPUTS, 1.0))
    mean, root = module.moments()
    standard = MultivariateNormal(torch.zeros(ROWS, dtype=torch.float64), torch.eye(ROWS, dtype=torch.float64))
    laws = [MultivariateNormal(mean[:, o], covariance_matrix=root[o] @ root[o].mT) for o in range(OUTPUTS)]
    expected = sum(kl_divergence(law, standard) for law in laws)
    torch.testing.assert_close(module.closed_form_kl(), expected, rtol=1e-8, atol=1e-8)
    whitened, kl, *_ = module(ValuePrior(*prior), DrawContext(20_000, torch.Generator().manual_seed(0)))
    torch.testing.assert_close(kl, expected.expand(20_000))
    for output, law in enumerate(laws):
        check_moments(whitened[:, :, output].detach(), law.mean.detach(), law.covariance_matrix.detach())


def test_the_kl_of_the_prior_is_zero(prior):
    whitened, kl, *_ = PriorValues()(ValuePrior(*prior), DrawContext(SAMPLES))
    assert whitened.shape == (SAMPLES, ROWS, OUTPUTS)
    assert torch.equal(kl, torch.zeros(SAMPLES, dtype=torch.float64))


def test_optimal_values_need_a_likelihood(prior):
    with pytest.raises(ValueError, match="likelihood="):
        OptimalValues(torch.zeros(ROWS, OUTPUTS))(ValuePrior(*prior), DrawContext(SAMPLES))


def check_moments(samples, mean, covariance):
    """|z| < 4 for all first and second moments."""
    count = len(samples)
    assert ((samples.mean(0) - mean) / (covariance.diagonal() / count).sqrt()).abs().max() < 4
    products = (samples - mean)[:, :, None] * (samples - mean)[:, None, :]
    assert ((products.mean(0) - covariance) / (products.std(0) / count**0.5)).abs().max() < 4
