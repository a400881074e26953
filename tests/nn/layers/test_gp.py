"""Gaussian process layers against independent libraries and dense algebra, in float64."""

import math
import warnings

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel
from torch import nn
from torch.distributions import MultivariateNormal

import inducing
from inducing.nn.gp.functions import Process
from inducing.nn.kernels import LOG_KERNEL_SCALE
from tests.nn.posteriors.test_values import check_moments, randomise
from tests.oracles import gaussian_process as oracle

with warnings.catch_warnings():
    # its dependencies still use torch.jit
    warnings.simplefilter("ignore", DeprecationWarning)
    import gpytorch

SE = inducing.kernels.SquaredExponential
KERNEL = SE(1.3, 0.8)


def data(rows=12, features=2, outputs=1):
    return torch.randn(rows, features, dtype=torch.float64), torch.randn(rows, outputs, dtype=torch.float64)


def with_few_features(network):
    """Many samples need few random features each: their moments are exact in expectation, whatever the number."""
    for layer in network.layers:
        layer.num_features = 16
    return network


def exact_gp(x, y, noise_variance, posterior="optimal", kernel=KERNEL):
    """One layer with inducing points = data and the optimal V and Lambda."""
    network = inducing.Network(
        [inducing.GPLayer(x.shape[1], y.shape[1], kernel, posterior=posterior)],
        inducing_points=x,
        inducing_targets=y,
        learn_inducing_locations=False,
    )
    likelihood = inducing.Gaussian(noise_variance, learn_variance=False).double()
    with torch.no_grad():
        log_noise = torch.log(torch.tensor(noise_variance, dtype=torch.float64))
        likelihood.scaled_log_variance.copy_(log_noise / 10)
        if posterior != "optimal":
            network.layers[0].posterior.scaled_log_precision.fill_((-log_noise / 3).item())
    return network, likelihood


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("posterior", ["optimal", "global", inducing.GlobalInducing("full_per_output")], ids=str)
def test_every_sample_at_the_inducing_points_equals_the_evidence(posterior, outputs):
    """log p(y | u) - KL = log N(y; 0, K + noise), with zero variance: the layer read at `Draw.inducing`."""
    x, y = data(outputs=outputs)
    network, likelihood = exact_gp(x, y, 0.3, posterior)
    draw = network.draw(50, likelihood=likelihood)
    samples = likelihood.log_prob(draw.inducing, y).sum(-1) - draw.layers[0].kl
    covariance = oracle.covariance(network.layers[0], x) + 0.3 * torch.eye(len(x), dtype=torch.float64)
    evidence = MultivariateNormal(torch.zeros(len(x), dtype=torch.float64), covariance).log_prob(y.mT).sum()
    torch.testing.assert_close(samples, evidence.expand(50), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("kernel", "reference"),
    [(SE(1.3, 0.8, ard=False), RBF(1.3)), (inducing.kernels.Matern32(1.3, 0.8, ard=False), Matern(1.3, nu=1.5))],
    ids=["squared-exponential", "matern32"],
)
def test_evidence_and_predictions_equal_those_of_scikit_learn(kernel, reference):
    x, y = data()
    network, likelihood = exact_gp(x, y, 0.3, kernel=kernel)
    jitter = network.layers[0].jitter * 0.8
    exact = GaussianProcessRegressor(
        ConstantKernel(0.8) * reference + WhiteKernel(jitter), alpha=0.3, optimizer=None
    ).fit(x.numpy(), y.numpy()[:, 0])
    draw = network.draw(2, likelihood=likelihood)
    evidence = likelihood.log_prob(draw.inducing, y).sum(-1) - draw.layers[0].kl
    assert evidence[0].item() == pytest.approx(exact.log_marginal_likelihood_value_, abs=1e-6)
    x_new = torch.randn(5, 2, dtype=torch.float64)
    mean, variance = (moment.detach()[0, :, 0] for moment in draw.function.steps[0].moments(x_new[None]))
    expected_mean, expected_std = exact.predict(x_new.numpy(), return_std=True)
    np.testing.assert_allclose(mean, expected_mean, atol=1e-6)
    np.testing.assert_allclose(variance.sqrt(), expected_std, atol=1e-6)


