"""A previous posterior in place of the prior. Oracle: the evidence of new data given the old, without variance."""

import copy

import pytest
import torch
from torch import nn

import inducing
from inducing.nn.growing import add_inducing_points

X = torch.randn(12, 2, generator=torch.Generator().manual_seed(0)).double()
Y = torch.stack([X[:, 0].sin(), X.prod(1)], 1)
LIKELIHOOD = inducing.Gaussian(0.3).double()


def exact(kind, rows):
    """One layer with its exact posterior given the first rows."""
    makers = {
        "linear": lambda: inducing.Linear(2, 2),
        "optimal": lambda: inducing.Linear(2, 2, posterior="optimal"),
        "gp": lambda: inducing.GPLayer(2, 2, jitter=1e-9),
    }
    settings = {"inducing_points": X[:rows], "inducing_targets": Y[:rows], "learn_inducing_locations": False}
    network = inducing.Network([makers[kind]()], **settings)
    if kind == "optimal":
        return network
    with torch.no_grad():
        network.layers[0].posterior.scaled_log_precision.fill_(-LIKELIHOOD.variance(Y[None]).log().mean() / 3)
    return network.requires_grad_(False)


@pytest.mark.parametrize("kind", ["linear", "gp"])
def test_every_sample_is_the_evidence_of_the_new_data_given_the_old(kind):
    old = exact(kind, 7)
    previous = old if kind == "linear" else add_inducing_points(old, X[7:])
    network = exact(kind, 12)
    found = inducing.ELBO(network, LIKELIHOOD, 5, previous)(X[7:], Y[7:], 20)
    evidence = [inducing.evaluate(each, LIKELIHOOD, (X[:n], Y[:n]), 5).elbo for each, n in ((old, 7), (network, 12))]
    if kind == "linear":
        torch.testing.assert_close(found.samples, (evidence[1] - evidence[0]).expand(20), rtol=0, atol=1e-8)
    else:
        # the values at the inducing points are integrated out of the likelihood, so samples of the KL differ
        error = found.samples.std() / 20**0.5
        assert abs(found.elbo - (evidence[1] - evidence[0])) < 4 * error + 1e-5


def test_the_bound_of_equal_posteriors_is_the_likelihood():
    torch.manual_seed(0)
    network = inducing.models.mlp(2, 2, [4], inducing_points=X[:7])
    terms = inducing.ELBO(network, inducing.Gaussian().double(), 5, network)(X[7:], Y[7:], 6)
    torch.testing.assert_close(terms.samples, terms.log_likelihood, rtol=0, atol=1e-7)


@pytest.mark.parametrize("prior", ["scale", "channel-iw"])
def test_the_variables_of_priors_have_a_previous_posterior_too(prior):
    torch.manual_seed(0)
    network = inducing.models.mlp(2, 2, [4], prior=prior, inducing_points=X[:7])
    elbo = inducing.ELBO(network, inducing.Gaussian().double(), 5, network)
    difference = elbo(X[7:], Y[7:], 2000, generator=torch.Generator().manual_seed(0))
    # the KL of the prior's variables is in closed form, their previous density is sampled
    kl = difference.log_likelihood - difference.samples
    assert kl.mean().abs() < 4 * kl.std() / 2000**0.5


def test_gradients_are_those_of_the_bound():
    # finite differences of the expectation, by common random numbers: a factorised layer reparameterises w = m + s z
    torch.manual_seed(0)
    previous = inducing.models.mlp(2, 2, [], posterior="factorised").double()
    network, likelihood = copy.deepcopy(previous), inducing.Gaussian().double()
    elbo = inducing.ELBO(network, likelihood, 5, previous)
    mean = network.layers[0].posterior.scaled_mean
    with torch.no_grad():
        mean.add_(0.3)

    def value():
        return elbo(X[7:], Y[7:], 8, generator=torch.Generator().manual_seed(1)).objective

    (gradient,) = torch.autograd.grad(value(), mean)
    with torch.no_grad():
        mean[0, 0] += 1e-5
        above = value()
        mean[0, 0] -= 2e-5
        below = value()
    torch.testing.assert_close(gradient[0, 0], (above - below) / 2e-5, rtol=1e-5, atol=1e-5)


