"""A trained ResNet-8 made Bayesian: log-likelihood and calibration on CIFAR-10 before and after, next to laplace-torch.

    pip install "inducing[benchmarks]"
    python -m benchmarks.bayesianize --out FOLDER    # bayesianize.json, bayesianize.md, docs/bayesianize.png

The plain network is kept in the folder, and trials in bayesianize.json are not run again. The last 5,000 training images are
held out. They choose all settings. Times are processor seconds on one thread.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir
from typing import Any, NamedTuple

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import inducing
from benchmarks.plain_resnet import CHANNELS, trained
from benchmarks.processes import ROOT
from inducing import metrics
from inducing.data import images
from inducing.experiments.engine.figures import panels

RESULTS, PAGE = ROOT / "benchmarks" / "bayesianize.json", ROOT / "benchmarks" / "bayesianize.md"
FIGURE = ROOT / "docs" / "bayesianize.png"
TRAIN, EPOCHS, HELD_OUT, VALIDATION, UNKNOWN = 10_000, 20, 5000, 1000, 2000
# the last block and the last layer begin at these modules of the plain network
LAST_BLOCK, LAST_LAYER = 5, 8
NUM_INDUCING, NUM_SAMPLES, BINS = 100, 20, 15
# settings of fits that held-out images choose from; temperature: the weight of the KL
LAST_LAYER_TRIALS = [
    {
        "start": LAST_LAYER,
        "prior": "neal",
        "log_precision": precision,
        "learning_rate": rate,
        "temperature": temperature,
    }
    | {"num_steps": 500, "batch_size": 1000, "num_samples": 5}
    for precision, rate, temperature in (
        *((5.0, 1e-3, 1.0), (5.0, 1e-2, 1.0), (5.0, 1e-2, 10.0), (5.0, 1e-2, 30.0), (5.0, 1e-2, 100.0)),
        *((2.0, 1e-3, 1.0), (2.0, 1e-3, 10.0), (0.0, 1e-3, 1.0), (0.0, 1e-3, 10.0)),
    )
]
LAST_BLOCK_TRIALS = [
    {
        "start": LAST_BLOCK,
        "prior": "scale",
        "log_precision": precision,
        "learning_rate": 3e-3,
        "temperature": temperature,
    }
    | {"num_steps": steps, "batch_size": 200, "num_samples": 1}
    for precision, steps, temperature in ((3.0, 200, 1.0), (3.0, 200, 10.0), (2.0, 100, 1.0))
]
COLOURS = {
    "plain": "#000000",
    "Laplace, marginal likelihood": "#c45a11",
    "bayesianize, last layer": "#4e9a06",
    "bayesianize, last block": "#3465a4",
}
INTRODUCTION = f"""# A trained ResNet-8 made Bayesian

Made by `python -m benchmarks.bayesianize` from `bayesianize.json`. A plain ResNet-8 with BatchNorm, {CHANNELS} to
{4 * CHANNELS} channels, was trained on {TRAIN:,} images of CIFAR-10 for {EPOCHS} epochs, without augmentation.
{HELD_OUT:,} other training images chose all settings. Log-likelihood (nats per image, with its standard error)
and ECE ({BINS} bins) are of the 10,000 test images. AUROC: the entropy of predictions tells images of SVHN from test
images. Seconds: processor time on one thread, of the fit with the chosen settings, and of the prediction of the test
images from the outputs of the frozen layers.

| method | accuracy, % | log-likelihood | ECE | AUROC | fit, s | prediction, s |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""


class Part(NamedTuple):
    """Images after the modules that stay as they are.

    Arguments:
        maps: Inputs of the last block.
        features: Inputs of the last layer.
        logits: Outputs of the plain network.
        y: Labels.
    """

    maps: Tensor
    features: Tensor
    logits: Tensor
    y: Tensor


class Problem(NamedTuple):
    """The trained network, and four sets of images."""

    module: nn.Sequential
    seconds: float
    train: Part
    held_out: Part
    test: Part
    unknown: Part


Predict = Callable[[Part], inducing.Predictive]
Settings = dict[str, Any]


def run_modules(module: nn.Sequential, x: Tensor, y: Tensor) -> Part:
    """Run the plain network once. Later fits start from its maps and features."""
    parts = []
    with torch.no_grad():
        for batch in x.split(500):
            maps = module[:LAST_BLOCK](batch)
            features = module[LAST_BLOCK:LAST_LAYER](maps)
            parts.append((maps, features, module[LAST_LAYER:](features)))
    return Part(*map(torch.cat, zip(*parts, strict=True)), y)


