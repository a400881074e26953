import copy

import numpy as np
import pytest
import torch
from arviz_stats.base import array_stats
from torch import nn

import inducing
from inducing.inference.hmc.whitened import WhitenedPosterior
from inducing.prediction.predictive import Predictive
from tests.oracles import linear_regression, nuts

# most runs here are short, and their chains have not met yet
pytestmark = pytest.mark.filterwarnings("ignore:the chains have not converged")
QUICK = {"num_chains": 3, "num_warmup": 20, "num_samples": 20, "num_leapfrog": 5, "progress": False}


def small(prior="neal", activation=nn.Tanh):
    return inducing.models.mlp(2, 1, [4], prior=prior, posterior="prior", activation=activation)


def data(rows=10):
    x = torch.randn(rows, 2)
    return x, torch.sin(x[:, :1]) + 0.1 * torch.randn(rows, 1)


X = torch.linspace(-1, 1, 20).reshape(10, 2)
Y = torch.sin(X[:, :1])


def chain_scores(per_chain, expected):
    """z of a mean over independent chains: (C, ...) -> (...)."""
    return (per_chain.mean(0) - expected) / (per_chain.std(0) / len(per_chain) ** 0.5)


def test_the_potential_and_its_gradient_by_hand():
    """A network with one hidden layer of tanh, differentiated on paper, in numpy."""
    x, y = data()
    for prior, precisions in (("neal", (3.0, 5.0)), ("standard", (1.0, 1.0))):
        target = WhitenedPosterior(small(prior), inducing.Gaussian(0.2), (x, y))
        assert target.size == 3 * 4 + 5
        position = torch.randn(2, target.size, dtype=torch.float64)
        found, origin = target(position), target(torch.zeros_like(position))
        rows = np.concatenate([x.double().numpy(), np.ones((10, 1))], 1)
        noise = target.likelihood.noise_variance.item()
        for chain, flat in enumerate(position.numpy()):
            first, last = flat[:12].reshape(3, 4) / precisions[0] ** 0.5, flat[12:].reshape(5, 1) / precisions[1] ** 0.5
            hidden = np.concatenate([np.tanh(rows @ first), np.ones((10, 1))], 1)
            residual = hidden @ last - y.double().numpy()
            energy = (flat**2).sum() / 2 + (residual**2).sum() / (2 * noise)
            at_origin = (y.double().numpy() ** 2).sum() / (2 * noise)
            difference = (found.potential[chain] - origin.potential[chain]).item()
            assert difference == pytest.approx(energy - at_origin, rel=1e-10)
            back = residual / noise
            last_gradient = hidden.T @ back
            first_gradient = rows.T @ ((back @ last[:-1].T) * (1 - hidden[:, :-1] ** 2))
            gradient = flat + np.concatenate(
                [first_gradient.ravel() / precisions[0] ** 0.5, last_gradient.ravel() / precisions[1] ** 0.5]
            )
            np.testing.assert_allclose(found.gradient[chain], gradient, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("layer", [inducing.Linear(3, 1), inducing.Linear(3, 1, bias=False, prior="standard")])
def test_linear_regression_is_the_closed_form(layer):
    """Mean and covariance of predictions, within four standard errors over independent chains."""
    layer = copy.deepcopy(layer)
    layer.posterior_spec = inducing.PriorOnly()
    x = torch.randn(8, 3)
    y = x @ torch.tensor([[1.0], [-0.5], [0.2]]) + 0.3 * torch.randn(8, 1)
    likelihood, network = inducing.Gaussian(0.09, learn_variance=False), inducing.Network([layer])
    chains = 100
    samples = inducing.hmc(
        network, likelihood, (x, y), num_chains=chains, num_warmup=100, num_samples=200, num_leapfrog=15, progress=False
    )
    new = torch.randn(4, 3)
    rows, new_rows = (nn.functional.pad(v, (0, 1), value=1.0) if layer.bias else v for v in (x, new))
    precision = (4.0 if layer.bias else 1.0) * torch.eye(rows.shape[1]).double()
    root = torch.full((1, 8), 0.09**-0.5, dtype=torch.float64)
    exact = linear_regression.posterior(rows.double(), y.double(), root, precision, 0)
    mean = new_rows.double() @ exact.mean
    covariance = new_rows.double() @ exact.covariance_matrix @ new_rows.double().mT
    outputs = samples.functions(new).double().unflatten(0, (chains, -1))[..., 0]
    errors = outputs - mean
    products = errors[..., :, None] * errors[..., None, :]
    assert chain_scores(outputs.mean(1), mean).abs().max() < 4
    assert chain_scores(products.mean(1), covariance).abs().max() < 4
    assert samples.diagnostics(new).r_hat.max() < 1.02
    assert (samples.acceptance.mean() - 0.8).abs() < 0.1
    assert not samples.divergences.any()


def test_a_likelihood_of_yes_and_no_against_quadrature():
    """One weight, so that its posterior can be integrated on a grid."""
    x = torch.tensor([[-2.0], [-1.0], [0.5], [1.5], [2.0]])
    y = torch.tensor([[0], [1], [0], [1], [1]])
    network = inducing.Network([inducing.Linear(1, 1, bias=False, prior="standard", posterior="prior")])
    samples = inducing.hmc(
        network, inducing.Bernoulli(), (x, y), num_chains=100, num_warmup=100, num_samples=200, num_leapfrog=5,
        progress=False,
    )  # fmt: skip
    grid = np.linspace(-8, 8, 20001)
    logits = grid[:, None] * x[:, 0].double().numpy()
    log_density = -(grid**2) / 2 - np.logaddexp(0, np.where(y[:, 0].numpy() == 1, -logits, logits)).sum(1)
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    mean = (density * grid).sum()
    variance = (density * (grid - mean) ** 2).sum()
    draws = samples.functions(torch.ones(1, 1)).double().view(100, -1)
    assert abs(chain_scores(draws.mean(1), mean)) < 4
    assert abs(chain_scores((draws - mean).square().mean(1), variance)) < 4


def test_predictions_are_a_mixture_over_all_draws():
    x, y = data()
    network, likelihood = small(), inducing.Gaussian(0.1)
    samples = inducing.hmc(network, likelihood, (x, y), **QUICK)
    prediction = inducing.predict(samples, likelihood, x)
    assert isinstance(prediction, Predictive)
    assert prediction.outputs.shape == (60, 10, 1)
    assert prediction.outputs.dtype == torch.float32
    torch.testing.assert_close(prediction.mean, samples.functions(x).mean(0))
    torch.testing.assert_close(inducing.predict(samples, likelihood, x, batch_size=3).outputs, prediction.outputs)
    assert prediction.log_prob(y).shape == (10,)
    assert samples.acceptance.shape == samples.divergences.shape == (3,)
    with pytest.raises(ValueError, match="all are used"):
        inducing.predict(samples, likelihood, x, num_samples=10)


def test_draws_lie_chain_after_chain_and_are_thinned():
    x, y = data()
    every = inducing.hmc(small(), inducing.Gaussian(0.1), (x, y), **QUICK).functions(x)
    fifth = inducing.hmc(small(), inducing.Gaussian(0.1), (x, y), **QUICK, thin=5).functions(x)
    assert fifth.shape == (12, 10, 1)
    assert torch.equal(every.unflatten(0, (3, 20))[:, 4::5], fifth.unflatten(0, (3, 4)))
    steps = every.unflatten(0, (3, 20)).diff(dim=1).abs().flatten(2).mean(-1)
    assert steps.median() < (every[::20, None] - every[None, ::20]).abs().mean() * 3, "neighbours belong to one chain"


def test_the_seed_decides_everything_and_nothing_else_is_touched():
    x, y = data()
    network, likelihood = inducing.models.mlp(2, 1, [4], num_inducing=3), inducing.Gaussian(0.1)
    before = copy.deepcopy((network.state_dict(), likelihood.state_dict())), torch.get_rng_state()
    first, again, other = (inducing.hmc(network, likelihood, (x, y), seed=seed, **QUICK) for seed in (0, 0, 1))
    assert torch.equal(first.functions(x), again.functions(x))
    assert not torch.equal(first.functions(x), other.functions(x))
    assert torch.equal(before[1], torch.get_rng_state())
    for old, new in zip(before[0], (network.state_dict(), likelihood.state_dict()), strict=True):
        assert all(torch.equal(old[name], new[name]) for name in new)
    assert all(p.grad is None and p.requires_grad for p in (*network.parameters(), *likelihood.parameters()))
    assert network.dtype == torch.float32


@pytest.mark.parametrize(
    ("likelihood", "outputs", "targets"),
    [
        (inducing.Gaussian([0.1, 0.2]), 2, torch.zeros(10, 2)),
        (inducing.HeteroscedasticGaussian(), 2, torch.arange(10.0)[:, None] / 5 - 1),
        (inducing.StudentT(), 1, torch.zeros(10, 1)),
        (inducing.Poisson(), 1, torch.arange(10)[:, None]),
        (inducing.NegativeBinomial(), 1, torch.arange(10)[:, None]),
        (inducing.Categorical(), 3, torch.arange(10) % 3),
    ],
)
def test_every_likelihood_in_a_residual_network(likelihood, outputs, targets):
    block = inducing.Residual(nn.ReLU(), inducing.Linear(4, 4), shortcut=inducing.Linear(4, 4, bias=False))
    network = inducing.Network(
        [nn.Flatten(), inducing.Linear(2, 4), block, nn.Tanh(), inducing.Linear(4, outputs)], num_inducing=2,
        input_shape=2,
    )  # fmt: skip
    x = torch.randn(10, 2)
    samples = inducing.hmc(network, likelihood, (x, targets), **QUICK)
    assert torch.isfinite(inducing.predict(samples, likelihood, x).log_prob(targets)).all()


def test_chains_that_do_not_agree_are_told():
    x, y = torch.linspace(-1, 1, 10)[:, None].repeat(1, 2), torch.linspace(-5, 5, 10)[:, None]
    with pytest.warns(inducing.ConvergenceWarning, match=r"R-hat .* above 1\.1\. Raise num_warmup"):
        inducing.hmc(small(), inducing.Gaussian(0.01), (x, y), **{**QUICK, "num_warmup": 5, "num_leapfrog": 1})


def test_inside_no_grad_and_inference_mode():
    arguments = (small(), inducing.Gaussian(0.1), (X, Y))
    with torch.no_grad():
        inside = inducing.hmc(*arguments, **QUICK).functions(X)
    assert torch.equal(inside, inducing.hmc(*arguments, **QUICK).functions(X))
    with torch.inference_mode(), pytest.raises(RuntimeError, match="inference_mode"):
        inducing.hmc(*arguments, **QUICK)


@pytest.mark.parametrize("seed", [None, 0.5])
def test_a_seed_that_is_not_a_whole_number_is_refused(seed):
    with pytest.raises(TypeError, match="seed must be a whole number"):
        inducing.hmc(small(), inducing.Gaussian(0.1), data(), **QUICK, seed=seed)


def bad_network():
    return inducing.Network([inducing.Conv2d(1, 1, 3, posterior="prior"), nn.Flatten()], input_shape=(1, 4, 4))


def normalised():
    return inducing.Network([inducing.Linear(2, 1), inducing.InducingNorm()], num_inducing=3)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"network": inducing.Linear}, TypeError, "network must be an inducing.Network, got the class Linear"),
        ({"network": nn.Linear(2, 1)}, TypeError, "network must be an inducing.Network"),
        ({"likelihood": inducing.Gaussian}, TypeError, "likelihood must be"),
        ({"network": bad_network()}, TypeError, "layers.0 Conv2d.* is not a Linear layer"),
        ({"network": inducing.models.deep_gp(2, 1, num_inducing=3)}, TypeError, "layers.0 GPLayer.* is not a Linear"),
        ({"network": normalised()}, TypeError, "InducingNorm.* needs inducing points"),
        ({"network": small("scale")}, TypeError, 'layers.0 has a ScalePrior, which is learned.*prior="neal"'),
        ({"network": small("spatial-iw")}, TypeError, "SpatialIWPrior, which is learned"),
        ({"data": (torch.full((4, 2), torch.nan), torch.zeros(4, 1))}, ValueError, "x contains NaN or inf in 4 of 4"),
        ({"data": (torch.zeros(4, 2), torch.full((4, 1), torch.inf))}, ValueError, "y contains NaN or inf"),
        ({"data": (torch.zeros(0, 2), torch.zeros(0, 1))}, ValueError, "zero rows"),
        ({"data": (torch.zeros(4, 2), torch.zeros(3, 1))}, ValueError, "got 4 and 3"),
        ({"data": (torch.zeros(4, 2).double(), torch.zeros(4, 1))}, TypeError, "x is torch.float64 but the network is"),
        ({"data": (torch.zeros(4, 2), torch.zeros(4))}, ValueError, r"use y\[:, None\]"),
        ({"num_chains": 0}, ValueError, "num_chains must be at least 1, got 0"),
        ({"num_warmup": 0}, ValueError, "num_warmup must be at least 1"),
        ({"num_leapfrog": 0}, ValueError, "num_leapfrog must be at least 1"),
        ({"thin": 30}, ValueError, "thin=30"),
        ({"target_acceptance": 1.0}, ValueError, "target_acceptance must be between"),
        ({"likelihood": inducing.Gaussian(1e-30)}, inducing.DivergenceError, "no chain moves"),
    ],
)  # fmt: skip
def test_bad_input_is_explained(changes, error, message):
    arguments = {"network": small(), "likelihood": inducing.Gaussian(0.1), "data": data(), **QUICK, **changes}
    with pytest.raises(error, match=message):
        inducing.hmc(**arguments)


