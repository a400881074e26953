"""New data without a new fit. Oracle: for one layer, the result is that of a fit to all rows."""

import pytest
import torch

import inducing
from inducing.nn.last_layer import draw_last_layer, noise_variance, update

NOISE = 0.3
X = torch.randn(12, 2, generator=torch.Generator().manual_seed(0)).double()
Y = torch.stack([X[:, 0].sin(), X.prod(1)], 1)


def one_layer(kind, rows):
    settings = {"inducing_points": X[:rows], "inducing_targets": Y[:rows], "learn_inducing_locations": False}
    layer = inducing.Linear(2, 2, posterior="optimal")
    if kind == "gp":
        layer = inducing.GPLayer(2, 2, posterior="optimal", jitter=1e-9)
    return inducing.Network([layer], **settings)


@pytest.mark.parametrize("kind", ["linear", "gp"])
def test_one_layer_equals_a_fit_to_all_rows(kind):
    likelihood = inducing.Gaussian(NOISE).double()
    updated = inducing.update(one_layer(kind, 7), likelihood, (X[7:9], Y[7:9]))
    updated = inducing.update(updated, likelihood, (X[9:], Y[9:]))
    found = inducing.predict(updated, likelihood, 1.5 * X, 1500)
    expected = inducing.predict(one_layer(kind, 12), likelihood, 1.5 * X, 1500)
    spread = expected.epistemic.sqrt()
    # standard errors of a mean and of a standard deviation of 1,500 draws: 2.6 % and 1.8 % of the standard deviation
    assert ((found.mean - expected.mean) / spread).abs().max() < 0.14
    assert (found.epistemic.sqrt() / spread - 1).abs().max() < 0.14


@pytest.mark.parametrize("last", [inducing.Linear, inducing.GPLayer])
@pytest.mark.parametrize("noise", [inducing.Gaussian, inducing.HeteroscedasticGaussian])
def test_functions_are_the_draws_with_their_correction(last, noise):
    likelihood = noise().double()
    outputs = 2 if noise is inducing.Gaussian else 4
    layers = [inducing.Linear(2, 3), torch.nn.Tanh(), last(3, outputs)]
    network = inducing.Network(layers, inducing_points=X[:5])
    functions = inducing.update(network, likelihood, (X[:3], Y[:3])).sample_functions(6, seed=2)
    draws = draw_last_layer(network, 6, 2, likelihood)
    covariance, rows, new = draws.covariance.select([0, 1]), draws.below(X[None, :3]), draws.below(X[None])
    drawn = likelihood.mean(draws.last(rows))
    generator = inducing.linalg.noise.seeded(2, "noise of new data")
    noise = torch.randn(drawn.shape, dtype=torch.float64, generator=generator)
    found = update(covariance, rows, drawn, Y[:3], noise_variance(likelihood, draws.last(rows)), noise)
    expected = likelihood.mean(draws.last(new)) + found.correct(covariance, new)
    torch.testing.assert_close(likelihood.mean(functions(X)), expected)
    if outputs == 4:
        # the noise is not updated
        torch.testing.assert_close(functions(X)[..., 2:], draws.last(new)[..., 2:])


def test_updated_functions_are_saved_and_the_network_is_not_changed(tmp_path):
    network, likelihood = inducing.models.deep_gp(2, 2, 2, inducing_points=X[:5].float()), inducing.Gaussian()
    before = network.sample_functions(2)(X.float())
    functions = inducing.update(network, likelihood, (X.float(), Y.float())).sample_functions(3)
    assert torch.equal(network.sample_functions(2)(X.float()), before)
    inducing.save(functions, tmp_path / "functions.safetensors")
    assert torch.equal(inducing.load(tmp_path / "functions.safetensors")(X.float()), functions(X.float()))


def test_many_rows_update_a_gaussian_process_nearly_as_the_dense_matrix_does():
    x = torch.rand(300, 1, generator=torch.Generator().manual_seed(1)).double() * 4 - 2
    y, likelihood = (3 * x).sin(), inducing.Gaussian(0.04).double()
    torch.manual_seed(0)
    layers = [inducing.GPLayer(1, 1, mean="identity"), inducing.GPLayer(1, 1)]
    network = inducing.Network(layers, inducing_points=x[:5])
    found, expected = (
        inducing.predict(inducing.update(network, likelihood, (x, y), num_inducing=number), likelihood, x, 50)
        for number in (60, 300)
    )
    # the same draws of the layers below, conditioned approximately and exactly: a tenth of the noise, and 30 %
    assert (found.mean - expected.mean).abs().max() < 0.1 * 0.04**0.5
    assert (found.epistemic.sqrt() / expected.epistemic.sqrt()).log().abs().median() < 0.3