def test_the_elbo_of_dsvi_equals_that_of_svgp_in_gpytorch():
    """One layer, the same inducing points, q(u), hyperparameters and noise; the expectation in closed form."""
    x, y = data(rows=20)
    layer = inducing.GPLayer(2, 1, SE(0.9, 1.4), posterior=inducing.DSVI(num_inducing=7))
    network = inducing.Network([layer], inducing_points=x[:7])
    randomise(layer.posterior)
    with torch.no_grad():
        layer.posterior.inducing_inputs.copy_(x[:7])
        layer.kernel.scaled_log_lengthscale.copy_(
            torch.tensor([0.9, 1.7], dtype=torch.float64).log() / LOG_KERNEL_SCALE
        )
        layer.kernel.scaled_log_variance.fill_(math.log(1.4) / LOG_KERNEL_SCALE)
    likelihood = inducing.Gaussian(0.2).double()
    terms = inducing.ELBO(network, likelihood, num_data=20)(x, y, num_samples=3)

    class SVGP(gpytorch.models.ApproximateGP):
        def __init__(self):
            variational = gpytorch.variational.CholeskyVariationalDistribution(7)
            super().__init__(gpytorch.variational.VariationalStrategy(self, x[:7], variational))
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=2))

        def forward(self, rows):
            return gpytorch.distributions.MultivariateNormal(rows.new_zeros(len(rows)), self.covar_module(rows))

    model = SVGP().double()
    model.covar_module.outputscale = 1.4
    model.covar_module.base_kernel.lengthscale = torch.tensor([0.9, 1.7], dtype=torch.float64)
    noise = gpytorch.likelihoods.GaussianLikelihood().double()
    noise.noise = likelihood.noise_variance.item()
    mean, root = layer.posterior.moments()
    distribution = model.variational_strategy._variational_distribution
    with torch.no_grad():
        model.variational_strategy.variational_params_initialized.fill_(1)
        distribution.variational_mean.copy_(mean[:, 0])
        distribution.chol_variational_covar.copy_(root[0])
    model.train()
    noise.train()
    objective = gpytorch.mlls.VariationalELBO(noise, model, num_data=20)
    with gpytorch.settings.cholesky_jitter(double_value=1e-6 * 1.4):
        theirs = objective(model(x), y[:, 0]) * 20
    torch.testing.assert_close(terms.samples, theirs.expand(3), rtol=1e-5, atol=1e-4)


def layer_correlation(posterior, first, second):
    """The largest correlation, in standard errors, between what two layers' functions do at fixed probe inputs.

    Signs and scales may average out, so squares of the functions' departures are correlated too.
    """
    torch.manual_seed(0)
    x = torch.linspace(-2, 2, 8, dtype=torch.float64)[:, None]
    targets = torch.sin(3 * x) if posterior == "global" else None
    network = with_few_features(
        inducing.models.deep_gp(1, 1, 3, posterior=posterior, inducing_points=x, inducing_targets=targets)
    )
    with torch.no_grad():
        for layer in network.layers:
            for name, parameter in layer.posterior.named_parameters():
                if name == "scaled_log_precision":
                    parameter.fill_(3.0 if layer is network.layers[-1] else 0.0)
                if name == "scaled_log_scale":
                    parameter.fill_(math.log(0.5) / 3)
        count = 10_000
        draw = network.draw(count, torch.Generator().manual_seed(0), consistent=True)
        probes = torch.linspace(-1.5, 1.5, 5, dtype=torch.float64)[None, :, None]
        values = [draw.function.steps[index](probes)[..., 0] for index in (first, second)]
    values = [(value - value.mean(0)) / value.std(0) for value in values]
    features = [torch.cat([value, value.square() - 1], 1) for value in values]
    features = [feature / feature.std(0) for feature in features]
    return ((features[0].mT @ features[1]) / count).abs().max() * count**0.5


@pytest.mark.parametrize("posterior", ["dsvi", "local", "coupled"])
def test_functions_of_distant_layers_are_uncorrelated_without_global_inducing_points(posterior):
    """The paper's figure of graphical models: panels A and B. Fifty pairs of probes, so |z| < 4.5."""
    assert layer_correlation(posterior, 0, 2) < 4.5


def test_functions_of_distant_layers_are_correlated_with_global_inducing_points():
    """Panel C."""
    assert layer_correlation("global", 0, 2) > 10


