"""The tight conditional of a last Gaussian process, against dense algebra and exact evidences in float64."""

import math

import pytest
import torch
from torch.distributions import MultivariateNormal

import inducing
from inducing.linalg.noise import seeded

NOISE = 0.05
KERNEL = inducing.kernels.SquaredExponential(lengthscale=0.8, variance=1.3)


def data(rows=12):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows, 2, dtype=torch.float64, generator=generator)
    noise = 0.2 * torch.randn(rows, 1, dtype=torch.float64, generator=generator)
    return x, (2 * x[:, :1]).sin() + x[:, 1:] + noise


def gaussian(variance=NOISE):
    return inducing.Gaussian(variance, learn_variance=False).double()


def bounds(make, likelihood, rows, num_samples=3, **settings):
    """The terms of both bounds, of networks that are equal but for the conditional."""
    standard, tight = make("prior"), make("tight")
    tight.load_state_dict(standard.state_dict())
    return [inducing.evaluate(each, likelihood, rows, num_samples, **settings) for each in (standard, tight)]


def kernel_matrix(x, z):
    return 1.3 * torch.exp(-(x[:, None] - z[None]).square().sum(-1) / (2 * 0.8**2))


def with_optimal_values(network, x, y, noise):
    """Set a DSVI posterior to the optimum, whitened: N(S A'y / noise, S), S = (I + A'A / noise)^-1. Return A and d."""
    posterior = network.layers[-1].posterior
    z = posterior.inducing_inputs.detach()
    nugget = 1.3e-6
    root = torch.linalg.cholesky(kernel_matrix(z, z) + nugget * torch.eye(len(z), dtype=z.dtype))
    projected = torch.linalg.solve_triangular(root, kernel_matrix(z, x), upper=False).mT
    covariance = torch.linalg.inv(torch.eye(len(z), dtype=z.dtype) + projected.mT @ projected / noise)
    spread = torch.linalg.cholesky(covariance)
    with torch.no_grad():
        posterior.whitened_mean.copy_(covariance @ projected.mT @ y / noise)
        posterior.scaled_log_scale.copy_(spread.diagonal().log()[None] / 3)
        posterior.root_lower.copy_((spread / spread.diagonal()[:, None]).tril(-1)[None])
    return projected, 1.3 + nugget - projected.square().sum(-1)


def log_normal(y, covariance):
    return MultivariateNormal(torch.zeros_like(y[:, 0]), covariance).log_prob(y[:, 0])


@pytest.mark.parametrize("num_inducing", [2, 5, 9])
def test_one_layer_with_the_optimal_values_has_the_bounds_of_dense_algebra(num_inducing):
    """log N(y; 0, AA' + s^2 I) - sum d / 2s^2 <= ... - sum log(1 + d / s^2) / 2 <= log N(y; 0, K + s^2 I)."""
    x, y = data()

    def make(conditional):
        layer = inducing.GPLayer(2, 1, KERNEL, posterior="dsvi", conditional=conditional)
        network = inducing.Network([layer], inducing_points=x[:num_inducing])
        make.projected, make.lost = with_optimal_values(network, x, y, NOISE)
        return network

    standard, tight = (float(terms.elbo) for terms in bounds(make, gaussian(), (x, y)))
    identity = torch.eye(len(x), dtype=x.dtype)
    collapsed = log_normal(y, make.projected @ make.projected.mT + NOISE * identity)
    evidence = log_normal(y, kernel_matrix(x, x) + (NOISE + 1.3e-6) * identity)
    ratio = make.lost / NOISE
    assert standard == pytest.approx(float(collapsed - ratio.sum() / 2), abs=1e-4)
    assert tight == pytest.approx(float(collapsed - ratio.log1p().sum() / 2), abs=1e-4)
    assert standard + 0.01 < tight < evidence - 0.01


def test_inducing_points_at_the_data_give_the_evidence():
    x, y = data()

    def make(conditional):
        layer = inducing.GPLayer(2, 1, KERNEL, posterior="optimal", jitter=1e-9, conditional=conditional)
        points = {"inducing_points": x, "inducing_targets": y, "learn_inducing_locations": False}
        return inducing.Network([layer], **points)

    standard, tight = (float(each.elbo) for each in bounds(make, gaussian(), (x, y), 2000))
    evidence = float(log_normal(y, kernel_matrix(x, x) + NOISE * torch.eye(len(x), dtype=x.dtype)))
    # the KL is sampled: the standard error of 2000 samples is 0.06
    assert tight == pytest.approx(standard, abs=1e-4)
    assert tight == pytest.approx(evidence, abs=0.2)


