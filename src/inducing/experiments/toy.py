"""The toy regression problem: the paper's Fig. 1 and its table of compositional uncertainty.

Four posteriors are fitted to 40 points of a cubic with a gap in the middle. What to look for: an ELBO that is far
better, and error bars that open up where there are no data, only for global inducing points.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from inducing.data.toy import Cubic, cubic
from inducing.experiments.paper import published
from inducing.files import write_atomically
from inducing.inference.objective import ELBO
from inducing.inference.schedules import Schedule
from inducing.inference.training import fit
from inducing.linalg.noise import seeded
from inducing.nn.draw import Chain
from inducing.nn.layers import Layer
from inducing.nn.likelihoods import Gaussian
from inducing.nn.models import mlp
from inducing.nn.network import Network
from inducing.prediction.plots import BLACK, as_png, plot_interval
from inducing.prediction.predictive import predict

POSTERIORS = ("factorised", "local", "global", "factorised->global")
GRID = np.linspace(-2.5, 2.5, 201)


@dataclass(frozen=True)
class Settings:
    """The paper's settings: Section 4.1 and the appendix "Additional experimental details"."""

    num_data: int = 40
    hidden: tuple[int, ...] = (50, 50)
    prior: str = "neal"
    num_inducing: int = 100
    num_steps: int = 5000
    learning_rate: float = 1e-2
    schedule: Schedule = "constant"
    train_samples: int = 10
    test_samples: int = 100
    seed: int = 0


class Result(NamedTuple):
    """One fitted posterior. ELBO, log-likelihood and KL are nats per data point.

    Arguments:
        elbo_per_datapoint: The ELBO.
        log_likelihood: Its first part.
        kl: Its second part, over all layers.
        layer_variance: Mean variance of each layer's function over standard normal inputs.
        mean: Predictive mean on the grid.
        std: Predictive standard deviation on the grid.
    """

    elbo_per_datapoint: float
    log_likelihood: float
    kl: float
    layer_variance: tuple[float, ...]
    mean: Float[np.ndarray, " N"]
    std: Float[np.ndarray, " N"]


def run(settings: Settings, posterior: str, progress: bool = True) -> Result:
    """Fit one posterior to the toy data and take its figures."""
    data = cubic(settings.num_data, settings.seed)
    likelihood = Gaussian(data.noise_variance, learn_variance=False)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # more inducing points than data, as in the paper
        warnings.filterwarnings("ignore", message=".*inducing points for.*data points")
        torch.manual_seed(settings.seed)
        network = mlp(
            1,
            1,
            settings.hidden,
            prior=settings.prior,
            posterior=posterior,
            num_inducing=settings.num_inducing,
        )
        fit(
            network,
            likelihood,
            (data.x, data.y),
            num_steps=settings.num_steps,
            num_samples=settings.train_samples,
            learning_rate=settings.learning_rate,
            schedule=settings.schedule,
            seed=settings.seed,
            progress=progress,
            description=f"{posterior:>18}",
        )
    return evaluate(network, likelihood, data, settings)


def evaluate(network: Network, likelihood: Gaussian, data: Cubic, settings: Settings) -> Result:
    """Take the figures of a fitted network."""
    generator = seeded(settings.seed, "evaluation")
    with torch.no_grad():
        terms = ELBO(network, likelihood, len(data.x))(data.x, data.y, settings.test_samples, generator=generator)
        variances = layer_variances(network, settings.test_samples, generator)
    predictive = predict(
        network, likelihood, torch.as_tensor(GRID[:, None], dtype=network.dtype), settings.test_samples
    )
    log_likelihood = float(terms.log_likelihood.mean()) / terms.num_data
    elbo = float(terms.elbo_per_datapoint)
    return Result(
        elbo,
        log_likelihood,
        log_likelihood - elbo,
        variances,
        predictive.mean[:, 0].double().numpy(),
        predictive.stddev[:, 0].double().numpy(),
    )


def layer_variances(
    network: Network, num_samples: int, generator: torch.Generator, num_inputs: int = 1000
) -> tuple[float, ...]:
    """Mean over standard normal inputs and output units of V[f_l(x)], layer by layer.

    A layer's function is everything since the layer below, so its input goes through the activation first (the paper's
    appendix "Understanding compositional uncertainty").
    """
    draw = network.draw(num_samples, generator, consistent=True)
    variances = []
    pending, width = [], network.input_shape
    for module, step in zip(network.layers, draw.function.steps, strict=True):
        pending.append(step)
        if isinstance(module, Layer):
            x = torch.randn(1, num_inputs, *width, generator=generator, dtype=network.dtype)
            variances.append(float(Chain(tuple(pending))(x).var(0).mean()))
            pending, width = [], (module.out_features,)
    return tuple(variances)


def figure(results: dict[str, Result], data: Cubic) -> Figure:
    """A panel for each posterior: data, predictive mean, one standard deviation."""
    fig = Figure(figsize=(3.1 * len(results), 3.0), layout="constrained")
    panels = fig.subplots(1, len(results), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (posterior, result) in zip(panels, results.items(), strict=True):
        plot_interval(axes, GRID, result.mean, result.std)
        axes.plot(data.x[:, 0], data.y[:, 0], ".", color=BLACK, markersize=4)
        axes.set_title(f"{posterior.replace('->', ' → ')}\nELBO {result.elbo_per_datapoint:.2f}", fontsize=10)
        axes.set_xlabel("x")
        axes.set_xlim(GRID[0], GRID[-1])
        axes.set_ylim(-4, 4)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("y")
    return fig


def table(results: dict[str, Result]) -> Table:
    """Our figures, each with the paper's below it where the paper has them."""
    paper = published()["toy_compositional_bnn"]
    layers = len(next(iter(results.values())).layer_variance)
    rows = Table(title="Toy regression, nats per data point", title_justify="left")
    rows.add_column("posterior", no_wrap=True)
    for heading in ("ELBO", "log-lik.", "KL", *(f"V[F{index + 1}]" for index in range(layers))):
        rows.add_column(heading, justify="right", no_wrap=True)
    for posterior, result in results.items():
        parts = (result.elbo_per_datapoint, result.log_likelihood, result.kl, *result.layer_variance)
        rows.add_row(posterior, *(f"{part:.2f}" for part in parts))
        if posterior in paper:
            theirs = paper[posterior]
            variances = (f"{variance:.2f}" for variance in theirs["variance"])
            rows.add_row("  the paper", f"{theirs['elbo_per_datapoint']:.2f}", "", "", *variances, style="dim")
    return rows


def as_json(results: dict[str, Result]) -> str:
    """The figures, keyed by posterior."""
    keys = ("elbo_per_datapoint", "log_likelihood", "kl", "layer_variance")
    return (
        json.dumps({name: {key: getattr(result, key) for key in keys} for name, result in results.items()}, indent=2)
        + "\n"
    )


def demo(out: Path | None, settings: Settings, console: Console) -> dict[str, Result]:
    """Fit all posteriors, print the table, and write ``out/toy.png`` and ``out/toy.json``."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    results = {posterior: run(settings, posterior) for posterior in POSTERIORS}
    console.print(table(results))
    if out is not None:
        write_atomically(out / "toy.png", as_png(figure(results, cubic(settings.num_data, settings.seed))))
        write_atomically(out / "toy.json", as_json(results).encode())
        console.print(f"wrote {out / 'toy.png'} and {out / 'toy.json'}")
    return results
