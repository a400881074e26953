"""The exact last layer under noise that depends on the inputs, against dense Gaussians."""

import math

import pytest
import torch
from torch.distributions import MultivariateNormal

import inducing

SAMPLES, TARGETS = 5, 2


def problem(rows=12, features=3):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, features, generator=generator, dtype=torch.float64)
    y = torch.randn(rows, TARGETS, generator=generator, dtype=torch.float64)
    return x, y


def one_layer(x, y):
    """A network of one layer with random pseudo-outputs of the noise."""
    posterior = inducing.OptimalInducing(heteroscedastic=True)
    layer = inducing.Linear(x.shape[1], 2 * TARGETS, bias=False, prior="standard", posterior=posterior)
    deviations = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).reshape(y.shape)
    return inducing.Network([layer], x, torch.cat([y, deviations], 1), learn_inducing_locations=False)


def noise_posterior(network, x):
    """Q(w_g) = N(A^-1 X' Lambda v, A^-1), A = I + X' Lambda X, for each target."""
    values, root = network.layers[0].posterior.of_noise.pseudo_data()
    precision = torch.diag(root[0].square())
    covariance = torch.linalg.inv(torch.eye(x.shape[1], dtype=x.dtype) + x.T @ precision @ x)
    return [MultivariateNormal(covariance @ x.T @ precision @ values[:, k], covariance) for k in range(TARGETS)]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("rows", "features"), [(12, 3), (4, 9)])
def test_every_sample_is_the_evidence_given_its_noise(rows, features, weighted):
    x, y = problem(rows, features)
    network, likelihood = one_layer(x, y), inducing.HeteroscedasticGaussian([0.3, 0.7]).double()
    weights = torch.arange(1.0, rows + 1).double() if weighted else torch.ones(rows).double()
    network.optimal_last.set_row_weights(weights)
    terms = inducing.ELBO(network, likelihood, rows)(
        x, y, SAMPLES, generator=torch.Generator().manual_seed(1), weights=weights
    )
    draw = network.draw(SAMPLES, torch.Generator().manual_seed(1), likelihood=likelihood)
    w_g = draw.function.steps[0].weights[..., TARGETS:]
    prior = MultivariateNormal(x.new_zeros(features), torch.eye(features, dtype=x.dtype))
    for sample in range(SAMPLES):
        expected = 0.0
        variance = likelihood.log_noise_variance(x @ w_g[sample]).exp()
        for k, posterior in enumerate(noise_posterior(network, x)):
            # sum_n weight_n log N(y_n; f_n, v_n) is log N(y; f, v / weight) up to what does not depend on f
            v, w = variance[:, k], weights
            constant = (torch.log(v / w) - w * torch.log(v) + (1 - w) * math.log(2 * math.pi)).sum() / 2
            evidence = MultivariateNormal(x.new_zeros(rows), x @ x.T + torch.diag(v / w)).log_prob(y[:, k])
            kl = posterior.log_prob(w_g[sample, :, k]) - prior.log_prob(w_g[sample, :, k])
            expected += evidence + constant - kl
        torch.testing.assert_close(terms.samples[sample], expected, rtol=1e-8, atol=1e-8)


def test_the_noise_has_its_own_posterior():
    x, y = problem()
    network, likelihood = one_layer(x, y), inducing.HeteroscedasticGaussian().double()
    w_g = (
        network.draw(20_000, torch.Generator().manual_seed(0), likelihood=likelihood)
        .function.steps[0]
        .weights[..., TARGETS:]
    )
    for k, posterior in enumerate(noise_posterior(network, x)):
        z = (w_g[..., k].mean(0) - posterior.mean) / (posterior.variance / len(w_g)).sqrt()
        assert z.abs().max() < 4


