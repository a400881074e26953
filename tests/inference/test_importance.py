"""The importance-weighted bound against closed-form evidences and averages over the prior; the tail of weights."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import MultivariateNormal

import inducing
from inducing.inference import importance
from inducing.inference.importance import ImportanceWeightedBound, pareto_shape
from inducing.linalg.noise import seeded
from tests.oracles import gaussian_process as oracle

X = torch.linspace(-2, 2, 24, dtype=torch.float64).mul(7).sin().reshape(8, 3)
Y = (2 * X[:, :1]).sin() + X[:, 1:2]
NOISE = 0.3


def gaussian():
    return inducing.Gaussian(NOISE, learn_variance=False).double()


def perturbed(network, scale=0.15):
    """The network with other pseudo-outputs and precisions, so that its posterior is not exact."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in (p for _, layer in network.layers.bayesian_layers() for p in layer.posterior.parameters()):
            parameter += scale * torch.randn(parameter.shape, dtype=parameter.dtype, generator=generator)
    return network


def exact_points():
    return {"inducing_points": X, "inducing_targets": Y, "learn_inducing_locations": False}


def linear(scale=0.15):
    posterior = inducing.GlobalInducing(log_precision=math.log(1 / NOISE))
    return perturbed(inducing.Network([inducing.Linear(3, 1, posterior=posterior)], **exact_points()), scale)


def process(rows=4):
    layer, points = inducing.GPLayer(3, 1), {"inducing_points": X[:rows], "inducing_targets": Y[:rows]}
    return perturbed(inducing.Network([layer], **points))


def own_inputs():
    network = inducing.Network([inducing.GPLayer(3, 1, posterior="local")], inducing_points=X[:4]).double()
    with torch.no_grad():
        network.layers[0].posterior.pseudo_outputs.copy_(Y[:4])
    return network


def evidence_of(network):
    """log N(y; 0, prior covariance of f + noise)."""
    if isinstance(network.layers[0], inducing.Linear):
        rows = torch.cat([X, torch.ones(8, 1)], 1)
        covariance = rows @ rows.mT / 4
    else:
        covariance = oracle.covariance(network.layers[0], X)
    noise = gaussian().noise_variance * torch.eye(8)
    return MultivariateNormal(torch.zeros(8).double(), covariance + noise).log_prob(Y[:, 0]).item()


def mean_and_error(values):
    values = torch.stack(values)
    return values.mean(), values.std() / math.sqrt(len(values))


@pytest.mark.parametrize("make", [linear, process, own_inputs])
def test_it_lies_between_the_elbo_and_the_evidence_and_tends_to_it(make):
    network = make()
    evidence = evidence_of(network)
    elbo = inducing.evaluate(network, gaussian(), (X, Y), 5000).elbo
    many = inducing.evaluate(network, gaussian(), (X, Y), importance_samples=20_000)
    # the bound with K = 5, averaged over 4000 groups
    few, error = mean_and_error(list(many.log_weights.view(-1, 5).logsumexp(1) - math.log(5)))
    assert elbo < few - 4 * error < few + 4 * error < evidence
    assert abs(many.value - evidence) < 4 * many.standard_error
    assert many.standard_error < 0.05
    assert many.pareto_k < 0.7
    assert 300 < many.effective_sample_size < 20_000


def test_every_weight_of_an_exact_posterior_is_the_evidence():
    network = linear(scale=0.0)
    bound = inducing.evaluate(network, gaussian(), (X, Y), importance_samples=30)
    assert torch.allclose(bound.log_weights, torch.tensor(evidence_of(network)).double(), atol=1e-5)
    assert bound.effective_sample_size == pytest.approx(30)
    assert bound.standard_error < 1e-5


def deep_process_evidence(network, likelihood, number=20_000):
    """log p(y) and its error from draws of all layers from the prior."""
    x = X[:4]
    rows, generator = x.expand(number, -1, -1), seeded(0, "prior")
    identity = torch.eye(4, dtype=x.dtype)
    for layer in network.layers:
        values = tuple(value.detach() for value in layer.kernel())
        covariance = layer.kernel_spec.matrix(values, rows, rows) + 1e-6 * identity
        noise = torch.randn(number, 4, layer.out_features, dtype=x.dtype, generator=generator)
        mean = layer._mean_function(torch.float64)(rows)
        rows = mean + torch.linalg.cholesky(covariance) @ noise
    return ImportanceWeightedBound(likelihood.log_prob(rows, Y[:4]).sum(-1).detach(), 4)


