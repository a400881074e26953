"""Numbers of version 0.1.0 for fixed seeds, in float64: a change of the code must not change them unnoticed."""

import pytest
import torch
from torch import nn

import inducing

X = torch.linspace(-2, 2, 60, dtype=torch.float64).sin().reshape(20, 3)
Y = (X.sum(1, keepdim=True) + X[:, :1] * X[:, 1:2]).tanh()


def images():
    return torch.linspace(-3, 3, 6 * 64, dtype=torch.float64).cos().reshape(6, 1, 8, 8)


def dense(posterior, prior="neal"):
    points = {"inducing_points": X[:8], "inducing_targets": Y[:8]}
    return inducing.models.mlp(3, 1, [6], posterior=posterior, prior=prior, generator=generator(), **points)


def exact():
    points = {"inducing_points": X, "inducing_targets": Y, "learn_inducing_locations": False}
    return inducing.models.mlp(3, 1, [6], posterior="global->optimal", generator=generator(), **points)


def process(posterior):
    points = {"inducing_points": X[:8], "inducing_targets": Y[:8]}
    return inducing.models.deep_gp(3, 1, 2, posterior=posterior, generator=generator(), **points)


def convolution():
    layers = [inducing.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.Flatten(), inducing.Linear(128, 1)]
    return inducing.Network(layers, inducing_points=images(), generator=generator())


def generator():
    return torch.Generator().manual_seed(0)


CASES = {
    "factorised": (lambda: dense("factorised"), (-9.62774489, 0.214520113, 0.340615783)),
    "local": (lambda: dense("local"), (-5.76249072, 0.412928342, 0.593584033)),
    "global": (lambda: dense("global"), (-2.68166623, -0.955020125, 0.329295635)),
    "global per output, scale prior": (
        lambda: dense(inducing.GlobalInducing("per_output"), inducing.ScalePrior(initial=1.0)),
        (-4.30476683, -0.996120409, 0.325229292),
    ),
    "global, Kronecker prior": (lambda: dense("global", "kronecker-iw"), (-5.98129393, -0.975655331, 0.329742222)),
    "optimal": (exact, (-0.750218653, -0.893462261, 0.223169918)),
    "deep GP, global": (lambda: process("global"), (-3.6684975, -0.961478088, 0.332088179)),
    "deep GP, DSVI": (lambda: process("dsvi"), (-18.1863552, -0.159482152, 0.763621667)),
    "deep GP, coupled": (lambda: process("coupled"), (-20.108975, -0.904415087, 0.342024444)),
    # convolutions have had the gradients of inducing.linalg.reparameterisation since 0.2.0; before: -4.34721785
    "convolution": (convolution, (-4.35008826, -0.142587198, 0.524712338)),
}


@pytest.mark.parametrize("name", CASES)
def test_training_and_predictions_are_those_of_version_0_1_0(name):
    make, (elbo, mean, stddev) = CASES[name]
    network, likelihood = make().double(), inducing.Gaussian().double()
    x, y = (images(), Y[:6]) if name == "convolution" else (X, Y)
    inducing.fit(network, likelihood, (x, y), num_steps=5, seed=1, progress=False, batch_size=4)
    found = inducing.evaluate(network, likelihood, (x, y), num_samples=5).elbo_per_datapoint.item()
    predictive = inducing.predict(network, likelihood, x[:2], num_samples=5)
    assert found == pytest.approx(elbo, rel=1e-6)
    assert predictive.mean[0, 0].item() == pytest.approx(mean, rel=1e-5, abs=1e-7)
    assert predictive.stddev[0, 0].item() == pytest.approx(stddev, rel=1e-5)
