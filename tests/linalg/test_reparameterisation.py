"""Gradients of expectations over noise, by cubature points, which integrate quadratic functions exactly."""

import pytest
import torch
from torch.distributions import kl_divergence

from inducing.linalg.precision import Dense, ScaledIdentity
from inducing.linalg.pseudo_likelihood import PseudoOutputs
from inducing.linalg.regression import regress
from tests.linalg.test_regression import OUTPUTS, ROOTS, make_root
from tests.oracles import linear_regression as oracle

ROWS, FEATURES = 3, 4


def cubature(size):
    """2 size points whose mean of any polynomial of degree three is that of standard normal noise."""
    points = size**0.5 * torch.eye(size, dtype=torch.float64)
    return torch.cat([points, -points])


@pytest.fixture
def noise(monkeypatch):
    """Use cubature points as the noise of `regress`, one for each sample. Return the number of samples."""

    def give(form, pseudo):
        groups, columns = pseudo.layout
        shapes = [(groups, FEATURES, columns), (groups, ROWS, columns)][: 1 if form == "primal" else 2]
        sizes = [torch.Size(shape).numel() for shape in shapes]
        points = cubature(sum(sizes))
        parts = iter(part.unflatten(1, shape) for part, shape in zip(points.split(sizes, 1), shapes, strict=True))
        monkeypatch.setattr("inducing.linalg.regression.standard_normal", lambda *_: next(parts))
        return len(points)

    return give


def problem(root, prior):
    """Inputs, values, root and prior, all of them with gradients."""
    matrix = torch.randn(1, FEATURES, FEATURES, dtype=torch.float64)
    tensors = [
        torch.randn(1, ROWS, FEATURES, dtype=torch.float64),
        torch.randn(ROWS, OUTPUTS, dtype=torch.float64),
        make_root(root, ROWS),
        torch.tensor([2.5], dtype=torch.float64) if prior == "identity" else matrix @ matrix.mT + torch.eye(FEATURES),
    ]
    return [tensor.requires_grad_() for tensor in tensors]


def precision_of(tensor):
    return ScaledIdentity(tensor, FEATURES) if tensor.ndim == 1 else Dense(tensor)


def laws(inputs, values, root, prior):
    """Q and P of each output, densely."""
    dense = precision_of(prior).dense()[0]
    return [(oracle.posterior(inputs[0], values, root, dense, o), oracle.prior(dense)) for o in range(OUTPUTS)]


def assert_same_gradients(found, expected, arguments):
    gradients = (torch.autograd.grad(value, arguments) for value in (found, expected))
    for ours, exact, argument in zip(*gradients, arguments, strict=True):
        # of a dense prior only the symmetric part says something
        symmetric = argument.ndim == 3 and argument is arguments[-1]
        ours, exact = ((g + g.mT) if symmetric else g for g in (ours, exact))
        torch.testing.assert_close(ours, exact, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("prior", ["identity", "dense"])
@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("form", ["primal", "dual"])
def test_gradients_of_expectations_of_quadratics(form, root, prior, noise):
    arguments = problem(root, prior)
    inputs, values, roots, precision = arguments
    pseudo = PseudoOutputs(values, roots)
    samples = noise(form, pseudo)
    weights, _ = regress(inputs, pseudo, precision_of(precision), samples, form=form)
    curvature = torch.randn(OUTPUTS, FEATURES, FEATURES, dtype=torch.float64)
    slope = torch.randn(FEATURES, OUTPUTS, dtype=torch.float64)
    found = (torch.einsum("sfo,ofg,sgo->s", weights, curvature, weights) + (slope * weights).sum((1, 2))).mean()
    # E[w'Cw + b'w] = m'Cm + tr(C cov) + b'm
    expected = sum(
        q.mean @ curvature[o] @ q.mean + (curvature[o] * q.covariance_matrix.mT).sum() + slope[:, o] @ q.mean
        for o, (q, _) in enumerate(laws(*arguments))
    )
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    assert_same_gradients(found, expected, arguments)


@pytest.mark.parametrize("prior", ["identity", "dense"])
@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("form", ["primal", "dual"])
def test_gradients_of_the_expected_kl(form, root, prior, noise):
    arguments = problem(root, prior)
    inputs, values, roots, precision = arguments
    pseudo = PseudoOutputs(values, roots)
    samples = noise(form, pseudo)
    kl = regress(inputs, pseudo, precision_of(precision), samples, form=form).kl.mean()
    expected = sum(kl_divergence(q, p) for q, p in laws(*arguments))
    torch.testing.assert_close(kl, expected, rtol=1e-9, atol=1e-9)
    assert_same_gradients(kl, expected, arguments)


@pytest.mark.parametrize(("form", "rows"), [("primal", 8), ("dual", 3)])
@pytest.mark.parametrize("root", ["shared", "per_output"])
def test_the_gradient_of_the_elbo_has_no_noise_at_the_exact_posterior(form, rows, root):
    """With pseudo-outputs at the data and Lambda the noise precision, the gradient is zero for every sample."""
    inputs, y = torch.randn(1, rows, FEATURES, dtype=torch.float64), torch.randn(rows, OUTPUTS, dtype=torch.float64)
    values = y.clone().requires_grad_()
    groups = OUTPUTS if root == "per_output" else 1
    roots = torch.full((groups, rows), 1.7, dtype=torch.float64, requires_grad=True)
    prior = ScaledIdentity(torch.tensor([4.0], dtype=torch.float64), FEATURES)
    weights, kl = regress(inputs, PseudoOutputs(values, roots), prior, 1, form=form)
    likelihood = torch.distributions.Normal(inputs @ weights, 1 / 1.7).log_prob(y).sum()
    for gradient in torch.autograd.grad(likelihood - kl.sum(), [values, roots]):
        torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-10)


def test_the_cached_factor_of_a_prior_has_gradients():
    """The factor of a dense prior is computed once. It must not be computed without gradients."""
    matrix = (2 * torch.eye(FEATURES, dtype=torch.float64)[None]).requires_grad_()
    prior = Dense(matrix)
    inputs, values = torch.randn(1, 2, FEATURES, dtype=torch.float64), torch.randn(2, 1, dtype=torch.float64)
    regress(inputs, PseudoOutputs(values, torch.ones(1, 2, dtype=torch.float64)), prior, 2)
    assert prior.logdet().requires_grad


def test_without_gradients_the_draws_are_the_same():
    inputs, values, roots, precision = problem("per_output", "identity")
    arguments = inputs, PseudoOutputs(values, roots), precision_of(precision), 2
    with_gradients = regress(*arguments, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        without = regress(*arguments, generator=torch.Generator().manual_seed(0))
    assert torch.equal(with_gradients.weights, without.weights)
    assert torch.equal(with_gradients.kl, without.kl)
