"""Functions of a Gaussian process layer, row by row and whole: their laws against dense algebra, in float64."""

import pytest
import torch

import inducing
from inducing.nn import DrawContext, ValuePrior
from inducing.nn.gp.functions import Path, Process
from tests.nn.layers.test_gp import data, exact_gp, with_few_features
from tests.nn.posteriors.test_values import check_moments, randomise
from tests.oracles import gaussian_process as oracle

SE = inducing.kernels.SquaredExponential
KERNEL = SE(1.3, 0.8)


@pytest.mark.parametrize("mean", ["zero", "identity"])
@pytest.mark.parametrize("kernel", ["squared-exponential", "matern12", "arc-cosine"])
def test_moments_given_u_equal_dense_conditioning(kernel, mean):
    z, _ = data(rows=6)
    network = inducing.Network([inducing.GPLayer(2, 2, kernel, mean), inducing.GPLayer(2, 1)], inducing_points=z)
    layer, x = network.layers[0], torch.randn(5, 2, dtype=torch.float64)
    draw = network.draw(3)
    found_mean, found_variance = draw.function.steps[0].moments(x[None])
    zero = mean == "zero"
    at_x = oracle.covariance(layer, x, x).diagonal() + layer.jitter * oracle.covariance(layer, z, z).diagonal().median()
    for sample in range(3):
        for output in range(2):
            u = draw.layers[0].inducing[sample, :, output] - (0 if zero else z[:, output])
            expected, spread = oracle.conditional(
                0 if zero else x[:, output],
                oracle.covariance(layer, z),
                oracle.covariance(layer, z, x),
                torch.diag(at_x),
                u,
            )
            torch.testing.assert_close(found_mean[sample, :, output], expected, rtol=1e-6, atol=1e-6)
            torch.testing.assert_close(found_variance[0, :, 0], spread.diagonal(), rtol=1e-6, atol=1e-6)


def test_at_an_inducing_point_the_function_has_its_value():
    z, _ = data(rows=6)
    network = inducing.Network([inducing.GPLayer(2, 1), inducing.GPLayer(1, 1)], inducing_points=z)
    draw = network.draw(3)
    mean, variance = draw.function.steps[0].moments(z[None])
    torch.testing.assert_close(mean, draw.layers[0].inducing, rtol=0, atol=1e-4)
    assert variance.max() < 3e-6
    path = network.draw(3, consistent=True)
    torch.testing.assert_close(path.function.steps[0](z[None]), path.layers[0].inducing, rtol=0, atol=1e-2)


@pytest.mark.parametrize("kernel", ["squared-exponential", "matern12", "matern52", "linear", "arc-cosine"])
def test_paths_have_the_moments_of_the_prior(kernel):
    x = torch.randn(4, 2, dtype=torch.float64)
    layer = inducing.GPLayer(2, 1, kernel, posterior="prior", num_features=32)
    network = inducing.Network([layer], inducing_points=torch.randn(3, 2, dtype=torch.float64))
    with torch.no_grad():
        samples = network.draw(20_000, torch.Generator().manual_seed(0), consistent=True)(x)[..., 0]
    check_moments(samples, torch.zeros(4, dtype=torch.float64), oracle.covariance(layer, x, x))


@pytest.mark.parametrize("posterior", ["global", inducing.DSVI(initial_scale=0.5), "coupled"], ids=str)
def test_paths_have_the_moments_of_the_posterior(posterior):
    """Means and covariances between rows, against E[u] and V[u] by dense conditioning."""
    z, x = torch.randn(4, 2, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64)
    layer = inducing.GPLayer(2, 1, posterior=posterior, num_features=32)
    network = inducing.Network([layer], inducing_points=z)
    randomise(layer.posterior)
    if layer.posterior.inducing_inputs is not None:
        with torch.no_grad():
            layer.posterior.inducing_inputs.copy_(z)
    with torch.no_grad():
        samples = network.draw(20_000, torch.Generator().manual_seed(0), consistent=True)(x)[..., 0]
        root = torch.linalg.cholesky(oracle.covariance(layer, z))
        whitened, *_ = layer.posterior(ValuePrior(root[None], root.new_zeros(1, 4, 1)), DrawContext(200_000))
        u = (root @ whitened)[..., 0]
    inverse = torch.linalg.inv(oracle.covariance(layer, z))
    gain = oracle.covariance(layer, x, z) @ inverse
    prior = oracle.covariance(layer, x, x) - gain @ oracle.covariance(layer, z, x)
    # the moments of u are themselves estimated, from ten times as many samples
    check_moments(samples, gain @ u.mean(0), prior + gain @ torch.cov(u.mT) @ gain.mT)


