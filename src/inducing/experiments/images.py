"""Image classification: MNIST-500, CIFAR-10 and ResNet-18.

What to look for: with 500 images and a prior that lets it shrink the weights, a factorised posterior is hardly better than
guessing, an ELBO of log(1/10) = -2.30 nats; global inducing points learn. On CIFAR-10 the ELBO improves from factorised to
factorised->global to global, and so do the predictions, also on images of another kind (SVHN).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor

import inducing
from inducing import models
from inducing.data import images
from inducing.experiments.engine import figures, store, training
from inducing.experiments.engine.comparison import ELBO, TEST, Comparison, Estimate, Key, Measure
from inducing.experiments.engine.experiment import Experiment, Metrics
from inducing.experiments.paper import PRIORS, published

MODELS = {"lenet": models.lenet, "resnet8": models.resnet8, "resnet18": models.resnet18}
POSTERIORS = ("factorised", "local", "factorised->global", "global")
GUESSING = float(np.log(0.1))
MEASURES = (
    ELBO,
    TEST,
    Measure(("accuracy",), "accuracy, %", 1, nats=False),
    Measure(("ece",), "ECE", 3, higher_is_better=False, nats=False),
    Measure(("entropy_ratio",), "entropy ratio", 3, higher_is_better=False, nats=False),
    Measure(("auroc",), "AUROC", 3, nats=False),
)
NOTE = (
    "One run each. ELBO in nats per image, of all training images and never tempered; guessing has an ELBO and a "
    f"log-likelihood of -2.30. ECE with {inducing.metrics.NUM_BINS} bins. The entropy ratio is the mean entropy of "
    "predictions for test images over that for SVHN; the AUROC is for telling SVHN from test images by entropy. The paper "
    "trains for 1,000 epochs on all 50,000 images of CIFAR-10."
)


@dataclass(frozen=True)
class Config:
    """The paper's settings of MNIST-500, from the appendix "MNIST 500".

    The paper gives neither the number of steps nor the number of inducing images.
    """

    dataset: str = "mnist"
    model: str = "lenet"
    posterior: str = "global"
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
    split: int = 0


def run(config: Config, checkpoint: Path | None = None, progress: bool = True) -> Metrics:
    """Fit one network."""
    names = [(config.dataset, True), (config.dataset, False), *([(config.unknown, False)] if config.unknown else [])]
    # by the statistics of all training images, also if only some are used
    train, *others = images.normalise(*(images.load(name, train=part) for name, part in names))
    x, y = train.x[: config.num_data].clone(), train.y[: config.num_data]
    network, likelihood = _network(config, x, y), inducing.Categorical()
    augment = partial(images.augment, fill=train.x.amin((0, 2, 3))) if config.augment else None
    recipe = training.recipe_of(config).replace(early_samples=None)
    trained = training.train_and_score(
        network, likelihood, (x, y), config, checkpoint, progress, recipe=recipe, augment=augment, score_batch=500
    )
    known, *unknown = (
        inducing.predict(
            network, likelihood, rows.x[: config.num_test], config.test_samples, batch_size=500, seed=config.split
        )
        for rows in others
    )
    return {**trained.nats, **_scores(known, others[0].y[: config.num_test], *unknown)}


def _network(config: Config, x: Tensor, y: Tensor) -> inducing.Network:
    settings = {"prior": config.prior, "posterior": config.posterior, **training.initial_values(config, x, y)}
    return MODELS[config.model](tuple(x.shape[1:]), 10, config.channels, **settings)


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
    }
    if unknown is not None:
        other = inducing.metrics.entropy(unknown)
        scores["entropy_unknown"] = float(other.mean())
        scores["entropy_ratio"] = scores["entropy"] / scores["entropy_unknown"]
        scores["auroc"] = inducing.metrics.auroc(entropy, other)
    return scores


def paper_estimate(table: str, key: Key, measure: Measure) -> Estimate | None:
    """The published number, of one run; `table` is the start of the table's name."""
    prior, posterior = key
    name = {"entropy_ratio": "entropy_ratio_svhn"}.get(str(measure.path[0]), measure.path[0])
    value = published()["cifar10"].get(table + PRIORS[prior], {}).get(posterior, {}).get(name)
    return None if value is None else Estimate(value)