def test_a_beginning_without_a_finite_density_is_explained():
    network = inducing.models.mlp(2, 1, [4], posterior="prior", prior="standard")
    x, y = torch.full((4, 2), 1e200, dtype=torch.float64), torch.zeros(4, 1).double()
    with pytest.raises(inducing.DivergenceError, match="not finite at the initial draws"):
        inducing.hmc(network.double(), inducing.Gaussian(0.1).double(), (x, y), **QUICK)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("num_warmup", "error", "message"),
    [(20, UserWarning, "trajectories diverged"), (1, inducing.DivergenceError, "no trajectory of any chain")],
)
def test_divergences_are_told(num_warmup, error, message):
    """A warm-up that is too short and content with half of the proposals."""
    x, y = data()
    arguments = (small("standard", nn.ReLU), inducing.Gaussian(1e-3), (x, y))
    settings = {"num_chains": 10, "num_samples": 20, "num_leapfrog": 5, "target_acceptance": 0.5, "progress": False}
    with pytest.raises(error, match=message):
        inducing.hmc(*arguments, num_warmup=num_warmup, **settings)


@pytest.mark.parametrize(
    ("num_runs", "num_samples", "precise"),
    [(1, 150, 0.5), pytest.param(2, 500, 0.2, marks=pytest.mark.slow)],
    ids=["quick", "long"],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_small_network_against_the_sampler_of_pyro(num_runs, num_samples, precise):
    """Predictive mean and variance on a grid agree within four Monte-Carlo standard errors."""
    x = torch.linspace(-1, 1, 10)[:, None]
    y = torch.sin(3 * x) + 0.2 * torch.randn(10, 1)
    new = torch.linspace(-2, 2, 9)[:, None]
    network = inducing.models.mlp(1, 1, [5], posterior="prior", activation=nn.Tanh)
    likelihood = inducing.Gaussian(0.04, learn_variance=False)
    samples = inducing.hmc(
        network, likelihood, (x, y), num_chains=30, num_warmup=200, num_samples=num_samples, target_acceptance=0.9,
        progress=False,
    )  # fmt: skip
    assert samples.diagnostics(new).r_hat.max() < 1.1
    ours = samples.functions(new).double().unflatten(0, (30, -1))[..., 0]
    theirs = torch.stack(
        [nuts.outputs(x.double(), y.double(), new.double(), 5, 0.04, 100, num_samples, run) for run in range(num_runs)]
    )
    for power in (1, 2):
        centre = ours.mean((0, 1)) if power == 2 else 0.0
        (mean, error), (other, other_error) = (mean_and_error((each - centre) ** power) for each in (ours, theirs))
        assert ((mean - other) / (error.square() + other_error.square()).sqrt()).abs().max() < 4
        # and that says something: the errors are small beside the spread
        assert (other_error / ours.std((0, 1)) ** power).max() < precise


def mean_and_error(draws):
    ess = array_stats.ess(draws.numpy(), chain_axis=0, draw_axis=1, method="mean")
    return draws.mean((0, 1)), draws.std((0, 1)) / torch.as_tensor(ess).sqrt()
