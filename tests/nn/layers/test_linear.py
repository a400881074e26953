import pytest
import torch
from torch import nn

import inducing
from inducing.nn.layers.linear import Affine, ReparameterisedAffine
from tests.oracles import linear_regression as oracle


def one_layer(x, y, noise_variance, *, bias=True, precision="shared", prior="neal", kl="sample"):
    """A layer with inducing points at the data, pseudo-outputs at the targets and Lambda the noise precision."""
    posterior = inducing.GlobalInducing(precision, -torch.log(torch.tensor(noise_variance)).item(), kl)
    layer = inducing.Linear(x.shape[1], y.shape[1], bias, prior, posterior)
    return inducing.Network([layer], inducing_points=x, inducing_targets=y)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("precision", ["shared", "per_output", "full", "full_per_output"])
@pytest.mark.parametrize("prior", ["neal", "standard"])
@pytest.mark.parametrize(("rows", "features"), [(20, 3), (4, 9)])
def test_every_elbo_sample_equals_the_evidence(rows, features, prior, precision, bias):
    """The optimal posterior of one layer makes the bound tight, sample by sample, with zero variance."""
    x, y = torch.randn(rows, features, dtype=torch.float64), torch.randn(rows, 2, dtype=torch.float64)
    network = one_layer(x, y, 0.3, bias=bias, precision=precision, prior=prior)
    likelihood = inducing.Gaussian(0.3, learn_variance=False).double()
    # exact values, not those that float32 specifications were rounded to
    with torch.no_grad():
        log_noise = torch.log(torch.tensor(0.3, dtype=torch.float64))
        likelihood.scaled_log_variance.copy_(log_noise / 10)
        network.layers[0].posterior.scaled_log_precision.fill_((-log_noise / 3).item())
    samples = inducing.ELBO(network, likelihood, num_data=rows)(x, y, num_samples=100).samples
    design = torch.cat([x, torch.ones(rows, 1, dtype=torch.float64)], 1) if bias else x
    scale = design.shape[1] if prior == "neal" else 1.0
    evidence = oracle.log_evidence(design, y, scale * torch.eye(design.shape[1], dtype=torch.float64), 0.3)
    torch.testing.assert_close(samples, evidence.expand(100), rtol=1e-8, atol=1e-8)


def test_the_bias_is_the_last_weight():
    weights = torch.randn(2, 4, 3)
    x = torch.randn(1, 5, 3)
    with_ones = torch.cat([x, torch.ones(1, 5, 1)], -1)
    torch.testing.assert_close(Affine(weights, bias=True)(x), with_ones @ weights)
    torch.testing.assert_close(Affine(weights, bias=False)(with_ones), with_ones @ weights)


def test_local_reparameterisation_has_the_moments_of_weight_sampling():
    layer = inducing.Linear(3, 2, posterior=inducing.Factorised(local_reparameterisation=True, initial_variance=0.3))
    network = inducing.Network([layer])
    x = torch.randn(4, 3)
    generator, count = torch.Generator().manual_seed(0), 20_000
    draw = network.draw(count, generator)
    assert isinstance(draw.function.steps[0], ReparameterisedAffine)
    assert not draw.function.consistent
    resampled = draw(x)
    assert not torch.equal(draw(x), resampled)
    weights = network.draw(count, generator, consistent=True)(x)
    assert torch.equal(layer.posterior.closed_form_kl(layer.prior(1).precision).expand(count), draw.layers[0].kl)
    z = (resampled.mean(0) - weights.mean(0)) / (weights.var(0) * 2 / count).sqrt()
    assert z.abs().max() < 4
    z = (resampled.var(0) / weights.var(0) - 1) / (2 * 2 / count) ** 0.5
    assert z.abs().max() < 4
    # rows are independent given x, unlike those of one function
    correlation = torch.corrcoef(resampled[:, :2, 0].mT)[0, 1]
    assert abs(correlation) < 4 / count**0.5


def test_local_reparameterisation_has_gradients_where_all_inputs_are_zero():
    layer = inducing.Linear(2, 4, bias=False, posterior=inducing.Factorised(local_reparameterisation=True))
    network = inducing.Network([layer])
    network(torch.zeros(3, 2), 2).sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in network.parameters())


def test_the_optimal_last_layer_makes_the_bound_tight_given_the_layers_below():
    """prior->optimal: each ELBO sample is the log evidence of linear regression on that sample's features."""
    x, y = torch.randn(20, 3, dtype=torch.float64), torch.randn(20, 2, dtype=torch.float64)
    network = inducing.models.mlp(
        3, 2, [6], posterior="prior->optimal", inducing_points=x, inducing_targets=y, learn_inducing_locations=False
    )
    likelihood = inducing.Gaussian([0.3, 0.7]).double()
    terms = inducing.ELBO(network, likelihood, 20)(x, y, 5, generator=torch.Generator().manual_seed(0))
    draw = network.draw(5, torch.Generator().manual_seed(0), likelihood=likelihood)
    for sample in range(5):
        features = draw.layers[0].inducing[sample].relu()
        design = torch.cat([features, torch.ones(20, 1, dtype=torch.float64)], 1)
        precision = 7 * torch.eye(7, dtype=torch.float64)
        evidence = sum(
            oracle.log_evidence(design, y[:, o : o + 1], precision, likelihood.noise_variance[o]) for o in range(2)
        )
        torch.testing.assert_close(terms.samples[sample], evidence, rtol=1e-8, atol=1e-8)