def test_coupled_inducing_points_correlate_neighbours():
    """Panel B: adjacent functions share the inducing points between them."""
    assert layer_correlation("coupled", 0, 1) > 10
    assert layer_correlation("dsvi", 0, 1) < 4.5


def test_a_layer_with_its_own_inducing_inputs_is_one_function_for_inducing_points_and_data():
    """dsvi->global: what the last layer regresses on is what the data go through, so both have one joint law."""
    z = torch.randn(3, 1, dtype=torch.float64)
    layers = [inducing.GPLayer(1, 1, posterior=inducing.DSVI(2, 0.5)), inducing.GPLayer(1, 1)]
    network = inducing.Network(layers, inducing_points=z)
    with torch.no_grad():
        draw = network.draw(20_000, torch.Generator().manual_seed(0))
        at_inducing, again = draw.layers[0].inducing, draw.function.steps[0](z[None])
    torch.testing.assert_close(again, at_inducing, rtol=0, atol=0.02)
    joint = torch.cat([at_inducing[..., 0], again[..., 0]], 1)
    _, root = layers[0].posterior.moments()
    own = layers[0].posterior.inducing_inputs.detach()
    gain = oracle.covariance(layers[0], z, own) @ torch.linalg.inv(oracle.covariance(layers[0], own))
    whitening = torch.linalg.cholesky(oracle.covariance(layers[0], own)) @ root[0].detach()
    expected = (
        oracle.covariance(layers[0], z)
        - gain @ oracle.covariance(layers[0], own, z)
        + gain @ whitening @ whitening.mT @ gain.mT
    )
    check_moments(joint[:, :3], torch.zeros(3, dtype=torch.float64), expected)


def test_the_mean_function():
    x = torch.randn(30, 4)
    identity = inducing.Network([inducing.GPLayer(4, 4, mean="identity")], inducing_points=x).layers[0]
    assert torch.equal(identity.mean_rows(x), x)
    padded = inducing.Network([inducing.GPLayer(4, 6, mean="identity")], inducing_points=x).layers[0]
    assert torch.equal(padded.mean_rows(x), torch.nn.functional.pad(x, (0, 2)))
    x = x * torch.tensor([1.0, 10.0, 0.1, 5.0])
    projected = inducing.Network([inducing.GPLayer(4, 2, mean="identity")], inducing_points=x).layers[0]
    # the two directions of the largest variance
    assert projected.projection.abs().argmax(0).tolist() == [1, 3]
    torch.testing.assert_close(projected.projection.mT @ projected.projection, torch.eye(2))


def test_inducing_inputs_begin_where_the_data_lead():
    x = torch.randn(9, 3)
    network = inducing.models.deep_gp(3, 1, 3, posterior="dsvi", inducing_points=x)
    assert network.inducing_points is None
    assert all(torch.equal(layer.posterior.inducing_inputs, x) for layer in network.layers)
    unknown = inducing.models.deep_gp(3, 1, 2, posterior="dsvi", num_inducing=7)
    assert [layer.posterior.inducing_inputs.shape for layer in unknown.layers] == [(7, 3), (7, 3)]
    assert inducing.models.deep_gp(3, 1, posterior="dsvi").layers[0].posterior.inducing_inputs.shape == (100, 3)


@pytest.mark.parametrize("posterior", ["global", "local", "dsvi", "coupled", "dsvi->global"])
@pytest.mark.parametrize("consistent", [True, False])
def test_an_optimiser_step_does_not_alter_a_draw_in_float64(posterior, consistent):
    """Where nothing has to be converted, nothing may be shared either."""
    x, _ = data()
    network = inducing.models.deep_gp(2, 1, 2, posterior=posterior, inducing_points=x[:5])
    draw = network.draw(2, consistent=consistent)
    moments = [step.moments(x[None]) if isinstance(step, Process) else (step(x[None]),) for step in draw.function.steps]
    before = [tensor.detach().clone() for pair in moments for tensor in pair]
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1.0)
    moments = [step.moments(x[None]) if isinstance(step, Process) else (step(x[None]),) for step in draw.function.steps]
    after = [tensor.detach() for pair in moments for tensor in pair]
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))


def test_inducing_inputs_of_a_layers_own_can_be_fixed():
    x, y = data()
    network = inducing.models.deep_gp(2, 1, 2, posterior="dsvi", inducing_points=x, learn_inducing_locations=False)
    inducing.fit(network, inducing.Gaussian().double(), (x, y), num_steps=2, progress=False)
    assert torch.equal(network.layers[0].posterior.inducing_inputs, x)
    assert not torch.equal(network.layers[0].posterior.whitened_mean, torch.zeros(12, 2))