def load(folder: Path) -> Problem:
    """Train the plain network, if it is not in the folder, and run it."""
    train, test = images.load("cifar10"), images.load("cifar10", train=False)
    train, test, unknown = images.normalise(train, test, images.load("svhn", train=False))
    module, seconds = trained(folder, train.x[:TRAIN], train.y[:TRAIN], EPOCHS)
    pairs = [(train.x[:TRAIN], train.y[:TRAIN]), (train.x[-HELD_OUT:], train.y[-HELD_OUT:])]
    pairs += [(test.x, test.y), (unknown.x[:UNKNOWN], unknown.y[:UNKNOWN])]
    return Problem(module, seconds, *(run_modules(module, *pair) for pair in pairs))


def of_logits(logits: Tensor) -> inducing.Predictive:
    """A prediction by one set of logits."""
    return inducing.Predictive(logits[None], inducing.Categorical())


def plain(problem: Problem) -> tuple[Predict, Settings]:
    """The plain network."""
    return lambda part: of_logits(part.logits), {}


def temperature_scaling(problem: Problem) -> tuple[Predict, Settings]:
    """The plain network with its logits divided by a number (Guo et al., 2017)."""

    def loss(log_temperature: float) -> float:
        held_out = problem.held_out
        return float(nn.functional.cross_entropy(held_out.logits / math.exp(log_temperature), held_out.y))

    temperature = math.exp(minimize_scalar(loss, bounds=(-2.0, 3.0), method="bounded").x)
    return lambda part: of_logits(part.logits / temperature), {"temperature": temperature}


def laplace(problem: Problem, prior_precision: str) -> tuple[Predict, Settings]:
    """Last-layer Laplace with the full Gauss-Newton matrix, and the better of its predictions by probit and by samples."""
    from laplace import Laplace

    # the layers below are frozen, so their outputs are inputs: this is the last-layer Laplace of the whole network
    head = nn.Sequential(nn.Identity(), problem.module[LAST_LAYER])
    approximation = Laplace(head, "classification", subset_of_weights="last_layer", hessian_structure="full")
    approximation.fit(DataLoader(TensorDataset(problem.train.features, problem.train.y), batch_size=1000))

    def predict(part: Part, link: str, precision: float) -> inducing.Predictive:
        torch.manual_seed(0)
        approximation.prior_precision = precision
        batches = part.features.split(1000)
        found = torch.cat([approximation(batch, link_approx=link, n_samples=100) for batch in batches])
        return of_logits(found.detach().clamp_min(1e-12).log())

    if prior_precision == "marginal likelihood":
        approximation.optimize_prior_precision(method="marglik")
        precisions = [float(approximation.prior_precision)]
    else:
        precisions = [10.0 ** (power / 4) for power in range(-4, 9)]
    choices = list(itertools.product(("probit", "mc"), precisions))
    scores = [metrics.log_likelihood(predict(problem.held_out, *choice), problem.held_out.y) for choice in choices]
    link, precision = choices[scores.index(max(scores))]
    return lambda part: predict(part, link, precision), {"link": link, "precision": precision}


def bayesian(problem: Problem, start: int, log_precision: float, prior: str, **recipe: Any) -> tuple[Predict, Settings]:
    """The modules from ``start`` on made Bayesian by `inducing.bayesianize`, with global inducing points."""
    inputs = {LAST_BLOCK: lambda part: part.maps, LAST_LAYER: lambda part: part.features}[start]
    x, likelihood = inputs(problem.train), inducing.Categorical()
    settings = {"prior": prior, "log_precision": log_precision, "boundary": "exact"}
    generator = torch.Generator().manual_seed(0)
    network = inducing.bayesianize(problem.module[start:], x[:NUM_INDUCING], generator=generator, **settings)
    # training ends with the parameters under which these images have the highest log-likelihood
    rows = {"x": inputs(problem.held_out)[:VALIDATION], "y": problem.held_out.y[:VALIDATION]}
    validation = inducing.HeldOut(**rows, every=25, patience=None, num_samples=5)
    recipe |= {"early_samples": None, "validation": validation, "progress": False}
    history = inducing.fit(network, likelihood, (x, problem.train.y), **recipe)
    chosen = {"step": max(history.held_out, key=lambda each: each[1])[0], "scores": history.held_out}
    return lambda part: inducing.predict(network, likelihood, inputs(part), NUM_SAMPLES, batch_size=500), chosen


METHODS: dict[str, tuple[Callable[..., tuple[Predict, Settings]], list[Settings]]] = {
    "plain": (plain, [{}]),
    "temperature scaling": (temperature_scaling, [{}]),
    "Laplace, marginal likelihood": (laplace, [{"prior_precision": "marginal likelihood"}]),
    "Laplace, held-out images": (laplace, [{"prior_precision": "held-out images"}]),
    "bayesianize, last layer": (bayesian, LAST_LAYER_TRIALS),
    "bayesianize, last block": (bayesian, LAST_BLOCK_TRIALS),
}