def test_the_gain_is_that_of_a_dense_conditional_and_its_optimum():
    """q(f | u) = N(mean, D^1/2 V D^1/2) with the full D: E log p changes by the trace, KL = sum(v - 1 - log v) / 2."""
    x, _ = data(8)
    prior, known = kernel_matrix(x, x), kernel_matrix(x, x[:3])
    conditional = prior - known @ torch.linalg.solve(kernel_matrix(x[:3], x[:3]), known.mT)
    values, vectors = torch.linalg.eigh(conditional + 1e-9 * torch.eye(8, dtype=x.dtype))
    root = vectors @ values.sqrt().diag() @ vectors.mT

    def gain(log_v):
        narrow = root @ log_v.exp().diag() @ root
        lost = (conditional.diagonal() - narrow.diagonal()).sum() / (2 * NOISE)
        return lost - (log_v.exp() - 1 - log_v).sum() / 2

    ratio = conditional.diagonal() / NOISE
    optimum = (-ratio.log1p()).requires_grad_()
    expected = gain(optimum)
    assert torch.autograd.grad(expected, optimum)[0].abs().max() < 1e-6
    found = gaussian().conditional_gain(
        torch.zeros(1, 8, 1), torch.zeros(1, 8, 1), conditional.diagonal()[None, :, None]
    )
    assert found.sum() == pytest.approx(expected.item(), rel=1e-6)
    assert all(gain(optimum + 0.1 * torch.randn(8, dtype=x.dtype)) < expected for _ in range(10))


def deep(conditional, posterior="global", x=None, y=None, outputs=1):
    points = {"inducing_points": x[:3]} | ({} if y is None else {"inducing_targets": y[:3]})
    settings = {"posterior": posterior, "conditional": conditional, "generator": torch.Generator().manual_seed(0)}
    return inducing.models.deep_gp(2, outputs, 2, kernel=KERNEL, **settings, **points)


@pytest.mark.parametrize("posterior", ["global", "local", "dsvi", "coupled", "prior->global", "prior"])
def test_every_draw_of_a_deep_process_has_a_higher_bound(posterior):
    x, y = data()
    standard, tight = bounds(lambda kind: deep(kind, posterior, x), gaussian(), (x, y), 20)
    assert torch.equal(standard.kl, tight.kl)
    assert (tight.samples > standard.samples).all()


def test_the_bound_of_a_deep_process_is_below_its_evidence():
    """The evidence of four data points by averaging over the prior of the hidden layer, the last layer in closed form."""
    x, y = data(4)
    network, likelihood = deep("tight", x=x, y=y), gaussian()
    inducing.fit(network, likelihood, (x, y), num_steps=80, num_samples=2, progress=False)
    tight = inducing.evaluate(network, likelihood, (x, y), 2000)
    network.layers[-1].conditional = "prior"
    standard = inducing.evaluate(network, likelihood, (x, y), 2000)
    with torch.no_grad():
        kernels = [(layer.kernel_spec, layer.kernel()) for layer in network.layers]
    (first, values), (second, last_values) = kernels
    identity = torch.eye(4, dtype=x.dtype)
    covariance = first.matrix(values, x[None].double(), x[None].double())[0] + 1e-6 * identity
    noise = torch.randn(40_000, 4, 2, dtype=x.dtype, generator=seeded(0, "hidden"))
    hidden = x + torch.linalg.cholesky(covariance) @ noise
    last = second.matrix(last_values, hidden, hidden) + NOISE * identity
    log_densities = MultivariateNormal(torch.zeros(4, dtype=x.dtype), last).log_prob(y[:, 0])
    evidence = float(log_densities.logsumexp(0) - math.log(len(noise)))
    assert float(standard.elbo) < float(tight.elbo) < evidence
    assert float(tight.elbo) > evidence - 5


