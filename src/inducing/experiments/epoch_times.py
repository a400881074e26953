"""The time of an epoch: the last column of the paper's table of CIFAR-10, which is for MNIST with ScalePrior.

The steps of a posterior and of a factorised one take turns, so that the ratio of their times does not depend on what else
the machine does. What to look for: the ratios, since the paper's times are those of a graphics card.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from dataclasses import dataclass
from pathlib import Path

import inducing
from inducing.data import images as data
from inducing.experiments import images
from inducing.experiments.engine import figures, store, training
from inducing.experiments.engine.comparison import Comparison, Measure
from inducing.experiments.engine.experiment import Experiment, Metrics

SECONDS = Measure("seconds", "seconds", 0, higher_is_better=None, nats=False)
RATIO = Measure("over_factorised", "over factorised", 2, higher_is_better=None, nats=False, tolerance=0.1)
REFERENCE = "factorised"


@dataclass(frozen=True, kw_only=True)
class Config(images.Config):
    """The paper's settings of CIFAR-10, for MNIST. ``num_steps`` steps are timed in each of ``rounds`` rounds."""

    model: str = "resnet8"
    channels: int = 32
    num_data: int = 60_000
    recipe: str = "paper:cifar10"
    num_steps: int = 3
    rounds: int = 5


def run(config: Config, checkpoint: Path | None = None, progress: bool = True) -> Metrics:
    """Time the steps of a posterior, in turn with those of a factorised one. There is nothing to continue."""
    (train,) = data.normalise(data.load(config.dataset, train=True))
    x, y = train.x[: config.num_data], train.y[: config.num_data]
    settings = [config, dataclasses.replace(config, posterior=REFERENCE)]
    networks = [images.build_network(each, x, y) for each in settings]
    recipe = training.recipe_of(config).replace(early_samples=None, micro_batch_size=images.MICRO_BATCHES["cpu"])
    # the first step of each call also prepares the data
    recipe = recipe.replace(num_steps=config.num_steps + 1)
    times: list[list[float]] = [[], []]
    for _ in range(config.rounds):
        for network, found in zip(networks, times, strict=True):
            history = inducing.fit(network, inducing.Categorical(), (x, y), recipe, seed=config.split, progress=False)
            found += [last.seconds - first.seconds for first, last in itertools.pairwise(history.records)]
    steps = len(x) / recipe.batch_size
    ours, reference = (steps * statistics.median(found) for found in times)
    return {"seconds": ours, "seconds_factorised": reference, "over_factorised": ours / reference}


def draw_ratios(results: list[store.Result]) -> figures.Figure:
    """The ratio of each posterior, and the paper's as open circles."""
    figure, ((axes,),) = figures.panels(1, 1, (4.5, 3.0))
    ours, paper = COMPARISON.estimates(results, RATIO)
    places = {key: float(place) for place, key in enumerate(ours)}
    figures.draw_estimates(axes, ours, paper, places, shift=0.15)
    axes.set_xticks(range(len(places)), [figures.with_arrows(posterior) for (posterior,) in places], fontsize=8)
    axes.set_ylabel("time of an epoch over factorised")
    axes.set_ylim(bottom=0)
    axes.annotate("open: the paper", (0.02, 0.93), xycoords="axes fraction", fontsize=8)
    return figure


NOTE = (
    "Seconds of an epoch of MNIST on the processor of the runs. The paper has 19, 33, 25 and 65 s on a graphics card."
)
COMPARISON = Comparison(["posterior"], (SECONDS, RATIO), "epoch_times", NOTE)
EPOCH_TIMES = Experiment.described("epoch-times", Config(), run, draw_ratios, COMPARISON)