def draw_scores(comparison: Comparison, results: list[store.Result]) -> figures.Figure:
    """For each prior the ELBOs, the test log-likelihoods and the calibration curves."""
    priors = list(dict.fromkeys(result["config"]["prior"] for result in results))
    figure, rows = figures.panels(len(priors), 3, (3.5, 2.9))
    for prior, (elbos, tests, curves) in zip(priors, rows, strict=True):
        chosen = [result for result in results if result["config"]["prior"] == prior]
        _draw_measure(elbos, comparison, chosen, ELBO)
        _draw_measure(tests, comparison, chosen, TEST)
        elbos.set_ylabel(PRIORS[prior])
        for result in chosen:
            confidence, right, count = np.array(result["metrics"]["calibration"]).T
            seen, posterior = count >= 10, result["config"]["posterior"]
            curves.plot(confidence[seen], right[seen], "o-", ms=3, color=figures.COLOURS[posterior], label=posterior)
        curves.plot([0, 1], [0, 1], color="#bbbbbb", lw=1)
        curves.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="accuracy", aspect="equal")
    for axes, title in zip(rows[0], ("ELBO per image", "test log-likelihood", "calibration"), strict=True):
        axes.set_title(title)
    rows[0, 2].legend(frameon=False, fontsize=7)
    legend = "dashed: guessing, open: the paper"
    rows[0, 0].annotate(legend, (0.02, 0.96), xycoords="axes fraction", fontsize=7, va="top")
    return figure


def _draw_measure(axes: figures.Axes, comparison: Comparison, results: list[store.Result], measure: Measure) -> None:
    ours, paper = comparison.estimates(results, measure)
    places = {key: place for place, key in enumerate(ours)}
    figures.draw_estimates(axes, ours, paper, places, shift=0.15)
    axes.axhline(GUESSING, color="#bbbbbb", lw=1, ls="--")
    axes.set_xticks(range(len(places)), [posterior.replace("->", "\n→ ") for _, posterior in places], fontsize=8)
    axes.margins(x=0.2, y=0.15)


_AXES = {"prior": tuple(PRIORS), "posterior": POSTERIORS}
_MNIST = Comparison(_AXES, MEASURES, note=NOTE, num_brief=3)
_CIFAR = Comparison(_AXES, MEASURES, partial(paper_estimate, ""), NOTE, 3)
_RESNET = Comparison(_AXES, MEASURES, partial(paper_estimate, "resnet18_tempered_augmented_"), NOTE, 3)
_SMOKE_DATA = {"channels": 2, "num_data": 20, "num_inducing": 4, "num_test": 10}
_SMOKE = {**_SMOKE_DATA, "num_steps": 2, "batch_size": 10, "test_samples": 2}

MNIST500 = Experiment(
    "mnist500",
    "the paper's appendix: the first 500 images of MNIST, four priors and four posteriors",
    Config(),
    _AXES,
    run,
    partial(draw_scores, _MNIST),
    {
        "smoke": {**_SMOKE, "prior": ("scale", "spatial-iw")},
        "cpu": {"channels": 16, "num_inducing": 100, "recipe": "fast", "num_steps": 500, "learning_rate": 1e-2},
    },
    _MNIST,
)
# the paper's Section 4.4 and the appendix "Additional experimental details"
_CIFAR_PAPER = Config(
    dataset="cifar10",
    model="resnet8",
    prior="spatial-iw",
    channels=32,
    num_data=50_000,
    recipe="paper:cifar10",
    num_steps=100_000,
    learning_rate=1e-2,
    kl_warmup_epochs=100,
    unknown="svhn",
)
_CIFAR_DATA = {"channels": 16, "num_data": 5000, "num_inducing": 50, "num_test": 2000}
_CIFAR_STEPS = {"num_steps": 300, "batch_size": 100, "learning_rate": 3e-2, "kl_warmup_epochs": 1}
CIFAR10 = Experiment(
    "cifar10",
    "the paper's table of CIFAR-10: a residual network of 8 layers, no augmentation, no tempering",
    _CIFAR_PAPER,
    {"prior": ("spatial-iw", "scale"), "posterior": POSTERIORS},
    run,
    partial(draw_scores, _CIFAR),
    {
        "smoke": {**_SMOKE, "prior": ("spatial-iw",), "kl_warmup_epochs": 1},
        "cpu": {"recipe": "fast", **_CIFAR_DATA, **_CIFAR_STEPS},
    },
    _CIFAR,
)
_RESNET_DATA = {"num_data": 2000, "num_inducing": 64, "num_test": 200, "test_samples": 2}
RESNET18 = Experiment(
    "cifar10-resnet18",
    "ResNet-18 on CIFAR-10 with augmentation and a cold posterior; global in every layer is not in the paper",
    replace(_CIFAR_PAPER, model="resnet18", channels=64, temperature=0.05, augment=True),
    {"posterior": ("factorised", "factorised->global", "global")},
    run,
    partial(draw_scores, _RESNET),
    {
        "smoke": {**_SMOKE, "kl_warmup_epochs": 1},
        "cpu": {"recipe": "fast", **_RESNET_DATA, "num_steps": 10, "batch_size": 32, "kl_warmup_epochs": 0},
    },
    _RESNET,
)
