"""Mixtures of posteriors: their ELBO against closed forms and quadrature, optimal weights, predictions, files, refusals."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import MultivariateNormal, Normal

import inducing
from inducing.inference.mixtures import divide, optimal_log_weights
from inducing.inference.parallel.division import shares

X = torch.linspace(-2, 2, 24, dtype=torch.float64).mul(7).sin().reshape(8, 3)
Y = (2 * X[:, :1]).sin() + X[:, 1:2]
NOISE = 0.3


def gaussian():
    return inducing.Gaussian(NOISE, learn_variance=False).double()


def linear(shift=0.0):
    """The exact posterior of one linear layer, or one with shifted pseudo-outputs."""
    posterior = inducing.GlobalInducing(log_precision=math.log(1 / NOISE))
    points = {"inducing_points": X, "inducing_targets": Y + shift, "learn_inducing_locations": False}
    return inducing.Network([inducing.Linear(3, 1, posterior=posterior)], **points)


def evidence():
    rows = torch.cat([X, torch.ones(8, 1)], 1)
    covariance = rows @ rows.mT / 4 + NOISE * torch.eye(8)
    return MultivariateNormal(torch.zeros(8).double(), covariance).log_prob(Y[:, 0]).item()


def hidden(seed=0, posterior="factorised", activation=nn.Tanh):
    layers = [inducing.Linear(3, 4, posterior=posterior), activation(), inducing.Linear(4, 1, posterior=posterior)]
    points = {"inducing_points": X[:5]} if posterior == "global" else {}
    return inducing.Network(layers, generator=torch.Generator().manual_seed(seed), **points).double()


def mirrored():
    """Two narrow posteriors of a hidden layer with opposite signs, which give the same functions."""
    first, second = (hidden() for _ in range(2))
    with torch.no_grad():
        for network, sign in ((first, 1), (second, -1)):
            for layer in (network.layers[0], network.layers[2]):
                layer.posterior.scaled_mean.copy_(sign * (1 + layer.posterior.scaled_mean.abs()))
                layer.posterior.scaled_log_variance.fill_(-2.0)
            # tanh(-W x - b) (-v) = tanh(W x + b) v, and the last bias keeps its sign
            network.layers[2].posterior.scaled_mean[-1].mul_(sign)
    return first, second


def process(shift=0.0, points=X[:4]):
    return inducing.Network([inducing.GPLayer(3, 1)], inducing_points=points, inducing_targets=Y[:4] + shift)


def test_equal_components_have_the_elbo_of_one():
    network = hidden(posterior="global")
    bound = inducing.Mixture([network, network, network]).elbo(gaussian(), (X, Y), 50)
    # of the same draws
    assert bound.value.item() == pytest.approx(bound.component_elbos.mean().item(), abs=1e-9)
    alone = inducing.evaluate(network, gaussian(), (X, Y), 4000)
    error = math.hypot(bound.standard_error, alone.samples.std() / math.sqrt(4000))
    assert abs(bound.value - alone.elbo) < 4 * error


def test_separate_components_with_equal_elbos_gain_log_2():
    mixture = inducing.Mixture(mirrored())
    bound = mixture.elbo(gaussian(), (X, Y), 2000)
    first, second = bound.component_elbos.tolist()
    assert first == pytest.approx(second, abs=4 * 2 * bound.standard_error.item())
    assert bound.value.item() == pytest.approx((first + second) / 2 + math.log(2), abs=1e-9)


def test_optimal_weights_of_separate_components_are_those_of_their_elbos():
    """pi_k is proportional to exp(ELBO_k), and the ELBO of the mixture is log sum_k exp(ELBO_k)."""
    bound = inducing.Mixture(mirrored(), torch.tensor([0.0, 3.0])).elbo(gaussian(), (X, Y), 50)
    found = bound._replace(log_weights=optimal_log_weights(bound))
    assert torch.allclose(found.log_weights, bound.component_elbos.log_softmax(0))
    assert found.value.item() == pytest.approx(bound.component_elbos.logsumexp(0).item(), abs=1e-9)
    assert bound.value < found.value
    assert 0 <= found.gain <= math.log(2)


def test_with_the_exact_posterior_it_is_the_evidence():
    mixture = inducing.Mixture([linear(), linear(shift=1.5)])
    data = (X, Y)
    before = mixture.elbo(gaussian(), data)
    assert before.component_elbos[0].item() == pytest.approx(evidence(), abs=1e-5)
    assert before.value < evidence() - 0.1
    mixture.optimise_weights(gaussian(), data)
    after = mixture.elbo(gaussian(), data)
    assert mixture.weights[0] > 0.99
    assert after.value.item() == pytest.approx(evidence(), abs=0.01)


def test_it_is_that_of_quadrature_for_one_weight():
    networks = [
        inducing.Network([inducing.Linear(1, 1, posterior="factorised", bias=False)]).double() for _ in range(2)
    ]
    with torch.no_grad():
        for network, mean, log_variance in zip(networks, (-0.3, 0.5), (-0.5, -0.8), strict=True):
            network.layers[0].posterior.scaled_mean.fill_(mean)
            network.layers[0].posterior.scaled_log_variance.fill_(log_variance)
    x, y = X[:, :1], X[:, :1] ** 2
    mixture = inducing.Mixture(networks, torch.tensor([0.3, 0.7]).log())
    found = mixture.elbo(gaussian(), (x, y), 20_000)
    grid = torch.linspace(-8, 8, 20_001, dtype=torch.float64)
    with torch.no_grad():
        densities = [network.log_density([grid[:, None, None]]) for network in networks]
    log_q = torch.stack([math.log(pi) + each.posterior[0] for pi, each in zip((0.3, 0.7), densities, strict=True)])
    log_q = log_q.logsumexp(0)
    assert torch.trapezoid(log_q.exp(), grid).item() == pytest.approx(1, abs=1e-6)
    log_joint = Normal(0, 1).log_prob(grid) + Normal(grid * x, math.sqrt(NOISE)).log_prob(y).sum(0)
    expected = torch.trapezoid(log_q.exp() * (log_joint - log_q), grid)
    assert found.standard_error < 0.05
    assert abs(found.value - expected) < 4 * found.standard_error
    # the best weights on a grid of weights
    log_weights = optimal_log_weights(found)
    best = found._replace(log_weights=log_weights).value
    for weight in (0.01, 0.2, 0.4, 0.6, 0.8, 0.99):
        other = found._replace(log_weights=torch.tensor([weight, 1 - weight]).double().log())
        assert other.value < best + 0.01


def test_processes_with_the_same_inducing_points():
    networks = [process(), process(shift=0.2)]
    bound = inducing.Mixture(networks).elbo(gaussian(), (X, Y), 4000)
    for network, found in zip(networks, bound.component_elbos, strict=True):
        alone = inducing.evaluate(network, gaussian(), (X, Y), 4000)
        assert abs(found - alone.elbo) < 0.1
    # the mutual information is between 0 and log 2
    assert 0 < bound.value - bound.component_elbos.mean() < math.log(2)
    networks[1].layers[0].conditional = "tight"
    assert inducing.Mixture(networks).elbo(gaussian(), (X, Y), 5).bound == "tight-conditional mixture ELBO"


def test_kinds_of_posteriors_and_row_weights():
    local = inducing.Factorised(local_reparameterisation=True)
    mixture = inducing.Mixture([hidden(posterior="global"), hidden(posterior=local)])
    bound = mixture.elbo(gaussian(), (X, Y), 5)
    twice = mixture.elbo(gaussian(), (X, Y, torch.full((8,), 2.0).double()), 5)
    assert (bound.num_data, twice.num_data) == (8, 16)
    log_prior = 2 * bound.log_joint - twice.log_joint
    assert torch.allclose(log_prior, log_prior.clamp_max(0))
    assert repr(bound).startswith("mixture ELBO: ")


def test_predictions_are_those_of_an_ensemble():
    networks, likelihood = [hidden(0), hidden(1)], gaussian()
    mixture = inducing.Mixture(networks)
    found = inducing.predict(mixture, likelihood, X, 10, seed=3)
    first = inducing.predict(networks[0], likelihood, X, 5, seed=3)
    assert found.outputs.shape == (10, 8, 1)
    assert torch.equal(found.outputs[:5], first.outputs)
    assert not torch.allclose(found.outputs[5:], first.outputs)
    # the same network twice is drawn independently
    twice = inducing.predict(inducing.Mixture([networks[0]] * 2), likelihood, X, 10, seed=3)
    assert not torch.allclose(twice.outputs[5:], first.outputs)
    heavy = inducing.Mixture(networks, torch.tensor([-20.0, 0.0]))
    assert torch.equal(inducing.predict(heavy, likelihood, X, 5, seed=3).outputs, found.outputs[5:])


def test_numbers_are_divided_by_weights():
    assert divide(100, [0.29, 0.71]) == [29, 71]
    assert divide(3, [0.5, 0.5]) == [2, 1]
    assert divide(1, [0.2, 0.7, 0.1]) == [0, 1, 0]


def test_it_can_be_saved_and_its_functions_too(tmp_path):
    mixture = inducing.Mixture([hidden(0), hidden(1, "global")], torch.tensor([0.2, 0.8]).log())
    inducing.save((mixture, mixture.sample_functions(4), gaussian()), tmp_path / "model")
    loaded, functions, likelihood = inducing.load(tmp_path / "model")
    assert torch.equal(loaded.weights, mixture.weights)
    assert torch.equal(functions(X), mixture.sample_functions(4)(X))
    assert torch.equal(inducing.predict(loaded, likelihood, X).mean, inducing.predict(mixture, likelihood, X).mean)
    assert torch.equal(loaded.elbo(likelihood, (X, Y), 5).samples, mixture.elbo(likelihood, (X, Y), 5).samples)


def learned_kernel():
    network = process()
    with torch.no_grad():
        for parameter in network.layers[0].kernel.parameters():
            parameter.add_(0.1)
    return network


@pytest.mark.parametrize(
    ("networks", "message"),
    [
        (lambda: [hidden(), hidden(activation=nn.ReLU)], "one model"),
        (lambda: [hidden(), hidden().float()], "dtype"),
        (lambda: [linear(), hidden()], "one model"),
        (
            lambda: [inducing.models.mlp(3, 1, prior=prior, num_inducing=3) for prior in ("neal", "standard")],
            "one model",
        ),
        (
            lambda: [inducing.Network([inducing.Linear(3, 1), inducing.InducingNorm()], inducing_points=X)],
            "parameters of the model",
        ),
    ],
)
def test_different_models_are_refused(networks, message):
    with pytest.raises(ValueError, match=message):
        inducing.Mixture(networks())


@pytest.mark.parametrize(
    ("networks", "message"),
    [
        (lambda: [process(), learned_kernel()], "priors .* differ"),
        (lambda: [process(), process(points=X[1:5])], "inducing"),
        (lambda: [hidden(), hidden(posterior="point")], "density"),
    ],
)
def test_posteriors_without_a_common_density_are_refused(networks, message):
    mixture = inducing.Mixture(networks())
    with pytest.raises((ValueError, NotImplementedError), match=message):
        mixture.elbo(gaussian(), (X, Y), 5)


def test_wrong_arguments():
    with pytest.raises(TypeError, match="list"):
        inducing.Mixture(hidden())
    with pytest.raises(TypeError, match="Network"):
        inducing.Mixture([gaussian()])
    for log_weights in (torch.zeros(3), torch.tensor([0.0, -math.inf])):
        with pytest.raises(ValueError, match="log_weights"):
            inducing.Mixture([hidden(), hidden(1)], log_weights)
    with pytest.raises(TypeError, match="likelihood"):
        inducing.Mixture([hidden()]).elbo((X, Y), gaussian())


@pytest.mark.parametrize(("weights", "total"), [([0.25] * 4, 8), ([0.85, 0.05, 0.05, 0.05], 100)])
@pytest.mark.parametrize("num_parts", [1, 3, 8])
def test_parts_of_the_draws_have_the_weights_together(weights, total, num_parts):
    """As processes that divide them draw them. Component k is the constant k."""
    networks = []
    for index in range(4):
        network = inducing.Network([inducing.Linear(1, 1, posterior="factorised")])
        with torch.no_grad():
            # the bias is this mean over the root of the fan-in, and almost certain
            network.layers[0].posterior.scaled_mean[-1] = index * 2**0.5
            network.layers[0].posterior.scaled_log_variance.fill_(-5.0)
        networks.append(network)
    mixture, sizes = inducing.Mixture(networks, torch.tensor(weights).log()), shares(total, num_parts)
    starts = [sum(sizes[:rank]) for rank in range(num_parts)]
    parts = [
        mixture.sample_functions(size, rank, first=start, total=total)(torch.zeros(1, 1))
        for rank, (start, size) in enumerate(zip(starts, sizes, strict=True))
    ]
    assert [len(part) for part in parts] == sizes
    components = torch.cat(parts)[:, 0, 0].round().int()
    assert components.bincount().tolist() == [round(total * weight) for weight in weights]