@pytest.mark.parametrize("posterior", ["global", "local->global", "dsvi", "coupled"])
@pytest.mark.parametrize("likelihood", [gaussian(), inducing.StudentT(NOISE).double()], ids=["Gaussian", "StudentT"])
def test_deep_processes_have_the_evidence_of_their_prior(posterior, likelihood):
    """With a Student's t likelihood the last layer is drawn jointly, with a Gaussian one it is integrated out."""
    settings = {"posterior": posterior, "inducing_points": X[:3], "generator": torch.Generator().manual_seed(0)}
    network = inducing.models.deep_gp(3, 1, 2, width=2, **settings).double()
    with torch.no_grad():
        # close to the prior, so that few draws suffice
        for name, parameter in network.named_parameters():
            if name.endswith(("scaled_log_scale", "scaled_log_precision")):
                parameter.fill_(math.log(0.8) / 3 if name.endswith("scale") else -1.0)
    found = inducing.evaluate(network, likelihood, (X[:4], Y[:4]), importance_samples=4000)
    expected = deep_process_evidence(network, likelihood)
    error = math.hypot(found.standard_error, expected.standard_error)
    assert error < 0.25
    assert abs(found.value - expected.value) < 4 * error


@pytest.mark.parametrize(
    ("posterior", "prior"),
    [
        ("factorised", "neal"),
        (inducing.Factorised(local_reparameterisation=True), "neal"),
        ("factorised", inducing.ScalePrior(initial=1.0)),
        ("global", inducing.ScalePrior(initial=1.0)),
        ("global", "kronecker-iw"),
    ],
    ids=str,
)
def test_networks_have_the_evidence_of_their_prior(posterior, prior):
    """The KLs of the scale and of factorised posteriors are closed forms in the ELBO, and samples here."""
    settings = {
        "posterior": posterior,
        "prior": prior,
        "inducing_points": X[:2],
        "generator": torch.Generator().manual_seed(0),
    }
    network, y = inducing.models.mlp(3, 1, [2], **settings).double(), Y[:3]
    if posterior != "global":
        with torch.no_grad():
            for layer in (network.layers[0], network.layers[2]):
                layer.posterior.scaled_log_variance.fill_(math.log(0.3) / 3)
                layer.posterior.scaled_mean.mul_(0.1)
    found = inducing.evaluate(network, gaussian(), (X[:3], y), importance_samples=4000)
    weights = []
    for layer, (fan_in, outputs) in zip((network.layers[0], network.layers[2]), ((4, 2), (3, 1)), strict=True):
        generator = seeded(0, "weights")
        precision = layer.prior(20_000, generator).precision
        draws = precision.colour(torch.randn(20_000, 1, fan_in, outputs, dtype=torch.float64, generator=generator))
        # from Q to P of the prior's own variables
        of_prior = layer.prior.log_density(precision)
        weights.append((draws[:, 0], (of_prior.prior - of_prior.posterior).expand(20_000)))
    (first, correction), (second, last_correction) = weights
    rows = torch.cat([X[:3], torch.ones(3, 1)], 1) @ first
    outputs = torch.cat([rows.relu(), torch.ones(20_000, 3, 1)], 2) @ second
    log_likelihood = gaussian().log_prob(outputs, y).sum(-1)
    expected = ImportanceWeightedBound((log_likelihood + correction + last_correction).detach(), 3)
    error = math.hypot(found.standard_error, expected.standard_error)
    assert error < 0.25
    assert abs(found.value - expected.value) < 4 * error


def test_batches_and_weights_of_rows():
    network = linear()
    whole = inducing.evaluate(network, gaussian(), (X, Y), importance_samples=150)
    parts = inducing.evaluate(network, gaussian(), (X, Y), importance_samples=150, batch_size=3)
    assert torch.allclose(whole.log_weights, parts.log_weights)
    twice = inducing.evaluate(network, gaussian(), (X, Y, torch.full((8,), 2.0)), importance_samples=150)
    doubled = inducing.evaluate(network, gaussian(), (X.repeat(2, 1), Y.repeat(2, 1)), importance_samples=150)
    assert torch.allclose(twice.log_weights, doubled.log_weights, rtol=1e-6)
    assert twice.num_data == doubled.num_data == 16