def test_rows_add_up_over_batches_and_micro_batches():
    x, y = data()
    network, likelihood = inducing.Network([inducing.GPLayer(2, 1, KERNEL, conditional="tight")], x[:4]), gaussian()
    whole, parts = (inducing.evaluate(network, likelihood, (x, y), 3, batch_size=size).elbo for size in (None, 5))
    assert torch.allclose(whole, parts, rtol=1e-12)
    elbo, gradients = inducing.ELBO(network, likelihood, 12), []
    for size in (None, 5):
        terms = elbo(x, y, 3, generator=seeded(0, "draw"), micro_batch_size=size)
        gradients.append(torch.autograd.grad(terms.objective, list(network.parameters())))
    for first, second in zip(*gradients, strict=True):
        assert torch.allclose(first, second, rtol=1e-8, atol=1e-10)


def test_noise_that_depends_on_the_inputs():
    """The gain of each row is that of Gaussian noise with the expected precision, and vanishes without uncertainty."""
    x, y = data()
    likelihood = inducing.HeteroscedasticGaussian().double()
    standard, tight = bounds(lambda kind: deep(kind, x=x, outputs=2), likelihood, (x, y), 10)
    assert (tight.samples > standard.samples).all()
    mean, certain = torch.zeros(1, 5, 2, dtype=x.dtype), torch.zeros(1, 5, 2, dtype=x.dtype)
    conditional = torch.rand(1, 5, 1, dtype=x.dtype)
    found = likelihood.conditional_gain(mean, certain, conditional)
    # g = 0 is the base variance
    expected = gaussian(likelihood.base_variance.item()).conditional_gain(mean[..., :1], certain, conditional)
    assert torch.allclose(found, expected, rtol=1e-5)


def test_the_bound_is_named(tmp_path):
    x, y = (each.float() for each in data())
    network, likelihood = deep("tight", x=x, y=y), inducing.Gaussian()
    history = inducing.fit(network, likelihood, (x, y), num_steps=2, progress=False, checkpoint=tmp_path / "run")
    assert history.bound == "tight-conditional ELBO"
    assert "steps, tight-conditional ELBO per datapoint" in repr(history)
    assert inducing.evaluate(network, likelihood, (x, y)).bound == "tight-conditional ELBO"
    axes = inducing.plots.plot_history(history)
    assert "tight-conditional ELBO" in {text.get_text() for text in axes.get_legend().get_texts()}
    other = inducing.fit(deep("prior", x=x, y=y), likelihood, (x, y), num_steps=1, progress=False)
    assert other.bound == "ELBO"
    assert "steps, ELBO per datapoint" in repr(other)


def test_it_is_saved_and_does_not_change_predictions(tmp_path):
    x, y = (each.float() for each in data())
    network, likelihood = deep("tight", x=x, y=y), inducing.Gaussian()
    inducing.save((network, likelihood), tmp_path / "model.safetensors")
    loaded = inducing.load(tmp_path / "model.safetensors")[0]
    assert repr(loaded) == repr(network)
    assert "conditional='tight'" in repr(loaded)
    assert inducing.evaluate(loaded, likelihood, (x, y)).bound == "tight-conditional ELBO"
    standard = deep("prior", x=x, y=y)
    assert "conditional" not in repr(standard)
    predictions = [inducing.predict(each, likelihood, x, 5).mean for each in (network, standard)]
    assert torch.equal(*predictions)


def test_where_it_is_not_available():
    x, y = data()
    labels = (y > 0).double()
    for likelihood, targets in (
        (inducing.StudentT(), y),
        (inducing.Bernoulli(), labels),
        (inducing.Poisson(), 0 * labels),
    ):
        with pytest.raises(TypeError, match="needs Gaussian noise"):
            inducing.evaluate(deep("tight", x=x), likelihood.double(), (x, targets), 2)
    with pytest.raises(TypeError, match="needs Gaussian noise"):
        inducing.fit(deep("tight", x=x), inducing.StudentT().double(), (x, y), num_steps=1, progress=False)
    with pytest.raises(ValueError, match="weights of rows"):
        inducing.evaluate(deep("tight", x=x), gaussian(), (x, y, torch.ones(12).double()), 2)
    with pytest.raises(ValueError, match="not the last module"):
        inducing.Network([inducing.GPLayer(2, 2, conditional="tight"), inducing.GPLayer(2, 1)], x[:3])
    with pytest.raises(ValueError, match="not the last module"):
        inducing.Network([inducing.GPLayer(2, 1, conditional="tight"), torch.nn.Tanh()], x[:3])
    with pytest.raises(ValueError, match="conditional must be one of"):
        inducing.GPLayer(2, 1, conditional="tigth")
