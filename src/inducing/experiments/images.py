"""Image classification: MNIST-500, the same with Fashion-MNIST, CIFAR-10 and ResNet-18.

What to look for: with 500 images and a prior that lets it shrink the weights, a factorised posterior is hardly better than
guessing, an ELBO of log(1/10) = -2.30 nats; global inducing points learn. On CIFAR-10 the ELBO improves from factorised to
factorised->global to global, and so do the predictions, also on images of another kind (SVHN).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import inducing
from inducing import models
from inducing.autocasting import without_autocasting
from inducing.data import images
from inducing.experiments.engine import figures, store, training
from inducing.experiments.engine.comparison import ELBO, TEST, Comparison, Measure
from inducing.experiments.engine.experiment import Experiment, Metrics
from inducing.experiments.paper import PRIORS
from inducing.files import write_atomically
from inducing.inference.history import Record
from inducing.nn.posteriors import LocalInducing, PosteriorOfLayers
from inducing.nn.posteriors.point import PointEstimate
from inducing.nn.priors import Prior, as_prior

MODELS = {"lenet": models.lenet, "resnet8": models.resnet8, "resnet18": models.resnet18}
NUM_LAYERS = {"lenet": 4, "resnet8": 8, "resnet18": 21}
GUESSING = float(np.log(0.1))
MEASURES = (
    ELBO,
    TEST,
    # two standard errors of the accuracy of 80 % on 10,000 images; the others are less certain than their digits
    Measure("accuracy", "accuracy, %", 1, nats=False, tolerance=0.8),
    Measure("ece", "ECE", 3, higher_is_better=False, nats=False, tolerance=0.01),
    Measure("entropy_ratio", "entropy ratio", 3, higher_is_better=False, nats=False, tolerance=0.02),
    Measure("auroc", "AUROC", 3, nats=False),
)
NOTE = (
    "One run each. ELBO in nats per image, of all training images and never tempered; guessing has an ELBO and a "
    f"log-likelihood of -2.30. ECE with {inducing.metrics.NUM_BINS} bins."
)
UNKNOWN_NOTE = (
    " The entropy ratio is the mean entropy of predictions for test images over that for images of another kind; the AUROC "
    "is for telling the two apart by entropy. These are images of notMNIST for MNIST and Fashion-MNIST, and of SVHN "
    "(re-cropped, if they were read from the .npz file) for CIFAR-10."
)
PLAIN_NOTE = (
    " The plain network has one set of weights, trained by maximum likelihood with the same batches and schedule. The paper "
    "trains for 1,000 epochs on all 50,000 images."
)
ENTROPY_BINS = np.linspace(0, -GUESSING, 26)


# images that are run at a time, forward and backward: on a CPU their activations stay in the cache
MICRO_BATCHES = {"cpu": 50, "cuda": 500}

# test images that are scored during training: enough for a curve
CURVE_IMAGES = 1000


@dataclass(frozen=True, kw_only=True)
class Config(training.TrainingConfig):
    """The paper's settings of MNIST-500, from the appendix "MNIST 500".

    The paper gives neither the number of steps nor the number of inducing images.

    Arguments:
        curve_points: Number of times that the first `CURVE_IMAGES` test images are scored during training.
        inducing_size: Height and width of the inducing images, which are cut out of the middle of the first images. Default:
            whole images.
        hidden_log_precision: Initial log-precision of all global layers except the last. Default: the paper's, -4.
        last_local: Number of inducing inputs of a last layer with a local posterior. Default: the number of its inputs,
            3,137 in the network for MNIST.
        prior_start: `initial` of the prior, for priors that have it. Default: that of the prior.
        autocast: Name of the dtype in which training runs the data, e.g. "bfloat16". Default: float32. Everything else is
            in float32.
    """

    dataset: str = "mnist"
    model: str = "lenet"
    prior: str = "scale"
    channels: int = 64
    num_data: int = 500
    num_inducing: int = 500
    recipe: str = "paper:mnist500"
    num_steps: int = 10_000
    batch_size: int = 500
    learning_rate: float = 1e-3
    train_samples: int = 1
    test_samples: int = 10
    num_test: int = 10_000
    kl_warmup_epochs: int = 0
    temperature: float = 1.0
    augment: bool = False
    unknown: str = ""
    curve_points: int | None = None
    inducing_size: int | None = None
    hidden_log_precision: float | None = None
    last_local: int | None = None
    prior_start: float | None = None
    autocast: str | None = None


def run(config: Config, checkpoint: Path | None = None, progress: bool = True) -> Metrics:
    """Fit one network, on a GPU if there is one."""
    names = [(config.dataset, True), (config.dataset, False), *([(config.unknown, False)] if config.unknown else [])]
    # by the statistics of all training images, also if only some are used
    train, *others = images.normalise(*(images.load(name, train=part) for name, part in names))
    x, y = train.x[: config.num_data].clone(), train.y[: config.num_data]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network, likelihood = build_network(config, x, y).to(device), inducing.Categorical().to(device)
    augment = partial(images.augment, fill=train.x.amin((0, 2, 3))) if config.augment else None
    recipe = training.recipe_of(config).replace(early_samples=None, micro_batch_size=MICRO_BATCHES[device])
    predict = partial(inducing.predict, network, likelihood, batch_size=100, seed=config.split)
    tests = [each.x[: config.num_test] for each in others]
    curve: Curve | None = None
    if config.curve_points:
        every = max(1, config.num_steps // config.curve_points)
        seen = tests[0][:CURVE_IMAGES]

        def score() -> list[float]:
            # training may run in another dtype
            with without_autocasting(network.device):
                return _brief_scores(predict(seen, config.test_samples), others[0].y)

        curve = Curve(score, every, checkpoint)
    trained = training.train_and_score(
        network,
        likelihood,
        (x, y),
        config,
        checkpoint,
        progress,
        recipe=recipe,
        augment=augment,
        autocast=config.autocast,
        callbacks=[] if curve is None else [curve],
        score_batch=100,
    )
    known, *unknown = (predict(each, config.test_samples) for each in tests)
    # a plain network has no ELBO
    nats = {"log_likelihood": trained.nats["log_likelihood"]} if config.posterior == "plain" else trained.nats
    curves = {} if curve is None else {"curve": curve.points}
    return {**nats, **_scores(known, others[0].y[: config.num_test], *unknown), **curves}


class Curve:
    """Callback that scores test images during training.

    The scores are kept in a file beside the checkpoints, so that an interrupted run does not lose them.

    Arguments:
        score: Function that returns the scores.
        every: Interval between scored steps.
        folder: The folder of the checkpoints.
    """

    def __init__(self, score: Callable[[], list[float]], every: int, folder: Path | None) -> None:
        self.score, self.every = score, every
        self.file = None if folder is None else folder / "curve.json"
        # each point: step, ELBO of the step, accuracy and log-likelihood of test images
        self.points = json.loads(self.file.read_text()) if self.file is not None and self.file.exists() else []

    def __call__(self, record: Record) -> None:
        """Add a point at some steps. A step that is repeated replaces its point."""
        if record.step % self.every == 0:
            earlier = [point for point in self.points if point[0] < record.step]
            self.points = [*earlier, [record.step, round(record.elbo, 4), *self.score()]]
            if self.file is not None:
                write_atomically(self.file, json.dumps(self.points).encode())


def _brief_scores(predictive: inducing.Predictive, y: Tensor) -> list[float]:
    """The accuracy and the log-likelihood of test images."""
    y = y[: len(predictive.mean)]
    scores = 100 * inducing.metrics.accuracy(predictive, y), inducing.metrics.log_likelihood(predictive, y)
    return [round(score, 4) for score in scores]


def build_network(config: Config, x: Tensor, y: Tensor) -> inducing.Network:
    """The network of a configuration, with inducing points at the first images."""
    settings = {"prior": config.prior, **training.initial_values(config, x, y)}
    if config.posterior == "plain":
        settings |= {"prior": "standard", "inducing_points": None, "inducing_targets": None}
    elif config.inducing_size is not None:
        settings["inducing_points"] = _centre_crop(settings["inducing_points"], config.inducing_size)
    if config.prior_start is not None:
        settings["prior"] = _with_initial(config.prior, config.prior_start)
    return MODELS[config.model](tuple(x.shape[1:]), 10, config.channels, posterior=_posterior(config), **settings)


def _with_initial(name: str, initial: float) -> Prior:
    """A prior whose posterior has this initial value."""
    prior: Any = as_prior(name)
    return dataclasses.replace(prior, initial=initial)


def _posterior(config: Config) -> PosteriorOfLayers:
    """The posterior of all layers, or one for each."""
    hidden = NUM_LAYERS[config.model] - 1
    if config.posterior == "plain":
        return PointEstimate()
    if config.posterior == "local" and config.last_local is not None:
        return [*[LocalInducing()] * hidden, LocalInducing(config.last_local)]
    if config.hidden_log_precision is None:
        return config.posterior
    return training.posteriors(config, hidden, config.hidden_log_precision, "shared")


def _centre_crop(whole: Tensor, size: int) -> Tensor:
    """The square of this size in the middle of each image."""
    if size > min(whole.shape[2:]):
        raise ValueError(f"inducing_size is {size}, but images are {whole.shape[2]} x {whole.shape[3]}")
    top, left = ((length - size) // 2 for length in whole.shape[2:])
    return whole[:, :, top : top + size, left : left + size]


def _scores(known: inducing.Predictive, y: Tensor, unknown: inducing.Predictive | None = None) -> Metrics:
    """Scores on test images, and how well entropy tells them from images of another kind."""
    curve = zip(*(part.tolist() for part in inducing.metrics.calibration_curve(known, y)), strict=True)
    entropy = inducing.metrics.entropy(known)
    scores: Metrics = {
        "test_log_likelihood": inducing.metrics.log_likelihood(known, y),
        "accuracy": 100 * inducing.metrics.accuracy(known, y),
        "ece": inducing.metrics.expected_calibration_error(known, y),
        "calibration": [[round(confidence, 4), round(right, 4), rows] for confidence, right, rows in curve if rows],
        "entropy": float(entropy.mean()),
        "entropies": _histogram(entropy),
    }
    if unknown is not None:
        other = inducing.metrics.entropy(unknown)
        scores["entropy_unknown"] = float(other.mean())
        scores["entropy_ratio"] = scores["entropy"] / scores["entropy_unknown"]
        scores["entropies_unknown"] = _histogram(other)
        scores["auroc"] = inducing.metrics.auroc(entropy, other)
    return scores


def _histogram(entropy: Tensor) -> list[int]:
    """Numbers of images by entropy."""
    return np.histogram(entropy.numpy().clip(0, -GUESSING), ENTROPY_BINS)[0].tolist()


def draw_scores(comparison: Comparison, results: list[store.Result]) -> figures.Figure:
    """For each prior the ELBOs, the test log-likelihoods, the calibration curves and the entropies of predictions.

    The plain network is shown beside each prior.
    """
    found = dict.fromkeys(result["config"]["prior"] for result in results)
    priors = [prior for prior in found if prior != "none"] or ["none"]
    has_entropies, has_curves = (any(name in each["metrics"] for each in results) for name in ("entropies", "curve"))
    figure, rows = figures.panels(len(priors), 3 + has_entropies + has_curves, (3.5, 2.9))
    for prior, (elbos, tests, curves, *others) in zip(priors, rows, strict=True):
        chosen = [result for result in results if result["config"]["prior"] in (prior, "none")]
        _draw_measure(elbos, comparison, chosen, ELBO)
        _draw_measure(tests, comparison, chosen, TEST)
        elbos.set_ylabel(PRIORS.get(prior, ""))
        for result in chosen:
            confidence, right, count = np.array(result["metrics"]["calibration"]).T
            seen, posterior = count >= 10, result["config"]["posterior"]
            curves.plot(confidence[seen], right[seen], "o-", ms=3, color=figures.COLOURS[posterior], label=posterior)
            if has_entropies:
                _draw_entropies(others[0], result["metrics"], figures.COLOURS[posterior])
            if has_curves:
                _draw_curve(others[-1], result["metrics"], figures.COLOURS[posterior])
        curves.plot([0, 1], [0, 1], color="#bbbbbb", lw=1)
        curves.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="accuracy", aspect="equal")
    titles = ["ELBO per image", "test log-likelihood", "calibration"]
    titles += ["test images, dashed: another kind"] * has_entropies + ["during training"] * has_curves
    for axes, title in zip(rows[0], titles, strict=True):
        axes.set_title(title)
    rows[0, 2].legend(frameon=False, fontsize=7)
    legend = "dashed: guessing, open: the paper"
    rows[0, 0].annotate(legend, (0.02, 0.96), xycoords="axes fraction", fontsize=7, va="top")
    return figure


def _draw_entropies(axes: figures.Axes, metrics: Metrics, colour: str) -> None:
    """Draw the distribution of entropies: a solid line for test images, a dashed line for images of another kind."""
    for name, style in (("entropies", "-"), ("entropies_unknown", "--")):
        counts = np.array(metrics.get(name, []))
        if len(counts):
            axes.stairs(counts / counts.sum(), ENTROPY_BINS, color=colour, ls=style, lw=1.2)
    axes.set(xlim=(0, -GUESSING), xlabel="entropy of a prediction, nats", ylabel="share of images")


def _draw_curve(axes: figures.Axes, metrics: Metrics, colour: str) -> None:
    """Draw the accuracy of test images during training."""
    if metrics.get("curve"):
        step, _, accuracy, _ = np.array(metrics["curve"]).T
        axes.plot(step, accuracy, color=colour, lw=1.2)
    axes.set(xlabel="step", ylabel="test accuracy, %", ylim=(0, 100))


def _draw_measure(axes: figures.Axes, comparison: Comparison, results: list[store.Result], measure: Measure) -> None:
    ours, paper = comparison.estimates(results, measure)
    places = {key: place for place, key in enumerate(ours)}
    figures.draw_estimates(axes, ours, paper, places, shift=0.15)
    axes.axhline(GUESSING, color="#bbbbbb", lw=1, ls="--")
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_xticks(range(len(places)), [posterior.replace("->", "\n→ ") for _, posterior in places], fontsize=8)
    axes.margins(y=0.15)


def image_experiment(name: str, note: str, published: str = "") -> Experiment:
    """An experiment with image classification; `published` is the name of the paper's table, if it has one."""
    comparison = Comparison(["prior", "posterior"], MEASURES, published, note, num_brief=3)
    # a plain network has no prior
    settings = {"exists": lambda config: (config.posterior == "plain") == (config.prior == "none")}
    return Experiment.described(name, Config(), run, partial(draw_scores, comparison), comparison, **settings)


MNIST500 = image_experiment("mnist500", NOTE + UNKNOWN_NOTE)
FASHION500 = image_experiment("fashion500", NOTE + UNKNOWN_NOTE)
CIFAR10 = image_experiment("cifar10", NOTE + UNKNOWN_NOTE + PLAIN_NOTE, "cifar10")
RESNET18 = image_experiment("cifar10-resnet18", NOTE + UNKNOWN_NOTE, "cifar10_resnet18")