def test_a_tight_conditional_does_not_change_it():
    networks = [inducing.Network([inducing.GPLayer(3, 1, conditional=kind)], X[:4]) for kind in ("prior", "tight")]
    networks[1].load_state_dict(networks[0].state_dict())
    first, second = (inducing.evaluate(each, gaussian(), (X, Y), importance_samples=50) for each in networks)
    assert torch.equal(first.log_weights, second.log_weights)


def test_joint_draws_have_the_moments_of_dense_algebra():
    network = process()
    layer, draw = network.layers[0], network.draw(3, joint=True)
    mean, covariance = draw.function.steps[0].moments(X[None])
    cross, at_inducing = oracle.covariance(layer, X[:4], X), oracle.covariance(layer, X[:4])
    for sample, values in enumerate(draw.layers[0].variables.values[..., 0]):
        expected = oracle.conditional(torch.zeros(8).double(), at_inducing, cross, oracle.covariance(layer, X), values)
        torch.testing.assert_close(mean[sample, :, 0], expected[0])
        torch.testing.assert_close(covariance[0], expected[1])


# the shapes that ArviZ 0.23.4 finds, `arviz.stats.stats._gpdfit`
ARVIZ = {
    (-0.2, 50): 0.18529246700407911,
    (-0.2, 1000): -0.11163196956707198,
    (0.3, 50): 0.3845554292397692,
    (0.3, 1000): 0.32356064382606864,
    (0.8, 50): 0.5796800388090351,
    (0.8, 1000): 0.7574598327160182,
}


@pytest.mark.parametrize(("shape", "count"), ARVIZ)
def test_the_shape_of_the_tail_is_that_of_arviz(shape, count):
    weights = stats.genpareto(shape).ppf((np.arange(count) + 0.5) / count) + 0.1
    assert pareto_shape(torch.from_numpy(np.log(weights))) == pytest.approx(ARVIZ[shape, count], rel=1e-10)


@pytest.mark.parametrize("shape", [0.1, 0.5, 1.0])
def test_the_shape_of_known_tails(shape):
    found = [
        pareto_shape(torch.from_numpy(np.log(stats.genpareto(shape).rvs(40_000, random_state=seed))))
        for seed in range(10)
    ]
    assert np.mean(found) == pytest.approx(shape, abs=0.06)


def test_weights_that_have_no_tail():
    assert math.isnan(pareto_shape(torch.randn(20)))
    assert not math.isnan(pareto_shape(torch.randn(21)))
    assert pareto_shape(torch.zeros(100)) == 0.0


def test_the_summary_of_known_weights():
    bound = ImportanceWeightedBound(torch.tensor([1.0, 2.0, 3.0]).double().log(), 10)
    assert bound.value == pytest.approx(math.log(2.0))
    assert bound.per_datapoint == pytest.approx(math.log(2.0) / 10)
    # the standard error of the mean is sqrt(1 / 3), the mean 2
    assert bound.standard_error == pytest.approx(math.sqrt(1 / 3) / 2)
    assert bound.effective_sample_size == pytest.approx(36 / 14)
    assert repr(bound).startswith("importance-weighted bound with K = 3: 0.69 ± 0.29 nats")
    assert math.isnan(ImportanceWeightedBound(torch.zeros(1), 1).standard_error)


def test_what_is_refused(monkeypatch):
    monkeypatch.setattr(importance, "MAX_JOINT_ROWS", 7)
    with pytest.raises(ValueError, match="up to 7 rows in one batch, got 8 rows"):
        inducing.evaluate(process(), gaussian(), (X, Y), importance_samples=5)
    assert len(inducing.evaluate(linear(), gaussian(), (X, Y), importance_samples=5).log_weights) == 5
    with pytest.raises(ValueError, match="importance_samples"):
        inducing.evaluate(linear(), gaussian(), (X, Y), importance_samples=0)
