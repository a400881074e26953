"""Updates of the last layer by new data. Oracle: for one layer, the update equals fitting to all rows."""

import pytest
import torch

import inducing
from inducing.nn.last_layer import draw_last_layer, noise_variance, update

NOISE = 0.3


def data(rows):
    x = torch.linspace(-2, 2, 2 * rows).sin().reshape(rows, 2).double() + 0.1 * torch.randn(rows, 2).double()
    return x, torch.stack([x[:, 0].sin(), x.prod(1)], 1)


def one_layer(kind, x, y):
    settings = {"inducing_points": x, "inducing_targets": y, "learn_inducing_locations": False}
    if kind == "linear":
        return inducing.Network([inducing.Linear(2, 2, posterior="optimal")], **settings)
    return inducing.Network([inducing.GPLayer(2, 2, posterior="optimal", jitter=1e-9)], **settings)


@pytest.mark.parametrize("kind", ["linear", "gp"])
def test_the_update_of_one_layer_equals_fitting_to_all_rows(kind):
    likelihood, (x, y), new = inducing.Gaussian(NOISE).double(), data(12), torch.randn(5, 2).double()
    before = draw_last_layer(one_layer(kind, x[:7], y[:7]), 1, likelihood=likelihood)
    after = draw_last_layer(one_layer(kind, x, y), 1, likelihood=likelihood)
    # the posterior covariance given all rows is C - C (C + Sigma)^-1 C, and the update of the mean is that of the regression
    covariance, features = before.covariance, before.covariance.features(new[None])
    observed = covariance.features(x[None, 7:])
    gram = covariance.between(observed, observed) + NOISE * torch.eye(5).double()
    cross = covariance.between(features, observed)
    updated = covariance.between(features, features) - cross @ torch.linalg.solve(gram, cross.mT)
    again = after.covariance.features(new[None])
    torch.testing.assert_close(updated, after.covariance.between(again, again), rtol=1e-5, atol=1e-7)


def test_the_updated_mean_equals_that_of_all_rows():
    likelihood, (x, y), new = inducing.Gaussian(NOISE).double(), data(12), torch.randn(5, 2).double()
    few, many = (one_layer("linear", x[:n], y[:n]) for n in (7, 12))
    first = draw_last_layer(few, 4000, likelihood=likelihood)
    mean = first.last(x[None, 7:]).mean(0, keepdim=True)
    # the update of the mean function is linear in it, so the mean of the draws is enough
    correction = update(
        first.covariance, x[None, 7:], mean, y[7:], torch.tensor(NOISE).double(), torch.zeros(()).double()
    )
    found = first.last(new[None]).mean(0) + correction.correct(first.covariance, new[None])[0]
    expected = many.sample_functions(4000, likelihood=likelihood)(new).mean(0)
    torch.testing.assert_close(found, expected, rtol=0, atol=0.05)


@pytest.mark.parametrize(
    "last",
    [
        lambda: inducing.Linear(4, 2),
        lambda: inducing.Linear(4, 2, prior="scale", bias=False),
        lambda: inducing.Linear(4, 2, posterior=inducing.GlobalInducing("full_per_output")),
        lambda: inducing.Linear(4, 2, posterior="local"),
        lambda: inducing.Linear(4, 2, posterior="factorised"),
        lambda: inducing.Linear(4, 2, posterior="prior"),
        lambda: inducing.GPLayer(4, 2),
        lambda: inducing.GPLayer(4, 2, "matern32", posterior="dsvi"),
        lambda: inducing.GPLayer(4, 2, posterior="local"),
    ],
)
def test_draws_are_those_of_the_network_and_pass_through_exact_data(last):
    x, y = data(9)
    network = inducing.Network([inducing.Linear(2, 4), torch.nn.Tanh(), last()], inducing_points=x[:6])
    drawn = draw_last_layer(network, 3, seed=4)
    torch.testing.assert_close(drawn.last(drawn.below(x[None])), network.sample_functions(3, seed=4)(x))
    rows, zero = drawn.below(x[None, :3]), torch.zeros(()).double()
    found = update(drawn.covariance, rows, drawn.last(rows), y[:3], zero + 1e-12, zero)
    values = drawn.last(rows) + found.correct(drawn.covariance, rows)
    torch.testing.assert_close(values, y[:3].expand(3, -1, -1), rtol=0, atol=2e-3)


def test_counts_cannot_be_updated():
    with pytest.raises(TypeError, match="Poisson"):
        noise_variance(inducing.Poisson(), torch.zeros(1, 2, 1))
