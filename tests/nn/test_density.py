"""Log-densities of given weights and values: those of their own draws, of dense algebra, and of other networks."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import Gamma, MultivariateNormal, Normal

import inducing
from inducing.linalg.noise import seeded
from inducing.nn import PriorModule, Variables, WeightModule
from inducing.nn.posteriors.factorised import FactorisedWeights
from inducing.nn.priors.fixed import FixedScale
from tests.oracles import gaussian_process as oracle

X = torch.linspace(-2, 2, 36, dtype=torch.float64).sin().reshape(12, 3)
Y = X.sum(1, keepdim=True).tanh()
IMAGES = torch.linspace(-3, 3, 5 * 36, dtype=torch.float64).cos().reshape(5, 1, 6, 6)
SAMPLED = inducing.Factorised(kl="sample")
NOISE = inducing.Gaussian(0.1).double()


def mlp(posterior, prior="neal", rows=8, **settings):
    points = {"inducing_points": X[:rows], **settings}
    return inducing.models.mlp(3, 2, [7], posterior=posterior, prior=prior, **points).double()


def deep_gp(posterior, rows=4):
    return inducing.models.deep_gp(3, 2, 3, width=2, posterior=posterior, inducing_points=X[:rows]).double()


def convolution(posterior="global", boundary="circular", prior="neal", images=5):
    layers = [inducing.Conv2d(1, 3, 3, padding=1, posterior=posterior, boundary=boundary, prior=prior), nn.ReLU()]
    layers += [inducing.Conv2d(3, 2, 3, stride=2), inducing.InducingNorm(), nn.Flatten(), inducing.Linear(8, 1)]
    return inducing.Network(layers, inducing_points=IMAGES[:images]).double()


def residual():
    body = inducing.Residual(nn.Tanh(), inducing.Linear(5, 5), shortcut=inducing.Linear(5, 5, posterior=SAMPLED))
    layers = [inducing.Linear(3, 5, bias=False), body, inducing.Linear(5, 2, posterior="prior")]
    return inducing.Network(layers, inducing_points=X[:6])


def network_under_gp():
    layers = [inducing.Linear(3, 4), nn.Tanh(), inducing.GPLayer(4, 4, mean="identity"), inducing.GPLayer(4, 1)]
    return inducing.Network(layers, inducing_points=X[:5])


def optimal(last, heteroscedastic=False):
    targets = torch.cat([Y, 0 * Y], 1) if heteroscedastic else Y
    points = {"inducing_points": X, "inducing_targets": targets, "learn_inducing_locations": False}
    posterior = inducing.OptimalInducing(heteroscedastic)
    outputs = targets.shape[1]
    layer = (
        inducing.Linear(5, outputs, posterior=posterior)
        if last == "linear"
        else inducing.GPLayer(5, 1, posterior=posterior)
    )
    return inducing.Network([inducing.Linear(3, 5), nn.ReLU(), layer], **points).double()


def spatial(name):
    return {"spatial-iw": inducing.SpatialIWPrior, "channel-iw": inducing.ChannelIWPrior}[name]("sample")


# networks whose KLs are sampled
CASES = {
    "factorised": lambda: mlp(SAMPLED),
    "local": lambda: mlp("local"),
    "local, few": lambda: mlp(inducing.LocalInducing(2)),
    "global": lambda: mlp("global"),
    "global, dual": lambda: mlp("global", rows=3),
    "global, per output": lambda: mlp(inducing.GlobalInducing("per_output")),
    "global, full per output, dual": lambda: mlp(inducing.GlobalInducing("full_per_output"), rows=3),
    "prior->global": lambda: mlp("prior->global"),
    "mixed": lambda: mlp([SAMPLED, "global"]),
    "pixels": lambda: mlp("global", spatial("spatial-iw")),
    "channels": lambda: mlp("local", spatial("channel-iw")),
    "Kronecker": lambda: mlp("global", inducing.KroneckerIWPrior("sample")),
    "convolution": convolution,
    "convolution, exact": lambda: convolution(boundary="exact"),
    "convolution, dual": lambda: convolution(images=1),
    "convolution, factorised": lambda: convolution(SAMPLED, prior=inducing.KroneckerIWPrior("sample")),
    "convolution, local": lambda: convolution("local", prior=spatial("spatial-iw")),
    "residual": residual,
    "network under a process": network_under_gp,
    "process, global": lambda: deep_gp("global"),
    "process, local": lambda: deep_gp("local"),
    "process, coupled": lambda: deep_gp("coupled"),
    "process, prior": lambda: deep_gp("prior"),
    "process, local below global": lambda: deep_gp("local->global"),
    "process, global below local": lambda: deep_gp("global->local"),
    "optimal": lambda: optimal("linear"),
    "optimal, process": lambda: optimal("process"),
    "optimal, heteroscedastic": lambda: optimal("linear", heteroscedastic=True),
}


def likelihood_of(name):
    return inducing.HeteroscedasticGaussian().double() if name.endswith("heteroscedastic") else NOISE


@pytest.mark.parametrize("consistent", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_density_of_its_own_draw_is_that_of_the_draw(name, consistent):
    network, likelihood = CASES[name](), likelihood_of(name)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    draw = network.draw(4, consistent=consistent, likelihood=likelihood)
    density = network.log_density(draw, likelihood)
    for layer, posterior, prior in zip(draw.layers, density.posterior, density.prior, strict=True):
        torch.testing.assert_close(posterior - prior, layer.kl + layer.prior_kl, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(
        density.kl, sum(layer.kl + layer.prior_kl for layer in draw.layers), rtol=1e-9, atol=1e-9
    )


def test_a_linear_layer_has_the_density_of_dense_algebra():
    """Q(w) = N(A^-1 X'Lambda v, A^-1), A = P + X'Lambda X, for each output; P(w) = N(0, I / 8)."""
    network = mlp(inducing.GlobalInducing("full_per_output"))
    draw = network.draw(3)
    inducing_rows = torch.cat([draw.layers[0].inducing.relu(), torch.ones(3, 8, 1)], -1)
    posterior, weights = network.layers[2].posterior, draw.layers[1].variables.values
    density = network.log_density(draw)
    for sample, rows in enumerate(inducing_rows):
        expected = 0.0
        for output in range(2):
            precision = oracle.precision_of(posterior.precision_root(), output)
            covariance = torch.linalg.inv(8 * torch.eye(8) + rows.mT @ precision @ rows)
            mean = covariance @ rows.mT @ precision @ posterior.pseudo_outputs[:, output]
            normal = MultivariateNormal(mean, covariance_matrix=(covariance + covariance.mT) / 2)
            expected += normal.log_prob(weights[sample, :, output]).item()
        assert density.posterior[1, sample].item() == pytest.approx(expected, rel=1e-9)
        prior = Normal(0, math.sqrt(1 / 8)).log_prob(weights[sample]).sum().item()
        assert density.prior[1, sample].item() == pytest.approx(prior, rel=1e-6)


@pytest.mark.parametrize("posterior", ["global", "dsvi", "coupled"])
def test_a_process_has_the_density_of_dense_algebra(posterior):
    network = inducing.Network([inducing.GPLayer(3, 2, posterior=posterior)], inducing_points=X[:5]).double()
    layer, module = network.layers[0], network.layers[0].posterior
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    draw = network.draw(3)
    inputs = X[:5] if module.inducing_inputs is None else module.inducing_inputs.detach()
    prior = oracle.covariance(layer, inputs)
    root, values = torch.linalg.cholesky(prior), draw.layers[0].variables.values
    density = network.log_density(draw)
    for output in range(2):
        if posterior == "global":
            precision = oracle.precision_of(module.precision_root(), output)
            normal = oracle.posterior(torch.zeros(5).double(), prior, module.pseudo_outputs[:, output], precision)
        else:
            scale = (3 * module.scaled_log_scale[output]).exp()
            spread = scale[:, None] * (torch.eye(5) + module.root_lower[output].tril(-1))
            outer = root if posterior == "dsvi" else module.reference_root
            mean = module.whitened_mean if posterior == "dsvi" else module.relative_mean
            shift = 0.0 if posterior == "dsvi" else module.reference_mean[:, output]
            normal = MultivariateNormal(shift + outer @ mean[:, output], scale_tril=outer @ spread)
        density = density._replace(
            posterior=density.posterior - normal.log_prob(values[..., output]),
            prior=density.prior - MultivariateNormal(torch.zeros(5).double(), prior).log_prob(values[..., output]),
        )
    assert density.posterior.abs().max() < 1e-8
    assert density.prior.abs().max() < 1e-8


def test_the_scale_of_a_prior_adds_its_gamma_densities():
    network = mlp("global", inducing.ScalePrior(initial=5.0))
    draw = network.draw(4)
    density, variables = network.log_density(draw), draw.layers[0].variables
    scale = variables.precision.scale / 4
    of_scale = Gamma(7.0, 7.0).log_prob(scale) - Gamma(2.0, 2.0).log_prob(scale)
    expected = draw.layers[0].kl + of_scale
    torch.testing.assert_close(density.posterior[0] - density.prior[0], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "make", [lambda: mlp("global", rows=3), lambda: deep_gp("global", rows=3)], ids=["weights", "values"]
)
def test_densities_of_another_posterior_integrate_to_one(make):
    """E[Q'(w) / Q(w)] = 1 for w ~ Q and another posterior Q' of the same layers."""
    network = make()
    other = make()
    other.load_state_dict(network.state_dict())
    with torch.no_grad():
        for module in (layer.posterior for _, layer in other.layers.bayesian_layers()):
            module.pseudo_outputs += 0.1 * torch.randn_like(module.pseudo_outputs)
            module.scaled_log_precision += 0.03
        draw = network.draw(20_000, seeded(0, "draw"))
        ratio = (other.log_density(draw).posterior - network.log_density(draw).posterior).sum(0).exp()
    assert ratio.std() > 0.05
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / math.sqrt(len(ratio))


def test_weights_without_a_draw():
    network = mlp("global")
    weights = [torch.randn(2, 4, 7).double(), torch.randn(2, 8, 2).double()]
    density = network.log_density(weights)
    assert density.posterior.shape == density.prior.shape == (2, 2)
    again = network.log_density([Variables(each) for each in weights])
    assert torch.equal(density.posterior, again.posterior)


def test_float32_and_gradients():
    network = mlp("global").float()
    draw = network.draw(3)
    density = network.log_density(draw)
    assert density.posterior.dtype == torch.float64
    kl = sum(layer.kl for layer in draw.layers).double()
    torch.testing.assert_close(density.kl, kl, rtol=1e-3, atol=1e-2)
    density.posterior.sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_what_has_no_density():
    resampled = mlp(inducing.Factorised(local_reparameterisation=True))
    with pytest.raises(ValueError, match="local reparameterisation"):
        resampled.log_density(resampled.draw(2))
    assert resampled.log_density(resampled.draw(2, consistent=True)).prior.shape == (2, 2)
    network = mlp("global", "scale")
    weights = [layer.variables.values for layer in network.draw(2).layers]
    with pytest.raises(ValueError, match=r"layers\.0.*the scale s"):
        network.log_density(weights)
    with pytest.raises(ValueError, match="inverse-Wishart"):
        mlp("global", "kronecker-iw").log_density(weights)
    with pytest.raises(ValueError, match="1 layers for 2"):
        network.log_density(weights[:1])
    with pytest.raises(ValueError, match=r"must have shape \(S, 4, 7\)"):
        mlp("global").log_density(weights[::-1])
    other = inducing.models.deep_gp(3, 2, 3, width=2, inducing_points=X[4:8])
    with pytest.raises(ValueError, match="other inducing inputs"):
        other.log_density(deep_gp("global").draw(2))
    with pytest.raises(ValueError, match="needs the noise variance"):
        optimal("linear").log_density(optimal("linear").draw(2, likelihood=NOISE))


def test_classes_of_ones_own_without_densities():
    class Unknown(FixedScale):
        log_density = PriorModule.log_density

    class Silent(FactorisedWeights):
        log_density = WeightModule.log_density

    for attribute, module in (("prior", Unknown(4.0, 4)), ("posterior", Silent(torch.randn(4, 7), 0.1, False))):
        network = mlp(SAMPLED)
        setattr(network.layers[0], attribute, module.double())
        with pytest.raises(NotImplementedError, match=rf"{type(module).__name__} has no method log_density"):
            network.log_density(network.draw(2))
