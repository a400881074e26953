"""Depth in deep linear networks: the paper's Fig. 2.

The data are from a linear model, and are fitted by deep linear networks of growing depth and width. The ELBO of posteriors
that factorise over layers falls with depth and width; with global inducing points in the last layer it hardly does. The log
evidence under the true model is an upper bound on all ELBOs, in expectation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import LowRankMultivariateNormal

import inducing
from inducing.experiments.engine import figures, store, training
from inducing.experiments.engine.comparison import ELBO, Comparison
from inducing.experiments.engine.experiment import Experiment, Metrics
from inducing.linalg.noise import seeded
from inducing.pages import Table

FEATURES, NOISE_VARIANCE = 5, 0.1
COMPARISON = Comparison(["width", "depth", "posterior"], measures=())


@dataclass(frozen=True, kw_only=True)
class Config(training.NetworkConfig):
    """The paper's settings: Section 4.2 and the appendix "Additional experimental details"."""

    dataset: str = "linear"
    depth: int = 1
    num_train: int = 1000
    num_test: int = 100
    num_inducing: int = 10
    recipe: str = "paper:linear"
    num_steps: int = 40_000
    batch_size: int = 10_000
    learning_rate: float = 1e-2
    schedule: str = "constant"
    train_samples: None = None
    test_samples: int = 10


def linear_data(num_data: int, seed: int) -> tuple[Float[Tensor, "N 5"], Float[Tensor, "N 1"]]:
    """Draw inputs and targets of a linear model with weights ~ N(0, 1/5) and noise variance 0.1."""
    generator = seeded(seed, "linear data")
    x = torch.randn(num_data, FEATURES, generator=generator)
    weights = torch.randn(FEATURES, 1, generator=generator) / math.sqrt(FEATURES)
    return x, x @ weights + math.sqrt(NOISE_VARIANCE) * torch.randn(len(x), 1, generator=generator)


def log_evidence(x: Float[Tensor, "N F"], y: Float[Tensor, "N 1"]) -> float:
    """log P(y | x) under the true model, y ~ N(0, XX'/5 + 0.1 I)."""
    factor, y = x.double() / math.sqrt(FEATURES), y.double()[:, 0]
    noise = torch.full_like(y, NOISE_VARIANCE)
    return float(LowRankMultivariateNormal(torch.zeros_like(y), factor, noise).log_prob(y))


def run(config: Config, checkpoint: Path | None = None, progress: bool = True) -> Metrics:
    """Fit one network."""
    x, y = linear_data(config.num_train + config.num_test, config.split)
    (x, x_test), (y, y_test) = (rows.split([config.num_train, config.num_test]) for rows in (x, y))
    likelihood = inducing.Gaussian(NOISE_VARIANCE, learn_variance=False)
    settings = {"prior": config.prior, "posterior": config.posterior, **training.initial_values(config, x, y)}
    network = inducing.models.mlp(FEATURES, 1, config.widths, activation=nn.Identity, bias=False, **settings)
    trained = training.train_and_score(network, likelihood, (x, y), config, checkpoint, progress)
    predictive = inducing.predict(network, likelihood, x_test, config.test_samples)
    return {
        "elbo_per_datapoint": float(trained.terms.elbo_per_datapoint),
        **training.held_out_scores(predictive, y_test),
        "evidence_per_datapoint": log_evidence(x, y) / config.num_train,
    }


def tables(results: list[store.Result]) -> list[Table]:
    """The ELBO for each width and depth, with a column for each posterior."""
    elbo, _ = COMPARISON.estimates(results, ELBO)
    texts, posteriors = {key: each.text(3) for key, each in elbo.items()}, list(dict.fromkeys(key[2] for key in elbo))
    rows = [
        [str(width), str(depth), *(texts.get((width, depth, posterior), "") for posterior in posteriors)]
        for width, depth in dict.fromkeys(key[:2] for key in elbo)
    ]
    evidence = results[0]["metrics"]["evidence_per_datapoint"]
    title = f"ELBO per data point; the evidence of the true model is {evidence:.3f}"
    return [Table(["width", "hidden layers", *map(figures.with_arrows, posteriors)], rows, title, text_columns=2)]


def draw_depths(results: list[store.Result]) -> figures.Figure:
    """A panel for each width: the ELBO against the depth."""
    estimates, _ = COMPARISON.estimates(results, ELBO)
    elbo = {key: estimate.mean for key, estimate in estimates.items()}
    widths, depths, posteriors = (list(dict.fromkeys(key[axis] for key in elbo)) for axis in range(3))
    evidence = results[0]["metrics"]["evidence_per_datapoint"]
    figure, (row,) = figures.panels(1, len(widths), (3.4, 3.2), sharey=True)
    for axes, width in zip(row, widths, strict=True):
        axes.axhline(evidence, color="#888888", linestyle=":", label="evidence, true model")
        for posterior in posteriors:
            points = {depth: value for (w, depth, each), value in elbo.items() if (w, each) == (width, posterior)}
            style = {"color": figures.COLOURS[posterior], "label": figures.with_arrows(posterior)}
            axes.plot(list(points), list(points.values()), marker="o", markersize=3.5, **style)
        axes.set_xscale("log", base=2)
        axes.set_xticks(depths, [str(depth) for depth in depths])
        axes.set_title(f"width {width}", fontsize=10)
        axes.set_xlabel("hidden layers")
    row[0].set_ylabel("ELBO per data point")
    # posteriors that failed are far below, and would make all others one line
    if max(elbo.values()) > -1.0:
        row[0].set_ylim(bottom=max(-2.0, min(elbo.values()) - 0.05), top=evidence + 0.08)
    row[-1].legend(frameon=False, fontsize=8)
    return figure


LINEAR = Experiment.described("linear", Config(), run, draw_depths, COMPARISON, tables)
