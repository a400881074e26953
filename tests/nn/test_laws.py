"""Properties of every posterior with every prior, and of Gaussian processes."""

import copy

import pytest
import torch
from torch import nn

import inducing
from inducing.nn import WeightModule
from inducing.nn.layers import Layer
from inducing.nn.posteriors.inducing import InducingValues

POSTERIORS = {
    "factorised": inducing.Factorised(),
    "factorised, sampled KL": inducing.Factorised(kl="sample"),
    "factorised, local reparameterisation": inducing.Factorised(local_reparameterisation=True),
    "local": inducing.LocalInducing(num_inducing=6),
    "local, per output": inducing.LocalInducing(precision="per_output", kl="closed_form"),
    "local, full": inducing.LocalInducing(precision="full"),
    "global": inducing.GlobalInducing(),
    "global, per output": inducing.GlobalInducing("per_output"),
    "global, full": inducing.GlobalInducing("full"),
    "global, full per output": inducing.GlobalInducing("full_per_output"),
    "global, closed-form KL": inducing.GlobalInducing(kl="closed_form"),
    "prior": inducing.PriorOnly(),
    "factorised->global": "factorised->global",
    "prior->global": "prior->global",
    "local->global": "local->global",
    "global->factorised": "global->factorised",
    "global->local": "global->local",
}
CORRELATED = ("spatial-iw", "channel-iw", "kronecker-iw")
PRIORS = {"neal": "neal", "standard": "standard", "scale": inducing.ScalePrior(), **{name: name for name in CORRELATED}}
SAMPLES, ROWS = 5, 8


def mlp(posterior, prior):
    return lambda: inducing.models.mlp(3, 2, [7, 4], posterior=posterior, prior=prior, num_inducing=5)


def deep_gp(posterior, kernel="squared-exponential"):
    def build():
        points = torch.randn(5, 3)
        return inducing.models.deep_gp(3, 2, 3, width=2, posterior=posterior, kernel=kernel, inducing_points=points)

    return build


def network_under_gp():
    layers = [inducing.Linear(3, 4), nn.Tanh(), inducing.GPLayer(4, 2)]
    return inducing.Network(layers, inducing_points=torch.randn(5, 3))


def conv(posterior, prior, boundary="circular"):
    def build():
        spec, num_inducing = CONV_POSTERIORS[posterior], 5 if "global" in posterior else None
        layers = [
            nn.Unflatten(1, (1, 1, 3)),
            inducing.Conv2d(1, 4, (1, 3), padding=(0, 1), prior=prior, posterior=spec, boundary=boundary),
            nn.ReLU(),
            inducing.Conv2d(4, 3, 1, stride=2, prior=prior, posterior=spec, boundary=boundary, bias=False),
            nn.Flatten(),
            inducing.Linear(6, 2, prior=prior, posterior=LAST.get(posterior, spec)),
        ]
        return inducing.Network(layers, num_inducing=num_inducing, input_shape=3)

    return build