def test_coupled_values_begin_at_the_posterior_of_one_layer():
    x, y = data()
    layer = inducing.GPLayer(2, 1, posterior="coupled")
    network = inducing.Network([layer], inducing_points=x, inducing_targets=y)
    noise = math.exp(-3)
    prior = oracle.covariance(layer, x)
    expected = oracle.posterior(
        torch.zeros(12, dtype=torch.float64), prior, y[:, 0], torch.eye(12, dtype=torch.float64) / noise
    )
    with torch.no_grad():
        mean, variance = network.draw(1).function.steps[0].moments(x[None])
    torch.testing.assert_close(mean[0, :, 0], expected.mean, rtol=0, atol=1e-4)
    torch.testing.assert_close(variance[0, :, 0], expected.variance, rtol=0, atol=1e-4)


def test_float32_networks_compute_in_float64_inside():
    x = torch.randn(6, 2)
    network = inducing.models.deep_gp(2, 1, 2, inducing_points=x)
    draw = network.draw(2)
    assert draw.function.steps[0].inverse.dtype == torch.float64
    assert draw(x).dtype == draw.inducing.dtype == draw.layers[0].kl.dtype == torch.float32
    assert network.sample_functions(2)(x).dtype == torch.float32


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: inducing.GPLayer(0, 1), "must be at least 1"),
        (lambda: inducing.GPLayer(2, 1, mean="linear"), "mean must be one of"),
        (lambda: inducing.GPLayer(2, 1, jitter=0.0), "jitter is relative to the variance"),
        (lambda: inducing.GPLayer(2, 1, num_features=0), "num_features must be at least 1"),
        (
            lambda: inducing.GPLayer(2, 1, kernel="gaussian"),
            r"unknown kernel 'gaussian'.*SquaredExponential\(...\), Matern12",
        ),
        (lambda: inducing.Network([inducing.GPLayer(2, 1, posterior="factorised")]), "not over the values"),
        (lambda: inducing.Network([inducing.Linear(2, 1, posterior="dsvi")]), "not over weights"),
        (lambda: inducing.Network([inducing.GPLayer(2, 1)]), "needs inducing points"),
        (
            lambda: inducing.Network([inducing.GPLayer(5, 2, mean="identity")], num_inducing=4),
            "projects onto principal components",
        ),
        (
            lambda: inducing.Network([nn.Flatten(), inducing.GPLayer(2, 1)], inducing_points=torch.randn(4, 3)),
            "rows of 2 features",
        ),
        (lambda: inducing.models.deep_gp(2, 1, 0, num_inducing=3), "num_layers must be at least 1"),
        (lambda: inducing.DSVI(initial_scale=0.0), "initial_scale must be positive"),
        (lambda: inducing.DSVI(num_inducing=0), "num_inducing must be at least 1"),
    ],
)
def test_bad_input_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("posterior", ["global", "dsvi", "local"])
def test_values_below_a_normalisation_are_sampled_and_not_integrated_out(posterior):
    """The statistics come from the values at the inducing points, so the function must pass through the same values."""
    x, _ = data()
    layers = [inducing.GPLayer(2, 3, posterior=posterior), inducing.InducingNorm()]
    network = inducing.Network(layers, inducing_points=x)
    draw = network.draw(2, torch.Generator().manual_seed(0))
    mean, variance = draw.function.steps[0].moments(x[None].expand(2, -1, -1))
    # up to the jitter, a noise of standard deviation 1e-3
    torch.testing.assert_close(mean, draw.layers[0].inducing, rtol=0, atol=1e-2)
    assert variance.max() < 1e-4


@pytest.mark.parametrize("posterior", ["dsvi", "local", "global", "coupled"])
@pytest.mark.parametrize("num_samples", [1, 3])
def test_an_empty_batch_has_empty_outputs(posterior, num_samples):
    points = torch.randn(4, 2)
    network = inducing.models.deep_gp(2, 1, posterior=posterior, inducing_points=points, inducing_targets=points[:, :1])
    assert network(torch.zeros(0, 2), num_samples=num_samples).shape == (num_samples, 0, 1)
