"""Deep Gaussian processes fitted: what users of other libraries ask for, and data that break them."""

import math
import warnings

import pytest
import torch

import inducing

POSTERIORS = ("global", "local", "dsvi")


def curve(kind):
    x = torch.linspace(-2, 2, 100)[:, None]
    truth = torch.sign(x) if kind == "step" else torch.sin(4 * x)
    return x, truth, truth + 0.1 * torch.randn(100, 1)


def fitted(x, y, num_layers, posterior, num_steps, num_inducing=30, likelihood=None, outputs=1):
    points, targets = inducing.choose_inducing_points(x, y, num_inducing)
    network = inducing.models.deep_gp(
        x.shape[1], outputs, num_layers, posterior=posterior, inducing_points=points, inducing_targets=targets
    )
    likelihood = inducing.Gaussian() if likelihood is None else likelihood
    history = inducing.fit(network, likelihood, (x, y), num_steps=num_steps, progress=False)
    assert all(math.isfinite(elbo) for elbo in history.elbo)
    return network, likelihood, history


@pytest.mark.parametrize(("kind", "num_layers"), [("step", 2), ("sine", 3)])
def test_it_fits_a_noisy_step_and_a_sine(kind, num_layers):
    """float32 and default settings, with fewer steps."""
    x, truth, y = curve(kind)
    network, likelihood, _ = fitted(x, y, num_layers, "global", 300)
    prediction = inducing.predict(network, likelihood, x, 50)
    assert (prediction.mean - truth).square().mean().sqrt() < 0.15
    assert likelihood.noise_variance.sqrt() < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["step", "sine"])
@pytest.mark.parametrize("num_layers", [2, 3])
def test_it_fits_with_default_settings_to_the_end(kind, num_layers):
    x, truth, y = curve(kind)
    network, likelihood, _ = fitted(x, y, num_layers, "global", inducing.recipes.FAST.num_steps)
    prediction = inducing.predict(network, likelihood, x, 50)
    assert (prediction.mean - truth).square().mean().sqrt() < 0.1
    assert 0.07 < likelihood.noise_variance.sqrt() < 0.13


def spiral(rows=150):
    radius = torch.rand(3, rows).sqrt()
    angle = 2 * math.pi * radius + torch.arange(3)[:, None] * 2 * math.pi / 3 + 0.1 * torch.randn(3, rows)
    x = torch.stack([radius * angle.cos(), radius * angle.sin()], -1).reshape(-1, 2)
    order = torch.randperm(3 * rows)
    return ((x - x.mean(0)) / x.std(0))[order], torch.arange(3).repeat_interleave(rows)[order]


@pytest.mark.parametrize("posterior", ["global", "dsvi"])
def test_it_tells_three_spirals_apart(posterior):
    """Spirals of one turn: with one and a half, the accuracy after 250 steps is 0.93 to 0.99, depending on the seed."""
    x, labels = spiral()
    network, likelihood, _ = fitted(x[:300], labels[:300], 2, posterior, 250, 60, inducing.Categorical(), outputs=3)
    assert inducing.metrics.accuracy(inducing.predict(network, likelihood, x[300:], 50), labels[300:]) > 0.95


@pytest.mark.parametrize(
    ("likelihood", "outputs"),
    [
        (inducing.Bernoulli, 1),
        (inducing.Poisson, 1),
        (inducing.NegativeBinomial, 1),
        (inducing.StudentT, 1),
        (inducing.HeteroscedasticGaussian, 2),
        (inducing.HeteroscedasticStudentT, 2),
    ],
)
def test_every_likelihood(likelihood, outputs):
    """Targets that follow the input: the fit has to beat a model that does not look at it."""
    x = torch.randn(200, 1)
    rate = (0.5 + x).exp()
    y = {
        inducing.Bernoulli: torch.bernoulli(torch.sigmoid(3 * x)),
        inducing.Poisson: torch.poisson(rate),
        inducing.NegativeBinomial: torch.poisson(rate * torch.distributions.Gamma(5.0, 5.0).sample((200, 1))),
    }.get(likelihood, torch.sin(2 * x) + 0.2 * torch.randn(200, 1))
    found = []
    for inputs in (x, torch.zeros_like(x)):
        torch.manual_seed(0)
        points = inputs[:20] + 0.1 * torch.randn(20, 1)
        network, noise = inducing.models.deep_gp(1, outputs, inducing_points=points), likelihood()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*is not standardised")
            inducing.fit(network, noise, (inputs[:150], y[:150]), num_steps=60, progress=False)
        prediction = inducing.predict(network, noise, inputs[150:], 50)
        found.append(inducing.metrics.log_likelihood(prediction, y[150:]))
    assert found[0] > found[1] + 0.05