def test_the_gradient_of_an_optimal_layer_is_that_of_the_evidence():
    """Sample by sample, without noise, for the inputs as for the noise variance."""
    x, y = torch.randn(20, 3, dtype=torch.float64), torch.randn(20, 2, dtype=torch.float64)
    layer = inducing.Linear(3, 2, bias=False, prior="standard", posterior="optimal")
    network = inducing.Network([layer], x, y, learn_inducing_locations=False)
    likelihood = inducing.Gaussian(0.3).double()
    features = x.clone().requires_grad_()
    network.inducing_points = features
    variables = (features, likelihood.scaled_log_variance)
    samples = inducing.ELBO(network, likelihood, 20)(features, y, num_samples=4).samples
    evidence = oracle.log_evidence(features, y, torch.eye(3, dtype=torch.float64), likelihood.noise_variance)
    expected = torch.autograd.grad(evidence, variables)
    for sample in samples:
        found = torch.autograd.grad(sample, variables, retain_graph=True)
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-7)


def test_the_optimal_last_layer_follows_the_noise_that_is_learned():
    x = torch.randn(20, 3)
    network = inducing.models.mlp(
        3,
        1,
        [6],
        posterior="global->optimal",
        inducing_points=x,
        inducing_targets=x[:, :1],
        learn_inducing_locations=False,
    )
    likelihood = inducing.Gaussian(0.5)
    elbo = inducing.ELBO(network, likelihood, 20)
    assert len(list(elbo.parameters())) == len({id(p) for p in elbo.parameters()})
    (-elbo(x, x[:, :1], 3).objective).backward()
    assert all(parameter.grad is not None for parameter in elbo.parameters())
    assert likelihood.scaled_log_variance.grad.abs() > 0
    inducing.fit(network, likelihood, (x, x[:, :1]), num_steps=5, progress=False)
    assert inducing.predict(network, likelihood, x).mean.shape == (20, 1)
    assert not [name for name in network.state_dict() if "likelihood" in name]
    with pytest.raises(ValueError, match="for 20 rows, but there are 10 data points"):
        inducing.fit(network, likelihood, (x[:10], x[:10, :1]), num_steps=1, progress=False)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: inducing.models.mlp(3, 1, posterior="global->optimal", inducing_points=x, inducing_targets=x[:, :1]), "learn_inducing_locations=False"),
        (lambda x: inducing.models.mlp(3, 1, posterior="global->optimal", inducing_points=x, learn_inducing_locations=False), "needs the training data"),
        (lambda x: inducing.models.mlp(3, 1, posterior="optimal", inducing_points=x, inducing_targets=x[:, :1], learn_inducing_locations=False), "is for the last layer"),
    ],
)  # fmt: skip
def test_the_optimal_posterior_is_refused_where_it_is_not_optimal(make, message):
    with pytest.raises(ValueError, match=message):
        make(torch.randn(5, 3))


def test_the_optimal_posterior_needs_a_gaussian_likelihood():
    x = torch.randn(5, 3)
    network = inducing.models.mlp(
        3, 2, posterior="global->optimal", inducing_points=x, inducing_targets=x[:, :2], learn_inducing_locations=False
    )
    with pytest.raises(ValueError, match="likelihood="):
        network(x)
    with pytest.raises(TypeError, match="Gaussian likelihood, got Categorical"):
        inducing.ELBO(network, inducing.Categorical(), 5)


def test_a_layer_belongs_to_one_network():
    layer = inducing.Linear(3, 3, posterior="factorised")
    inducing.Network([layer])
    with pytest.raises(RuntimeError, match="already part of a network"):
        inducing.Network([layer])
    twice = inducing.Linear(3, 3, posterior="factorised")
    with pytest.raises(RuntimeError, match=r"layers\.2 Linear.*already part of a network"):
        inducing.Network([twice, nn.ReLU(), twice])


def test_an_unbuilt_layer_says_so():
    with pytest.raises(RuntimeError, match="no parameters yet"):
        inducing.Linear(3, 3).sample("layers.0", None, inducing.nn.DrawContext(1))


@pytest.mark.parametrize("sizes", [(0, 1), (1, 0), (-1, 2)])
def test_impossible_sizes(sizes):
    with pytest.raises(ValueError, match="at least 1"):
        inducing.Linear(*sizes)


def test_the_repr_tells_the_specification():
    assert "Linear(3, 2, NealPrior(), GlobalInducing(precision='full'" in repr(
        inducing.Linear(3, 2, posterior=inducing.GlobalInducing("full"))
    )