@pytest.mark.parametrize("posterior", ["dsvi", "local", "global", "coupled"])
def test_marginal_draws_and_paths_have_the_same_law_at_a_row(posterior):
    z, x = torch.randn(4, 2, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64)
    spec = inducing.DSVI(initial_scale=0.5) if posterior == "dsvi" else posterior
    network = with_few_features(inducing.models.deep_gp(2, 1, 2, posterior=spec, inducing_points=z))
    count = 10_000
    with torch.no_grad():
        marginal = network.draw(count, torch.Generator().manual_seed(0))(x)[..., 0]
        path = network.draw(count, torch.Generator().manual_seed(1), consistent=True)(x)[..., 0]
    error = (marginal.var(0) + path.var(0)).sqrt() / count**0.5
    assert ((marginal.mean(0) - path.mean(0)) / error).abs().max() < 4
    squares = [(sample - sample.mean(0)).square() for sample in (marginal, path)]
    error = (squares[0].var(0) + squares[1].var(0)).sqrt() / count**0.5
    assert ((squares[0].mean(0) - squares[1].mean(0)) / error).abs().max() < 4


@pytest.mark.parametrize("posterior", ["global", "local", "dsvi", "coupled", "optimal", "prior"])
def test_integrating_the_values_out_leaves_the_law_of_the_rows(posterior):
    """The last layer's moments are the mean and variance, over u, of the moments given u."""
    z, y = data(rows=5)
    spec = inducing.DSVI(initial_scale=0.5) if posterior == "dsvi" else posterior
    layer = inducing.GPLayer(2, 1, posterior=spec)
    learn = posterior != "optimal"
    targets = y if layer.posterior_spec.needs_inducing else None
    network = inducing.Network([layer], z, targets, learn_inducing_locations=learn)
    likelihood = inducing.Gaussian(0.3).double()
    if posterior not in ("optimal", "prior"):
        randomise(layer.posterior)
    x, count = torch.randn(1, 4, 2, dtype=torch.float64), 20_000
    with torch.no_grad():
        mean, variance = network.draw(1, likelihood=likelihood).function.steps[0].moments(x)
        layer.integrates_values = False
        context = DrawContext(count, torch.Generator().manual_seed(0), likelihood=likelihood)
        given_mean, given_variance = layer.draw(z[None], context).function.moments(x)
    centre, spread = given_mean.mean(0), given_mean.var(0)
    assert ((centre - mean[0]) / (spread / count).sqrt()).abs().max() < 4
    total = given_variance.mean(0) + spread
    squares = (given_mean - centre).square()
    assert ((total - variance[0]) / (squares.std(0) / count**0.5)).abs().max() < 4


def test_drawn_functions_say_what_they_are():
    network = inducing.models.deep_gp(2, 1, 2, inducing_points=torch.randn(4, 2))
    assert all(isinstance(step, Process) and not step.consistent for step in network.draw(2).function.steps)
    assert all(isinstance(step, Path) and step.consistent for step in network.draw(2, consistent=True).function.steps)


@pytest.mark.parametrize("kernel", ["squared-exponential", "matern12"])
def test_an_offset_of_the_inputs_costs_no_digits(kernel):
    """Raw time stamps, say: a stationary process does not care where zero is."""
    x, y = data()
    found = []
    for offset in (0.0, 1e8):
        network, likelihood = exact_gp(x + offset, y, 0.3, kernel=kernel)
        draw = network.draw(1, torch.Generator().manual_seed(0), likelihood=likelihood)
        found.append((likelihood.log_prob(draw.inducing, y).sum(-1) - draw.layers[0].kl).item())
    assert found[0] == pytest.approx(found[1], abs=1e-5)


def test_paths_run_in_chunks(monkeypatch):
    x, _ = data()
    functions = inducing.models.deep_gp(2, 1, 2, inducing_points=x[:5]).sample_functions(3)
    whole = functions(x)
    monkeypatch.setattr("inducing.nn.gp.functions.CHUNK", 5 * 3 * 512)
    torch.testing.assert_close(functions(x), whole)