def test_the_gradient_of_the_noise_variance_is_that_of_the_evidence():
    """Sample by sample, given the weights of the noise."""
    x, y = problem()
    network, likelihood = one_layer(x, y), inducing.HeteroscedasticGaussian(0.3).double()
    samples = inducing.ELBO(network, likelihood, 12)(x, y, SAMPLES, generator=torch.Generator().manual_seed(1)).samples
    draw = network.draw(SAMPLES, torch.Generator().manual_seed(1), likelihood=likelihood)
    w_g = draw.function.steps[0].weights[..., TARGETS:].detach()
    parameter = likelihood.scaled_log_variance
    for sample in range(SAMPLES):
        variance = likelihood.log_noise_variance(x @ w_g[sample]).exp()
        evidence = sum(
            MultivariateNormal(x.new_zeros(12), x @ x.T + torch.diag(variance[:, k])).log_prob(y[:, k])
            for k in range(TARGETS)
        )
        (expected,) = torch.autograd.grad(evidence, parameter)
        (found,) = torch.autograd.grad(samples[sample], parameter, retain_graph=True)
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-7)


def test_it_is_no_worse_than_learned_pseudo_outputs():
    """With the weights of the noise as they are, any other posterior of the means has a lower ELBO."""
    x, y = problem(40)
    likelihood = inducing.HeteroscedasticGaussian().double()
    exact = one_layer(x, y)
    learned = inducing.models.mlp(
        3, 2 * TARGETS, [], inducing_points=x, inducing_targets=torch.cat([y, 0 * y], 1), prior="standard"
    )
    inducing.fit(learned, likelihood, (x, y), inducing.Recipe(num_steps=150, learning_rate=0.05), progress=False)
    inducing.fit(exact, likelihood, (x, y), inducing.Recipe(num_steps=150, learning_rate=0.05), progress=False)
    elbos = [inducing.evaluate(each, likelihood, (x, y), 500).elbo_per_datapoint.item() for each in (exact, learned)]
    assert elbos[0] > elbos[1]


def test_noise_that_grows_with_the_input_is_learned():
    generator = torch.Generator().manual_seed(0)
    x = torch.linspace(-2, 2, 150, dtype=torch.float64)[:, None]
    y = x.sin() + (x - 1.5).exp() * torch.randn(150, 1, generator=generator, dtype=torch.float64)
    network = inducing.models.mlp(
        1,
        2,
        [20],
        posterior=["global", inducing.OptimalInducing(heteroscedastic=True)],
        inducing_points=x,
        inducing_targets=torch.cat([y, 0 * y], 1),
        learn_inducing_locations=False,
    )
    likelihood = inducing.HeteroscedasticGaussian().double()
    inducing.fit(network, likelihood, (x, y), inducing.Recipe(num_steps=150, learning_rate=0.05), progress=False)
    found = inducing.predict(network, likelihood, x, 200).aleatoric.sqrt().log()
    assert torch.corrcoef(torch.stack([found[:, 0], x[:, 0] - 1.5]))[0, 1] > 0.9


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_extreme_targets_and_equal_rows(scale):
    x, y = problem(20)
    x, y = torch.cat([x, x]), scale * torch.cat([y, y])
    network, likelihood = one_layer(x, y).float(), inducing.HeteroscedasticGaussian()
    terms = inducing.ELBO(network, likelihood, 40)(x.float(), y.float(), 4)
    terms.objective.backward()
    assert torch.isfinite(terms.samples).all()
    assert all(torch.isfinite(parameter.grad).all() for parameter in network.parameters() if parameter.requires_grad)


def test_unsupported_settings_are_refused():
    x, y = problem()
    with pytest.raises(TypeError, match="HeteroscedasticGaussian likelihood, got Gaussian"):
        inducing.ELBO(one_layer(x, y), inducing.Gaussian(), 12)
    optimal = inducing.OptimalInducing(heteroscedastic=True)
    places = {"inducing_points": x, "learn_inducing_locations": False}
    with pytest.raises(ValueError, match="two outputs per target"):
        inducing.models.mlp(3, 1, [], posterior=[optimal], inducing_targets=y[:, :1], **places)
    with pytest.raises(ValueError, match="not available in a GPLayer"):
        inducing.models.deep_gp(3, 2, 1, posterior=[optimal], inducing_targets=y, **places)
    with pytest.raises(ValueError, match="likelihood="):
        one_layer(x, y).draw(1)
