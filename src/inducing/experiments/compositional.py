"""Compositional uncertainty in deep Gaussian processes: the figure of the paper's appendix of that name.

Data from a deep Gaussian process of two layers and width one, fitted by processes of the same form. Many pairs of functions
have nearly the same composition. What to look for: posteriors that factorise over layers settle on one pair of nearly
deterministic functions; global inducing points keep many, and have the better ELBO. The paper also sees better error bars
outside of the data with them. Ours open up with every posterior, and widest with local inducing points.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from torch import Tensor

from inducing.data.toy import composition
from inducing.experiments.experiment import Experiment, Metrics, write_figure
from inducing.experiments.toy import layer_variances, nats, rounded
from inducing.inference.objective import evaluate
from inducing.inference.training import fit
from inducing.linalg.noise import seeded
from inducing.nn.gp import GPLayer, MeanKind
from inducing.nn.likelihoods import Gaussian
from inducing.nn.models import deep_gp
from inducing.nn.network import Network
from inducing.prediction.plots import BLACK, BLUE, plot_interval

# the data lie between -2 and 2
HALF_RANGE = 2.0
GRID = np.linspace(-4.0, 4.0, 121)
DRAWN_FUNCTIONS = 6


@dataclass(frozen=True)
class Config:
    """The paper says: 100 points, two layers of width one, squared-exponential kernels.

    The rest is not said. The 100 inducing points and full precisions are those of its other deep Gaussian processes, the
    number of steps is that of Salimbeni & Deisenroth (2017), whom it follows there. All mean functions are zero, in the data
    and in the fits. Kernels are learned; the noise is known, as in the toy problem.
    """

    dataset: str = "composition"
    posterior: str = "global"
    mean: MeanKind = "zero"
    num_data: int = 100
    data_seed: int = 10
    noise_std: float = 0.05
    num_inducing: int = 100
    recipe: str = "paper:toy"
    num_steps: int = 20_000
    learning_rate: float = 1e-2
    train_samples: int = 10
    test_samples: int = 100
    split: int = 0


def run(config: Config, checkpoint: Path | None = None, progress: bool = True) -> Metrics:
    """Fit one deep Gaussian process. The split is the seed of everything but the data."""
    data = composition(config.num_data, config.data_seed, config.noise_std, HALF_RANGE)
    likelihood = Gaussian(data.noise_variance, learn_variance=False)
    # the data are in ascending order
    rows = torch.linspace(0, config.num_data - 1, config.num_inducing).round().long()
    network = deep_gp(
        1,
        1,
        mean=config.mean,
        posterior=config.posterior,
        inducing_points=data.x[rows],
        inducing_targets=data.y[rows],
        generator=torch.Generator().manual_seed(config.split),
    )
    fit(
        network,
        likelihood,
        (data.x, data.y),
        config.recipe,
        num_steps=config.num_steps,
        learning_rate=config.learning_rate,
        num_samples=config.train_samples,
        seed=config.split,
        checkpoint=checkpoint,
        progress=progress,
        description=f"{config.posterior:>7}",
    )
    terms = evaluate(network, likelihood, (data.x, data.y), config.test_samples, config.split)
    curves = _curves(network, data.noise_variance, config.test_samples, seeded(config.split, "curves"))
    std, outside = np.array(curves["output"]["std"]), abs(GRID) > HALF_RANGE
    gps = [layer for layer in network.layers if isinstance(layer, GPLayer)]
    kernels = [[value.item() for value in gp.kernel()] for gp in gps]
    return {
        **nats(terms),
        "layer_variance": layer_variances(
            network, config.test_samples, seeded(config.split, "layer variances"), num_inputs=200
        ),
        "lengthscale": [lengthscale for lengthscale, _ in kernels],
        "kernel_variance": [variance for _, variance in kernels],
        "std_inside": float(std[~outside].mean()),
        "std_outside": float(std[outside].mean()),
        "curves": curves,
    }


def _curves(
    network: Network, noise_variance: float, num_samples: int, generator: torch.Generator
) -> dict[str, dict[str, Any]]:
    """Mean, standard deviation and a few draws of each layer's function by itself, and of y: their composition and noise.

    The second layer is shown where the first one leads: over the middle 98 per cent of its values.
    """
    with torch.no_grad():
        first, second = network.draw(num_samples, generator, consistent=True).function.steps
        x = torch.as_tensor(GRID[None, :, None], dtype=network.dtype)
        hidden = first(x)
        low, high = hidden.flatten().quantile(hidden.new_tensor([0.01, 0.99])).tolist()
        places = torch.linspace(low, high, len(GRID), dtype=network.dtype)
        return {
            "layer 1": _curve(x[0, :, 0], hidden),
            "layer 2": _curve(places, second(places[None, :, None])),
            "output": _curve(x[0, :, 0], second(hidden), noise_variance),
        }


def _curve(x: Float[Tensor, " N"], values: Float[Tensor, "S N 1"], noise_variance: float = 0.0) -> dict[str, Any]:
    functions = values[..., 0]
    return {
        "x": rounded(x),
        "mean": rounded(functions.mean(0)),
        "std": rounded((functions.var(0, correction=0) + noise_variance).sqrt()),
        "draws": [rounded(each) for each in functions[:DRAWN_FUNCTIONS]],
    }


def report(results: list[dict[str, Any]], path: Path, console: Console) -> None:
    """Print the table, write the figure: a row for each posterior, the layers and the output from left to right."""
    console.print(_table(results))
    config = results[0]["config"]
    data = composition(config["num_data"], config["data_seed"], config["noise_std"], HALF_RANGE)
    fig = Figure(figsize=(10.0, 2.5 * len(results)), layout="constrained")
    for row, result in zip(fig.subplots(len(results), 3, squeeze=False), results, strict=True):
        metrics = result["metrics"]
        for axes, curve in zip(row, metrics["curves"].values(), strict=True):
            _panel(axes, curve)
        row[0].set_title("layer 1, $f_1(x)$", fontsize=10)
        row[0].set_ylabel(f"{result['config']['posterior']}\nELBO {metrics['elbo_per_datapoint']:.2f}")
        row[1].set_title("layer 2, $f_2(h)$", fontsize=10)
        row[2].set_title("output $y$", fontsize=10)
        row[2].plot(data.x[:, 0], data.y[:, 0], ".", color=BLACK, markersize=2.5)
    for axes, name in zip(fig.axes[-3:], ("x", "h", "x"), strict=True):
        axes.set_xlabel(name)
    for axes in fig.axes[5::3]:
        axes.sharey(fig.axes[2])
    write_figure(fig, path, console)


def _table(results: list[dict[str, Any]]) -> Table:
    rows = Table(
        title="Deep GPs of two layers: ELBO, log-likelihood and KL in nats per data point",
        title_justify="left",
        caption="V[Fl]: mean variance of layer l's function over standard normal inputs. std: mean standard deviation of y "
        "where there are data, and outside.",
        caption_justify="left",
    )
    rows.add_column("posterior", no_wrap=True)
    for heading in ("ELBO", "log-lik.", "KL", "V[F1]", "V[F2]", "std in", "std out"):
        rows.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        metrics = result["metrics"]
        parts = [metrics[name] for name in ("elbo_per_datapoint", "log_likelihood", "kl")]
        parts += [*metrics["layer_variance"], metrics["std_inside"], metrics["std_outside"]]
        rows.add_row(result["config"]["posterior"], *(f"{part:.3f}" for part in parts))
    return rows


def _panel(axes: Axes, curve: dict[str, Any]) -> None:
    """The mean, two standard deviations, and the draws."""
    x = np.array(curve["x"])
    axes.plot(x, np.array(curve["draws"]).T, color=BLUE, linewidth=0.6, alpha=0.6)
    plot_interval(axes, x, np.array(curve["mean"]), np.array(curve["std"]), num_std=2.0)
    axes.set_xlim(x[0], x[-1])
    axes.spines[["top", "right"]].set_visible(False)


COMPOSITIONAL_DGP = Experiment(
    "compositional-dgp",
    "the paper's figure of compositional uncertainty: what each layer of a deep Gaussian process has learned",
    Config,
    # the paper's two, and the other way to write down the first
    {"posterior": ("local", "global", "dsvi")},
    run,
    report,
    {
        "smoke": {"num_steps": 3, "num_inducing": 20, "train_samples": 2, "test_samples": 10},
        "cpu": {"recipe": "fast", "num_steps": 5000},
    },
)