def hard(kind):
    """Data that break factorisations."""
    x, y = torch.randn(60, 3), torch.randn(60, 1)
    if kind == "duplicates":
        x[1:20] = x[0]
    if kind == "constant feature":
        x[:, 1] = 0.7
    if kind.startswith("scaled"):
        x = x * float(kind.split()[-1])
    return x, y


HARD = ["duplicates", "constant feature", "scaled by 1e-6", "scaled by 1e6"]


def survives(kind, posterior, num_layers, num_steps):
    x, y = hard(kind)
    network = inducing.models.deep_gp(
        3, 1, num_layers, posterior=posterior, inducing_points=x[:20], inducing_targets=y[:20]
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is not standardised")
        history = inducing.fit(network, inducing.Gaussian(), (x, y), num_steps=num_steps, num_samples=2, progress=False)
    assert len(history) == num_steps
    # what the model has of its own, and nothing beyond
    assert {record.jitter for record in history.records} == {1e-6}
    assert torch.isfinite(network.sample_functions(5)(x)).all()


@pytest.mark.parametrize("posterior", [*POSTERIORS, "coupled"])
@pytest.mark.parametrize("kind", HARD)
def test_it_survives_hard_data(kind, posterior):
    survives(kind, posterior, num_layers=5, num_steps=15)


@pytest.mark.slow
@pytest.mark.parametrize("posterior", [*POSTERIORS, "coupled"])
@pytest.mark.parametrize("kind", HARD)
def test_it_survives_hard_data_for_five_hundred_steps(kind, posterior):
    survives(kind, posterior, num_layers=5, num_steps=500)


class Crash(Exception):
    """What ends a run in the middle."""


def test_a_resumed_run_ends_with_the_same_numbers(tmp_path):
    x, y = torch.randn(40, 2), torch.randn(40, 1)

    def run(folder, crash_at=None):
        torch.manual_seed(0)
        network = inducing.models.deep_gp(2, 1, 2, inducing_points=x[:10], inducing_targets=y[:10])

        def callback(record):
            if record.step == crash_at:
                raise Crash

        settings = {"num_steps": 12, "progress": False, "checkpoint": tmp_path / folder, "checkpoint_seconds": 0.0}
        inducing.fit(network, inducing.Gaussian(), (x, y), callbacks=callback, **settings)
        return network.state_dict()

    with pytest.raises(Crash):
        run("crashed", crash_at=7)
    resumed, whole = run("crashed"), run("whole")
    assert all(torch.equal(value, whole[name]) for name, value in resumed.items())


def test_the_optimal_start_sets_the_last_process():
    x, y = torch.randn(40, 2), torch.randn(40, 1)
    network = inducing.models.deep_gp(2, 1, 2, inducing_points=x[:10], inducing_targets=y[:10])
    inducing.fit(
        network, inducing.Gaussian(0.1, learn_variance=False), (x, y), num_steps=1, learning_rate=1e-9, progress=False
    )
    log_precision = 3 * network.layers[-1].posterior.scaled_log_precision.detach()
    torch.testing.assert_close(log_precision, torch.full((1, 10), math.log(40 / 10 / 0.1)), rtol=1e-4, atol=1e-4)


def test_counts_as_first_values_of_logarithms_are_noticed():
    x, counts = torch.randn(30, 1), torch.poisson(torch.full((30, 1), 50.0))
    network = inducing.models.deep_gp(1, 1, inducing_points=x, inducing_targets=counts)
    with pytest.warns(UserWarning, match=r"inducing_targets=torch.log\(y \+ 0.5\)"):
        inducing.fit(network, inducing.Poisson(), (x, counts), num_steps=1, progress=False)
    network = inducing.models.deep_gp(1, 1, inducing_points=x, inducing_targets=torch.log(counts + 0.5))
    history = inducing.fit(network, inducing.Poisson(), (x, counts), num_steps=1, progress=False)
    assert repr(history).startswith("History(1 steps, ELBO per datapoint ")