def measure(problem: Problem, name: str, settings: Settings) -> dict[str, Any]:
    """Fit, and score held-out, test and unknown images."""
    start = time.process_time()
    predict, chosen = METHODS[name][0](problem, **settings)
    seconds = time.process_time() - start
    held_out = metrics.log_likelihood(predict(problem.held_out), problem.held_out.y)
    start = time.process_time()
    test = predict(problem.test)
    prediction_seconds = time.process_time() - start
    curve = metrics.calibration_curve(test, problem.test.y, BINS)
    return {
        "method": name,
        "settings": settings,
        "chosen": chosen,
        "held_out": held_out,
        "accuracy": metrics.accuracy(test, problem.test.y),
        "log_likelihood": metrics.log_likelihood(test, problem.test.y),
        "log_likelihood_error": float(test.log_prob(problem.test.y).std() / len(problem.test.y) ** 0.5),
        "ece": metrics.expected_calibration_error(test, problem.test.y, BINS),
        "auroc": metrics.auroc(metrics.entropy(test), metrics.entropy(predict(problem.unknown))),
        "seconds": problem.seconds if name == "plain" else seconds,
        "prediction_seconds": prediction_seconds,
        # an empty bin has no accuracy
        "curve": [[None if math.isnan(value) else value for value in each.tolist()] for each in curve],
    }


def best(results: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The trial of each method with the highest log-likelihood of the held-out images."""
    return {
        name: max((each for each in results if each["method"] == name), key=lambda each: each["held_out"])
        for name in METHODS
    }


def page(results: list[dict[str, Any]]) -> str:
    """The table."""
    rows = [
        f"| {name} | {100 * each['accuracy']:.1f} | {each['log_likelihood']:.3f} ± {each['log_likelihood_error']:.3f} "
        f"| {each['ece']:.3f} | {each['auroc']:.3f} | {each['seconds']:.0f} | {each['prediction_seconds']:.0f} |\n"
        for name, each in best(results).items()
    ]
    return INTRODUCTION + "".join(rows)


def draw(results: list[dict[str, Any]]) -> None:
    """The figure: a reliability diagram, and gains of log-likelihood as bars."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure, axes = panels(1, 2, (4.6, 3.6))
    diagram, bars = axes[0]
    found = best(results)
    diagram.plot([0, 1], [0, 1], "--", color="0.6", lw=1)
    for name, colour in COLOURS.items():
        points = [(x, y) for x, y, rows in zip(*found[name]["curve"], strict=True) if rows > 20]
        diagram.plot(*zip(*points, strict=True), "o-", ms=3, lw=1.2, color=colour, label=name)
    diagram.set(xlabel="probability of the predicted class", ylabel="accuracy", xlim=(0.1, 1.01), ylim=(0.1, 1.01))
    diagram.legend(frameon=False, fontsize=7, loc="upper left")
    others = [name for name in found if name != "plain"]
    values = [found[name]["log_likelihood"] for name in others]
    gains = [value - found["plain"]["log_likelihood"] for value in values]
    bars.barh(range(len(others)), gains, color=[COLOURS.get(name, "0.75") for name in others])
    for place, (gain, value) in enumerate(zip(gains, values, strict=True)):
        bars.text(gain, place, f" {value:.3f}", va="center", fontsize=8)
    bars.set_yticks(range(len(others)), others, fontsize=8)
    bars.set_xlim(min(0, *gains), 1.2 * max(gains))
    bars.invert_yaxis()
    bars.set_xlabel("nats per test image above the plain network")
    bars.set_title(f"log-likelihood; plain {found['plain']['log_likelihood']:.3f}", fontsize=9)
    FigureCanvasAgg(figure).print_png(str(FIGURE))


def main() -> None:
    """Run the trials that are not in bayesianize.json, and write the page and the figure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path(gettempdir()) / "inducing-bayesianize")
    folder = parser.parse_args().out
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    done = [(each["method"], each["settings"]) for each in results]
    todo = [(name, each) for name, (_, trials) in METHODS.items() for each in trials if (name, each) not in done]
    problem = load(folder) if todo else None
    for name, settings in todo:
        assert problem is not None
        results.append(measure(problem, name, settings))
        RESULTS.write_text(json.dumps(results) + "\n")
        numbers = {key: round(value, 3) for key, value in results[-1].items() if isinstance(value, float)}
        print(name, settings, results[-1]["chosen"], numbers, flush=True)
    PAGE.write_text(page(results))
    draw(results)


if __name__ == "__main__":
    main()