def test_later_changes_of_the_arguments_have_no_effect():
    network, likelihood, y = one_layer("linear", 7), inducing.Gaussian(NOISE).double(), Y[7:9].clone()
    updated = inducing.update(inducing.update(network, likelihood, (X[7:9], y)), likelihood, (X[9:], Y[9:]))
    before = updated.sample_functions(2)(X)
    y += 100
    with torch.no_grad():
        likelihood.scaled_log_variance.add_(1)
    assert torch.equal(updated.sample_functions(2)(X), before)


def test_more_data_keep_the_number_of_inducing_points():
    network, likelihood = one_layer("gp", 7), inducing.Gaussian(NOISE).double()
    updated = inducing.update(network, likelihood, (X[7:9], Y[7:9]), num_inducing=3)
    assert inducing.update(updated, likelihood, (X[9:], Y[9:])).num_inducing == 3
    network = inducing.models.mlp(2, 2, [3], inducing_points=X[:5])
    trained = inducing.update(network, likelihood, (X[7:], Y[7:]), 1, num_inducing=3, progress=False)
    assert trained.num_inducing == 8


def test_a_deep_gaussian_process_learns_its_kernels_again_after_steps():
    network = inducing.models.deep_gp(2, 2, 2, inducing_points=X[:5])
    trained = inducing.update(network, inducing.Gaussian().double(), (X, Y), 2, progress=False)
    learned = [[p.requires_grad for p in each.parameters()] for each in (network, trained)]
    assert learned[0] == learned[1]
    kernels = [dict(each.layers[0].kernel.named_parameters()) for each in (network, trained)]
    assert all(torch.equal(kernels[1][name], kernel) for name, kernel in kernels[0].items())
    assert torch.equal(trained.inducing_points[:5], network.inducing_points)


@pytest.mark.parametrize("posterior", ["global", "factorised", "local"])
def test_steps_learn_a_region_that_the_fit_did_not_see(posterior):
    x = torch.linspace(-2, 2, 40)[:, None].double()
    y, old = (2 * x).sin(), (x < 0).squeeze()
    torch.manual_seed(0)
    network = inducing.models.mlp(1, 1, [20], posterior=posterior, inducing_points=x[old])
    likelihood = inducing.Gaussian(0.05).double()
    inducing.fit(network, likelihood, (x[old], y[old]), num_steps=200, progress=False)
    before = inducing.predict(network, likelihood, x).log_prob(y)
    parameters = [parameter.detach().clone() for parameter in network.parameters()]
    noise = likelihood.variance(y[None]).mean()
    trained = inducing.update(network, likelihood, (x[~old], y[~old]), num_steps=200, progress=False)
    after = inducing.predict(trained, likelihood, x).log_prob(y)
    assert after[~old].mean() > before[~old].mean() + 0.3
    assert after[old].mean() > before[old].mean() - 0.5
    # neither the network nor the likelihood was changed
    assert all(torch.equal(*pair) for pair in zip(parameters, network.parameters(), strict=True))
    assert likelihood.variance(y[None]).mean() == noise
    learned = [[p.requires_grad for p in each.parameters()] for each in (network, trained)]
    assert learned[0] == learned[1]


def test_bad_arguments():
    network, likelihood = one_layer("linear", 7), inducing.Gaussian(NOISE).double()
    with pytest.raises(TypeError, match="num_steps"):
        inducing.update(network, likelihood, (X, Y), learning_rate=0.1)
    with pytest.raises(ValueError, match="num_inducing"):
        inducing.update(network, likelihood, (X, Y), num_inducing=-1)
    with pytest.raises(ValueError, match="Optimal"):
        inducing.update(network, likelihood, (X, Y), num_steps=3)
    with pytest.raises(TypeError, match="pair"):
        inducing.update(network, likelihood, X)
    with pytest.raises(ValueError, match="same number of rows"):
        inducing.update(network, likelihood, (X, Y[:3]))
    with pytest.raises(TypeError, match="Network"):
        inducing.update(torch.nn.Linear(2, 2), likelihood, (X, Y))
    with pytest.raises(TypeError, match="Poisson"):
        inducing.update(inducing.models.mlp(2, 2, [3], inducing_points=X), inducing.Poisson(), (X, Y.abs().round()))
    ending = inducing.Network([inducing.Linear(2, 2), torch.nn.Tanh()], inducing_points=X)
    with pytest.raises(ValueError, match="last layer"):
        inducing.update(ending, likelihood, (X, Y))
