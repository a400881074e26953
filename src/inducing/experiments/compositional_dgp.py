"""Compositional uncertainty in deep Gaussian processes: the figure of the paper's appendix of that name.

The data are from a deep Gaussian process of two layers and width one, and are fitted by processes of the same form. Many
pairs of functions have nearly the same composition. What to look for: posteriors that factorise over layers choose one pair
of nearly deterministic functions; global inducing points keep many pairs, and have the better ELBO. In the paper, only they
have wide error bars outside of the data. In our runs error bars widen with every posterior, least with global inducing
points.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

import inducing
from inducing.experiments.engine import figures, store, training
from inducing.experiments.engine.comparison import ELBO_TERMS, Comparison, Measure, layer_variance
from inducing.experiments.engine.experiment import Experiment, Metrics
from inducing.experiments.toy import layer_variances
from inducing.linalg.noise import seeded
from inducing.nn.layers.gp import GPLayer, MeanKind
from inducing.plots import BLACK, plot_band

# the data are between -2 and 2
HALF_RANGE = 2.0
GRID = np.linspace(-4.0, 4.0, 121)
DRAWN_FUNCTIONS = 6


@dataclass(frozen=True, kw_only=True)
class Config(training.TrainingConfig):
    """The paper's settings: 100 points, two layers of width one, squared-exponential kernels.

    The paper does not give the others. 100 inducing points and full precisions are those of its other deep Gaussian
    processes. The number of steps is that of Salimbeni & Deisenroth (2017), which it follows there. All mean functions are
    zero, in the data and in the fits. Kernels are learned; the noise is known, as in the toy problem.
    """

    dataset: str = "composition"
    mean: MeanKind = "zero"
    num_data: int = 100
    data_seed: int = 10
    noise_std: float = 0.05
    recipe: str = "paper:toy"
    num_steps: int = 20_000
    learning_rate: float = 1e-2


def run(config: Config, checkpoint: Path | None = None, progress: bool = True) -> Metrics:
    """Fit one deep Gaussian process. The data have a seed of their own."""
    data = inducing.data.toy.composition(config.num_data, config.data_seed, config.noise_std, HALF_RANGE)
    likelihood = inducing.Gaussian(data.noise_variance, learn_variance=False)
    # the data are in ascending order
    rows = torch.linspace(0, config.num_data - 1, config.num_inducing).round().long()
    initial = training.initial_values(config, data.x[rows], data.y[rows])
    network = inducing.models.deep_gp(1, 1, mean=config.mean, posterior=config.posterior, **initial)
    trained = training.train_and_score(network, likelihood, (data.x, data.y), config, checkpoint, progress)
    curves = _curves(network, data.noise_variance, config.test_samples, seeded(config.split, "curves"))
    variances = layer_variances(network, config.test_samples, seeded(config.split, "layer variances"), num_inputs=200)
    std, outside = np.array(curves["output"]["std"]), abs(GRID) > HALF_RANGE
    kernels = [[value.item() for value in gp.kernel()] for gp in network.layers if isinstance(gp, GPLayer)]
    return {
        **trained.nats,
        "layer_variance": variances,
        "lengthscale": [lengthscale for lengthscale, _ in kernels],
        "kernel_variance": [variance for _, variance in kernels],
        "std_inside": float(std[~outside].mean()),
        "std_outside": float(std[outside].mean()),
        "curves": curves,
    }


def _curves(
    network: inducing.Network, noise_variance: float, num_samples: int, generator: torch.Generator
) -> dict[str, dict[str, Any]]:
    """Mean, standard deviation and a few draws of the function of each layer, and of y: their composition and noise.

    The second layer is shown on the middle 98 per cent of the outputs of the first.
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
        "x": training.rounded(x),
        "mean": training.rounded(functions.mean(0)),
        "std": training.rounded((functions.var(0, correction=0) + noise_variance).sqrt()),
        "draws": [training.rounded(each) for each in functions[:DRAWN_FUNCTIONS]],
    }


def draw_layers(results: list[store.Result]) -> figures.Figure:
    """A row for each posterior; the layers and the output from left to right, with two standard deviations and draws.

    Only runs of the lowest stored split are drawn.
    """
    results = figures.first_split(results)
    config = results[0]["config"]
    data = inducing.data.toy.composition(config["num_data"], config["data_seed"], config["noise_std"], HALF_RANGE)
    figure, rows = figures.panels(len(results), 3, (3.3, 2.5))
    for row, result in zip(rows, results, strict=True):
        metrics = result["metrics"]
        titles = ("layer 1, $f_1(x)$", "layer 2, $f_2(h)$", "output $y$")
        for axes, curve, title in zip(row, metrics["curves"].values(), titles, strict=True):
            x = np.array(curve["x"])
            plot_band(x, curve["mean"], curve["std"], draws=curve["draws"], num_std=2.0, ax=axes)
            axes.set_xlim(x[0], x[-1])
            axes.set_title(title, fontsize=10)
        row[0].set_ylabel(f"{result['config']['posterior']}\nELBO {metrics['elbo_per_datapoint']:.2f}")
        row[2].plot(data.x[:, 0], data.y[:, 0], ".", color=BLACK, markersize=2.5)
    for axes, name in zip(rows[-1], ("x", "h", "x"), strict=True):
        axes.set_xlabel(name)
    for axes in rows[1:, 2]:
        axes.sharey(rows[0, 2])
    return figure


STD = [Measure(f"std_{where}", f"std {where}", higher_is_better=None) for where in ("inside", "outside")]
COMPARISON = Comparison(
    ["posterior"],
    [measure._replace(digits=3) for measure in (*ELBO_TERMS, layer_variance(0), layer_variance(1), *STD)],
    note="V[Fl]: mean variance of layer l's function over standard normal inputs. std: mean standard deviation of y inside "
    "and outside of the range of the data.",
)
COMPOSITIONAL_DGP = Experiment.described("compositional-dgp", Config(), run, draw_layers, COMPARISON)