CONV_POSTERIORS = {
    "global": inducing.GlobalInducing(),
    "global, per output": inducing.GlobalInducing("per_output", kl="closed_form"),
    "local": inducing.LocalInducing(6),
    "factorised": inducing.Factorised(),
    "factorised->global": inducing.Factorised(),
    "prior->global": inducing.PriorOnly(),
}
LAST = {"factorised->global": "global", "prior->global": "global"}
GP_POSTERIORS = {
    "global": inducing.GlobalInducing(),
    "global, per output": inducing.GlobalInducing("per_output", kl="closed_form"),
    "global, full": "global",
    "local, full": "local",
    "local, per output": inducing.LocalInducing(3, "per_output"),
    "dsvi": inducing.DSVI(initial_scale=0.1),
    "coupled": inducing.CoupledInducing(initial_scale=0.1),
    "coupled, closed-form KL": inducing.CoupledInducing(0.1, "closed_form"),
    "global->dsvi": ["global", "global", inducing.DSVI(initial_scale=0.1)],
    **{name: name for name in ("dsvi->global", "local->global", "coupled->global", "prior->global", "global->local")},
}
kernels = inducing.kernels
KERNELS = {
    "matern12": "matern12",
    "matern32": "matern32",
    "matern52": kernels.Matern52(ard=False),
    "linear": kernels.Linear(),
    "arc-cosine": kernels.ArcCosine(),
    "sum": kernels.Linear() + kernels.SquaredExponential(),
    "product": kernels.Linear() * kernels.Matern32(),
}
NETWORKS = {
    **{f"{p} x {q}": mlp(POSTERIORS[p], PRIORS[q]) for p in POSTERIORS for q in PRIORS},
    **{f"GP {name}": deep_gp(posterior) for name, posterior in GP_POSTERIORS.items()},
    **{f"GP {name} kernel": deep_gp("global", kernel) for name, kernel in KERNELS.items()},
    "a network under a GP": network_under_gp,
    **{f"conv {p} x {q}": conv(p, q) for p in CONV_POSTERIORS for q in ("neal", "scale", *CORRELATED)},
    "conv, exact": conv("global", "standard", "exact"),
}


@pytest.fixture(params=NETWORKS)
def network(request):
    return NETWORKS[request.param]()


def _layers(network):
    return [layer for layer in network.layers if isinstance(layer, Layer)]


@pytest.fixture
def x():
    return torch.randn(ROWS, 3)


def test_shapes(network, x):
    draw = network.draw(SAMPLES)
    assert network(x, SAMPLES).shape == draw(x).shape == (SAMPLES, ROWS, 2)
    assert len(draw.layers) == len(network.layer_names)
    assert all(layer.kl.shape == layer.prior_kl.shape == (SAMPLES,) for layer in draw.layers)
    if network.num_inducing is None:
        assert draw.inducing is None
    else:
        assert draw.inducing.shape == (SAMPLES, 5, 2)
        assert [layer.inducing.shape[2] for layer in draw.layers] == [layer.out_features for layer in _layers(network)]


def test_every_parameter_gets_a_gradient(network, x):
    elbo = inducing.ELBO(network, inducing.Gaussian(), num_data=ROWS)
    terms = elbo(x, torch.randn(ROWS, 2), SAMPLES)
    (-terms.objective).backward()
    for name, parameter in elbo.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().sum() > 0, name


def test_a_draw_is_a_function(network, x):
    """The same rows give the same answers: in one batch, split, permuted, again, and from a copy."""
    function = network.draw(SAMPLES, consistent=True)
    whole = function(x)
    torch.testing.assert_close(torch.cat([function(x[:3]), function(x[3:])], 1), whole)
    torch.testing.assert_close(function(x.flip(0)).flip(1), whole)
    frozen = network.sample_functions(SAMPLES, seed=3)
    torch.testing.assert_close(torch.cat([frozen(row[None]) for row in x], 1), frozen(x))
    torch.testing.assert_close(network.sample_functions(SAMPLES, seed=3)(x), frozen(x), rtol=0, atol=0)
    torch.testing.assert_close(copy.deepcopy(frozen)(x), frozen(x), rtol=0, atol=0)
    assert not torch.equal(network.sample_functions(SAMPLES, seed=4)(x), frozen(x))


def test_an_optimiser_step_does_not_alter_a_draw(network, x):
    draw, frozen = network.draw(SAMPLES, consistent=True), network.sample_functions(SAMPLES, seed=0)
    before, frozen_before = draw(x).detach().clone(), frozen(x)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1.0)
    torch.testing.assert_close(draw(x), before, rtol=0, atol=0)
    torch.testing.assert_close(frozen(x), frozen_before, rtol=0, atol=0)


