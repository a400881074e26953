"""Depth in deep linear networks: the paper's Fig. 2.

Data from a linear model, fitted with deep linear networks of growing depth and width. Posteriors that factorise over layers
lose with depth and width; those with global inducing points in the last layer hardly do. The evidence under the model that
made the data is an upper bound on all of them, in expectation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from inducing.experiments.experiment import Experiment, Metrics, write_figure
from inducing.inference.objective import evaluate
from inducing.inference.training import fit
from inducing.linalg.noise import seeded
from inducing.nn.likelihoods import Gaussian
from inducing.nn.models import mlp
from inducing.prediction.metrics import log_likelihood, rmse
from inducing.prediction.predictive import predict

FEATURES, NOISE_VARIANCE = 5, 0.1
POSTERIORS = ("factorised", "local", "global", "factorised->global", "prior->global")
COLOURS = dict(zip(POSTERIORS, ("#c45a11", "#b8a000", "#3465a4", "#4e9a06", "#75507b"), strict=True))


@dataclass(frozen=True)
class Config:
    """The paper's settings: Section 4.2 and the appendix "Additional experimental details"."""

    dataset: str = "linear"
    posterior: str = "global"
    width: int = 50
    depth: int = 1
    prior: str = "neal"
    num_train: int = 1000
    num_test: int = 100
    num_inducing: int = 10
    recipe: str = "paper:linear"
    num_steps: int = 40_000
    batch_size: int = 10_000
    learning_rate: float = 1e-2
    schedule: str = "constant"
    test_samples: int = 10
    split: int = 0


class LinearData(NamedTuple):
    """Inputs and targets of a linear model with weights ~ N(0, 1/5) and noise variance 0.1."""

    x_train: Float[Tensor, "N 5"]
    y_train: Float[Tensor, "N 1"]
    x_test: Float[Tensor, "T 5"]
    y_test: Float[Tensor, "T 1"]


def linear_data(num_train: int, num_test: int, seed: int) -> LinearData:
    """Draw the data."""
    generator = seeded(seed, "linear data")
    x = torch.randn(num_train + num_test, FEATURES, generator=generator)
    weights = torch.randn(FEATURES, 1, generator=generator) / math.sqrt(FEATURES)
    y = x @ weights + math.sqrt(NOISE_VARIANCE) * torch.randn(len(x), 1, generator=generator)
    return LinearData(x[:num_train], y[:num_train], x[num_train:], y[num_train:])


def log_evidence(x: Float[Tensor, "N F"], y: Float[Tensor, "N 1"]) -> float:
    """log P(y | x) under the model that made the data, y ~ N(0, XX'/5 + 0.1 I)."""
    # |I n + X P^-1 X'/n| and the Woodbury identity, with the 5 x 5 matrix A = 5 I + X'X / 0.1
    x, y = x.double(), y.double()[:, 0]
    precision = FEATURES * torch.eye(FEATURES, dtype=torch.float64) + x.mT @ x / NOISE_VARIANCE
    projected = x.mT @ y / NOISE_VARIANCE
    quadratic = y @ y / NOISE_VARIANCE - projected @ torch.linalg.solve(precision, projected)
    logdet = torch.logdet(precision) - FEATURES * math.log(FEATURES) + len(x) * math.log(NOISE_VARIANCE)
    return float(-(quadratic + logdet + len(x) * math.log(2 * math.pi)) / 2)


def run(config: Config, checkpoint: Path | None = None, progress: bool = True) -> Metrics:
    """Fit one network. The split is the seed of everything."""
    data = linear_data(config.num_train, config.num_test, config.split)
    likelihood = Gaussian(NOISE_VARIANCE, learn_variance=False)
    network = mlp(
        FEATURES,
        1,
        [config.width] * config.depth,
        prior=config.prior,
        posterior=config.posterior,
        activation=nn.Identity,
        bias=False,
        inducing_points=data.x_train[: config.num_inducing],
        inducing_targets=data.y_train[: config.num_inducing],
        generator=torch.Generator().manual_seed(config.split),
    )
    fit(
        network,
        likelihood,
        (data.x_train, data.y_train),
        config.recipe,
        num_steps=config.num_steps,
        batch_size=config.batch_size,
        learning_rate=config.learning_rate,
        schedule=config.schedule,
        seed=config.split,
        checkpoint=checkpoint,
        progress=progress,
        description=f"{config.posterior} {config.depth} x {config.width}",
    )
    terms = evaluate(network, likelihood, (data.x_train, data.y_train), config.test_samples, config.split)
    predictive = predict(network, likelihood, data.x_test, config.test_samples)
    return {
        "elbo_per_datapoint": float(terms.elbo_per_datapoint),
        "test_log_likelihood": log_likelihood(predictive, data.y_test),
        "rmse": rmse(predictive, data.y_test),
        "evidence_per_datapoint": log_evidence(data.x_train, data.y_train) / config.num_train,
    }


def report(results: list[dict[str, Any]], path: Path, console: Console) -> None:
    """Print the ELBOs and write the figure: a panel for each width, ELBO against depth."""
    value = {
        (r["config"]["width"], r["config"]["depth"], r["config"]["posterior"]): r["metrics"]["elbo_per_datapoint"]
        for r in results
    }
    widths, depths = (sorted({key[axis] for key in value}) for axis in (0, 1))
    posteriors = [posterior for posterior in POSTERIORS if any(key[2] == posterior for key in value)]
    evidence = results[0]["metrics"]["evidence_per_datapoint"]
    rows = Table(
        title=f"Deep linear networks, ELBO per data point; the evidence of the true model is {evidence:.3f}",
        title_justify="left",
    )
    for heading in ("width", "hidden layers", *posteriors):
        rows.add_column(heading, justify="right")
    for width in widths:
        for depth in depths:
            cells = [value.get((width, depth, posterior)) for posterior in posteriors]
            rows.add_row(str(width), str(depth), *("" if cell is None else f"{cell:.3f}" for cell in cells))
        rows.add_section()
    console.print(rows)
    fig = Figure(figsize=(3.4 * len(widths), 3.2), layout="constrained")
    for axes, width in zip(fig.subplots(1, len(widths), sharey=True, squeeze=False)[0], widths, strict=True):
        axes.axhline(evidence, color="#888888", linestyle=":", label="evidence, true model")
        for posterior in posteriors:
            points = [(depth, value[width, depth, posterior]) for depth in depths if (width, depth, posterior) in value]
            label = posterior.replace("->", " → ")
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3.5, color=COLOURS[posterior], label=label)
        axes.set_xscale("log", base=2)
        axes.set_xticks(depths, [str(depth) for depth in depths])
        axes.set_title(f"width {width}", fontsize=10)
        axes.set_xlabel("hidden layers")
        axes.spines[["top", "right"]].set_visible(False)
    fig.axes[0].set_ylabel("ELBO per data point")
    # far below, posteriors that failed would squeeze all others into a line
    if max(value.values()) > -1.0:
        fig.axes[0].set_ylim(bottom=max(-2.0, min(value.values()) - 0.05), top=evidence + 0.08)
    fig.axes[-1].legend(frameon=False, fontsize=8)
    write_figure(fig, path, console)


LINEAR = Experiment(
    "linear",
    "the paper's Fig. 2: the ELBO of deep linear networks against their depth",
    Config,
    {"width": (5, 50, 250), "depth": (1, 2, 4, 8, 16), "posterior": POSTERIORS},
    run,
    report,
    {
        "smoke": {"num_steps": 3, "width": (5,), "depth": (1, 2)},
        "cpu": {"num_steps": 3000, "batch_size": 100, "schedule": "cosine"},
    },
)