def test_the_kl_of_factorised_weights_from_themselves_has_only_the_noise_of_their_number():
    """The density of the weights given the sampled scale cancels. So the KL is given the same scale, not its expectation."""
    torch.manual_seed(0)
    prior = inducing.ScalePrior(initial=1.0)
    network = inducing.models.mlp(2, 2, [50, 50], prior=prior, posterior="factorised").double()
    objective = inducing.ELBO(network, inducing.Gaussian().double(), len(X), previous=copy.deepcopy(network))
    kl = objective(X, Y, 500, generator=torch.Generator().manual_seed(0)).kl.sum(0)
    assert abs(kl.mean() / kl.std() * len(kl) ** 0.5) < 4
    num_weights = sum(layer.posterior.scaled_mean.numel() for _, layer in network.layers.bayesian_layers())
    assert kl.std() < 1.1 * (num_weights / 2) ** 0.5


def test_the_previous_network_is_a_constant_of_the_run(tmp_path):
    torch.manual_seed(0)
    previous = inducing.models.mlp(2, 2, [4], inducing_points=X[:7])
    data, settings = (X[7:], Y[7:]), {"num_steps": 3, "checkpoint": tmp_path / "run", "progress": False}
    networks = [copy.deepcopy(previous) for _ in range(2)]
    for network in networks:
        inducing.fit(network, inducing.Gaussian().double(), data, previous=previous, **settings)
    assert all(torch.equal(*pair) for pair in zip(*(each.parameters() for each in networks), strict=True))
    other = copy.deepcopy(previous)
    with torch.no_grad():
        other.layers[0].posterior.pseudo_outputs.add_(1)
    with pytest.raises(inducing.errors.CheckpointError):
        inducing.fit(copy.deepcopy(previous), inducing.Gaussian().double(), data, previous=other, **settings)


def gp(kernel="squared-exponential", posterior="global", jitter=1e-6, points=X[:7]):
    layer = inducing.GPLayer(2, 2, kernel, posterior=posterior, jitter=jitter)
    return inducing.Network([layer], inducing_points=points).requires_grad_(False)


def bnn(width=4, **settings):
    layers = [inducing.Linear(2, width, **settings), nn.Tanh(), inducing.Linear(width, 2)]
    return inducing.Network(layers, inducing_points=X[:7])


@pytest.mark.parametrize(
    ("network", "previous", "message"),
    [
        (bnn(), bnn(5), "same layers"),
        (bnn(), inducing.models.mlp(2, 2, [4, 4], inducing_points=X[:7]), "same layers"),
        (bnn(), bnn(prior="scale"), "priors"),
        (bnn(), bnn(bias=False), "same layers"),
        (gp(), gp("matern32"), "same layers"),
        (gp(), gp(jitter=1e-4), "same layers"),
        (gp(), gp(posterior="dsvi"), "same in previous"),
        (gp(), gp(points=X[:6]), "inducing_points must be the same"),
        (inducing.models.deep_gp(2, 2, 2, inducing_points=X[:7]),) * 2 + ("must not be learned",),
        (exact("optimal", 7),) * 2 + ("Optimal",),
        (bnn(posterior="point"),) * 2 + ("no density",),
        (inducing.models.mlp(2, 2, [4], posterior=inducing.Factorised(local_reparameterisation=True)).double(),) * 2
        + ("no density",),
    ],
)  # fmt: skip
def test_what_cannot_be_a_previous_posterior(network, previous, message):
    with pytest.raises(ValueError, match=message):
        inducing.ELBO(network, LIKELIHOOD, 5, previous)


def test_a_previous_posterior_is_a_network_and_may_be_optimal():
    with pytest.raises(TypeError, match="previous"):
        inducing.ELBO(bnn(), LIKELIHOOD, 5, nn.Linear(2, 2))
    old = exact("optimal", 7)
    found = inducing.ELBO(exact("linear", 12), LIKELIHOOD, 5, old)(X[7:], Y[7:], 3)
    expected = inducing.ELBO(exact("linear", 12), LIKELIHOOD, 5, exact("linear", 7))(X[7:], Y[7:], 3)
    torch.testing.assert_close(found.samples, expected.samples, rtol=0, atol=1e-8)