def test_state_dict_round_trip(network, x):
    other = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
    other.load_state_dict(network.state_dict())
    torch.testing.assert_close(other.sample_functions(2, 0)(x), network.sample_functions(2, 0)(x), rtol=0, atol=0)


def test_moving_dtype(network, x):
    network.double()
    draw = network.draw(SAMPLES)
    assert draw(x.double()).dtype == torch.float64
    assert all(layer.kl.dtype == layer.prior_kl.dtype == torch.float64 for layer in draw.layers)
    frozen = network.sample_functions(2, 0)
    # a frozen process stays in float64, but what goes from one to the next is rounded
    close = 1e-4 if all(isinstance(layer.posterior, WeightModule) for layer in _layers(network)) else 1e-2
    torch.testing.assert_close(copy.deepcopy(frozen).float()(x), frozen(x.double()).float(), rtol=close, atol=close)


def test_mean_kl_is_not_negative(network):
    draw = network.draw(4000, torch.Generator().manual_seed(0))
    for layer in draw.layers:
        standard_error = layer.kl.std() / len(layer.kl) ** 0.5
        assert layer.kl.mean() > -4 * standard_error - 1e-6
        assert (layer.prior_kl >= 0).all()


def test_a_generator_decides_everything(network, x):
    draws = [network.draw(SAMPLES, torch.Generator().manual_seed(7)) for _ in range(2)]
    torch.testing.assert_close(draws[0].layers[-1].kl, draws[1].layers[-1].kl, rtol=0, atol=0)
    before = torch.get_rng_state()
    network.draw(SAMPLES, torch.Generator().manual_seed(7))(x)
    assert torch.equal(before, torch.get_rng_state())


def test_gradients_agree_with_finite_differences(network, x):
    """The whole ELBO in float64, along a random direction of all parameters.

    Where layers regress, gradients follow the law and not the noise, and agree on the average: every |t| < 6. The prior's own
    are left out: the gradient through a Gamma draw is that of the inverse distribution function, not of the rejection
    sampler at a fixed seed. Its expectation is tested in test_priors.py.
    """
    elbo = inducing.ELBO(network, inducing.Gaussian(), num_data=ROWS).double()
    x, y = x.double(), torch.randn(ROWS, 2, dtype=torch.float64)
    parameters = dict(elbo.named_parameters())
    direction = {name: torch.randn_like(p) * (".prior." not in name) for name, p in parameters.items()}

    def value(step, seed):
        moved = {name: parameter + step * direction[name] for name, parameter in parameters.items()}
        # many at a time cost little more than few
        arguments = (x, y, 4 * SAMPLES, 1.0, torch.Generator().manual_seed(seed))
        return torch.func.functional_call(elbo, moved, arguments).elbo

    def compare(seed):
        step = torch.zeros((), dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(value(step, seed), step)
        with torch.no_grad():
            return slope, (value(1e-6, seed) - value(-1e-6, seed)) / 2e-6

    # with a sampled KL, regressions differentiate the distribution of a draw, not the draw at fixed noise
    posteriors = [layer.posterior for layer in _layers(network)]
    if any(each.sampled_kl_has_low_variance or isinstance(each, InducingValues) for each in posteriors):
        difference = torch.stack([torch.sub(*compare(seed)) for seed in range(10)])
        assert difference.mean().abs() < 6 * difference.std() / 10**0.5 + 1e-4
    else:
        torch.testing.assert_close(*compare(0), rtol=2e-4, atol=1e-4)


def test_laws_of_residual_blocks(request):
    for posterior in ("factorised", "local", "global", "prior"):
        layers = [
            inducing.Linear(3, 4, posterior=posterior),
            inducing.Residual(nn.ReLU(), inducing.Linear(4, 4, posterior=posterior)),
            inducing.Linear(4, 1, posterior=posterior),
        ]
        network = inducing.Network(layers, num_inducing=5 if posterior == "global" else None)
        assert network(torch.randn(6, 3), 2).shape == (2, 6, 1)
