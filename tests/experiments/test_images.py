import json
from dataclasses import replace

import pytest
import torch
from rich.console import Console

import inducing
from inducing.data import images
from inducing.experiments.engine.report import show
from inducing.experiments.engine.sweep import reproduce
from inducing.experiments.images import CIFAR10, FASHION500, GUESSING, MNIST500, RESNET18, Config, build_network, run
from inducing.nn.context import BuildContext
from inducing.nn.posteriors.base import WeightContext
from inducing.nn.priors import WeightLayout


def result(posterior, elbo=-1.0, prior="scale", dataset="cifar10", model="resnet8"):
    config = {
        "dataset": dataset,
        "model": model,
        "prior": prior,
        "posterior": posterior,
        "num_data": 50,
        "num_test": 20,
        "channels": 2,
        "num_inducing": 5,
        "num_steps": 3,
        "batch_size": 10,
    }
    curve = [[0.3, 0.2, 12], [0.9, 0.8, 30]]
    metrics = {
        "elbo_per_datapoint": elbo,
        "test_log_likelihood": -0.9,
        "accuracy": 70.0,
        "ece": 0.05,
        "calibration": curve,
    }
    return {"config": config, "metrics": metrics | {"entropy_ratio": 0.5, "auroc": 0.8}}


def test_the_settings_are_the_papers():
    mnist = MNIST500.configs("paper")
    assert len(mnist) == 16
    assert {(c.num_data, c.learning_rate, c.channels, c.model) for c in mnist} == {(500, 1e-3, 64, "lenet")}
    cifar = CIFAR10.configs("paper")
    # and the plain network
    assert len(cifar) == 8 + 1
    # 1,000 epochs of 100 batches
    assert {(c.num_steps * c.batch_size // c.num_data, c.kl_warmup_epochs, c.train_samples) for c in cifar} == {
        (1000, 100, 1)
    }
    assert {c.temperature for c in cifar} == {1.0}
    resnet = RESNET18.configs("paper")
    assert {(c.temperature, c.augment, c.prior, c.model) for c in resnet} == {(1 / 20, True, "spatial-iw", "resnet18")}
    assert [c.posterior for c in resnet] == ["factorised", "factorised->global", "global"]


@pytest.mark.parametrize("experiment", [MNIST500, FASHION500, CIFAR10, RESNET18], ids=lambda each: each.name)
def test_the_smoke_preset_runs_from_files_to_figure(experiment, small_images, tmp_path):
    results = reproduce(experiment, "smoke", tmp_path / "out", console=Console(width=100))
    assert len(results) == len(experiment.configs("smoke"))
    for each in results:
        metrics = each["metrics"]
        assert {"test_log_likelihood", "accuracy", "ece", "calibration"} <= set(metrics)
        assert ("elbo_per_datapoint" in metrics) == (each["config"]["posterior"] != "plain")
        assert ("auroc" in metrics) == bool(each["config"]["unknown"])
        # strict JSON: no NaN of an empty bin
        json.dumps(metrics, allow_nan=False)
        assert sum(rows for _, _, rows in metrics["calibration"]) == 10
    assert (tmp_path / "out" / f"{experiment.name}-smoke.png").read_bytes().startswith(b"\x89PNG")


def test_the_first_images_are_normalised_by_all(small_images, monkeypatch):
    seen = {}

    def fit(network, likelihood, data, *arguments, **settings):
        seen["x"], seen["augment"] = data[0], settings["augment"]
        seen["inducing"] = network.inducing_points.detach().clone()

    monkeypatch.setattr(inducing, "fit", fit)
    config = {"channels": 2, "num_data": 8, "num_inducing": 3, "num_test": 4, "test_samples": 2}
    run(Config(**config), progress=False)
    (everything,) = images.normalise(images.load("mnist"))
    assert torch.equal(seen["x"], everything.x[:8])
    assert torch.equal(seen["inducing"], everything.x[:3])
    assert seen["augment"] is None


def test_only_training_is_autocast(small_images, monkeypatch):
    seen = []

    def fit(*arguments, **settings):
        seen.append(torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu"))

    monkeypatch.setattr(inducing, "fit", fit)
    config = Config(channels=2, num_data=8, num_inducing=3, num_test=4, test_samples=2)
    for dtype in ("bfloat16", None):
        run(replace(config, autocast=dtype), progress=False)
        assert not torch.is_autocast_enabled("cpu")
    assert seen == [torch.bfloat16, False]


def test_inducing_images_of_another_size(small_images, monkeypatch):
    seen = {}

    def fit(network, *arguments, **settings):
        seen["network"] = network

    monkeypatch.setattr(inducing, "fit", fit)
    settings = {
        "dataset": "cifar10",
        "model": "resnet8",
        "channels": 2,
        "num_data": 8,
        "num_inducing": 3,
        "num_test": 4,
    }
    run(Config(**settings, test_samples=2, inducing_size=16, hidden_log_precision=1.5), progress=False)
    (everything,) = images.normalise(images.load("cifar10"))
    network = seen["network"]
    assert torch.equal(network.inducing_points, everything.x[:3, :, 8:24, 8:24])
    assert network.input_shape == (3, 32, 32)
    precisions = [
        layer.posterior.precision_root().detach().square().log() for _, layer in network.layers.bayesian_layers()
    ]
    assert [float(each.mean()) for each in precisions] == pytest.approx([1.5] * 7 + [0.0], abs=1e-5)


def test_a_local_last_layer_may_have_fewer_inducing_inputs(small_images):
    (data,) = images.normalise(images.load("mnist"))
    configs = (Config(posterior="local", channels=2, last_local=number) for number in (None, 7))
    numbers = [
        [
            len(layer.posterior.inducing_inputs)
            for _, layer in build_network(each, data.x, data.y).layers.bayesian_layers()
        ]
        for each in configs
    ]
    assert numbers == [[10, 19, 19, 99], [10, 19, 19, 7]]


def test_the_published_numbers():
    cells = CIFAR10.comparison.table([result("global", -0.8)], brief=True).rows[0]
    assert list(cells[2:5]) == ["-0.80 (-0.75)", "-0.90 (-0.43)", "70.0 (85.7)"]
    assert "0.352" in CIFAR10.comparison.table([result("global", -0.8)]).rows[0], "its ratio of entropies"
    # the paper has no ResNet-18 with global inducing points in every layer, and no table for MNIST
    resnet = RESNET18.comparison.table([result("global", -0.8, model="resnet18", prior="spatial-iw")])
    mnist = MNIST500.comparison.table([result("global", dataset="mnist")])
    assert "the paper" not in [*resnet.headings, *mnist.headings]


def test_the_page_and_the_figure(tmp_path):
    results = [result(each, prior=prior) for prior in CIFAR10.grid["prior"] for each in CIFAR10.grid["posterior"]]
    results[0]["metrics"]["curve"] = [[10, -2.0, 30.0, -1.9], [20, -1.8, 40.0, -1.7]]
    show(CIFAR10, {"paper": results}, tmp_path / "cifar10.md", Console(width=100))
    page = (tmp_path / "cifar10.md").read_text()
    assert "| scale | global | 1 | -1.00 | -0.75 | worse by 0.25 |" in page
    assert "](cifar10.png)" in page
    assert (tmp_path / "cifar10.png").read_bytes().startswith(b"\x89PNG")


def test_an_interrupted_run_continues_with_the_same_numbers(small_images, tmp_path, monkeypatch):
    settings = {"channels": 2, "num_data": 20, "num_inducing": 4, "num_test": 10, "num_steps": 6, "batch_size": 10}
    settings |= {"dataset": "cifar10", "model": "resnet8", "prior": "spatial-iw", "unknown": "svhn", "curve_points": 3}
    config = Config(**settings, test_samples=2)
    whole = run(config, tmp_path / "whole", progress=False)
    fit, steps = inducing.fit, []

    def stop(record):
        steps.append(record.step)
        if len(steps) == 3:
            raise InterruptedError

    def watched(*arguments, **settings):
        settings["callbacks"] = [*settings["callbacks"], stop]
        return fit(*arguments, **settings, checkpoint_seconds=0)

    monkeypatch.setattr(inducing, "fit", watched)
    with pytest.raises(InterruptedError):
        run(config, tmp_path / "interrupted", progress=False)
    assert run(config, tmp_path / "interrupted", progress=False) == whole
    assert [point[0] for point in whole["curve"]] == [2, 4, 6]
    # the third step was not in a checkpoint yet
    assert steps == [1, 2, 3, 3, 4, 5, 6]


def test_the_initial_value_of_a_prior_is_a_setting():
    x, y = torch.randn(6, 1, 28, 28), torch.arange(6)
    config = Config(channels=2, num_inducing=4, prior="spatial-iw", prior_start=400.0)
    priors = {layer.prior_spec for _, layer in build_network(config, x, y).layers.bayesian_layers()}
    assert priors == {inducing.SpatialIWPrior(initial=400.0)}
    scale = build_network(replace(config, prior="scale", prior_start=5.0), x, y).layers.bayesian_layers()
    assert {layer.prior_spec for _, layer in scale} == {inducing.ScalePrior(initial=5.0)}


def least_kl(layout: WeightLayout, outputs: int) -> float:
    """The least KL of weights that are zero in the mean, and of their covariance, with a factorised posterior."""
    network = BuildContext((layout.fan_in,), None, None)
    weights = inducing.Factorised().build_weights(WeightContext(layout, outputs, False, network)).double()
    prior = inducing.SpatialIWPrior(initial=400.0).build(layout).double()
    with torch.no_grad():
        weights.scaled_mean.zero_()
    parameters = [*prior.parameters(), weights.scaled_log_variance]
    optimiser = torch.optim.LBFGS(parameters, max_iter=200, tolerance_grad=1e-9, line_search_fn="strong_wolfe")

    def kl():
        optimiser.zero_grad()
        precision, prior_kl = prior(1, torch.Generator().manual_seed(0))
        total = (weights.closed_form_kl(precision) + prior_kl).sum()
        total.backward()
        return total

    optimiser.step(kl)
    return kl().item()


def test_guessing_has_a_kl_under_the_spatial_prior():
    """A factorised network that predicts all classes alike has an ELBO of at most -3.0 on mnist500, not of -2.3."""
    layers = [
        (WeightLayout(1, 9, True), 64),
        *[(WeightLayout(64, 9, True), 64)] * 2,
        (WeightLayout(64 * 49, 1, True), 10),
    ]
    total = sum(least_kl(*layer) for layer in layers)
    assert GUESSING - total / 500 == pytest.approx(-3.004, abs=0.005)
