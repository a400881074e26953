"""The toy regression problem: the paper's Fig. A1 and its table of compositional uncertainty; `toy_hmc` is its Fig. 1.

Posteriors are fitted to 40 points of a cubic with a gap in the middle. What to look for: an ELBO that is far better, and
error bars that open up where there are no data, only with global inducing points.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from joblib import Parallel, delayed, effective_n_jobs
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from torch import Tensor

from inducing.data.toy import cubic
from inducing.experiments.comparison import ELBO, Cell, Comparison, Key, Measure
from inducing.experiments.experiment import Experiment, Metrics, write_figure
from inducing.experiments.paper import published
from inducing.files import check_writable, write_atomically
from inducing.inference.objective import ELBOTerms, evaluate
from inducing.inference.recipes import FAST, Recipe, as_recipe
from inducing.inference.training import fit
from inducing.linalg.noise import seeded
from inducing.nn.draw import Chain
from inducing.nn.layers import Layer
from inducing.nn.likelihoods import Gaussian
from inducing.nn.models import mlp
from inducing.nn.network import Network
from inducing.nn.posteriors import GlobalInducing, Posterior
from inducing.nn.pseudo import PrecisionKind
from inducing.prediction.plots import BLACK, BLUE, plot_interval
from inducing.prediction.predictive import predict

POSTERIORS = ("factorised", "local", "global", "factorised->global")
GRID = np.linspace(-2.0, 2.0, 201)


@dataclass(frozen=True)
class Config:
    """The paper's settings: Section 4.1 and the appendix "Additional experimental details".

    ``precision`` and ``hidden_log_precision`` are those of layers with global inducing points.
    """

    dataset: str = "toy"
    posterior: str = "global"
    prior: str = "neal"
    num_data: int = 40
    width: int = 50
    depth: int = 2
    num_inducing: int = 100
    precision: str = "shared"
    hidden_log_precision: float = -4.0
    recipe: str = "paper:toy"
    num_steps: int = 5000
    train_samples: int = 10
    test_samples: int = 100
    split: int = 0


def run(config: Config, checkpoint: Path | None = None, progress: bool = True, recipe: Recipe | None = None) -> Metrics:
    """Fit one posterior to the toy data and take its figures. The split is the seed of everything."""
    if recipe is None:
        recipe = as_recipe(config.recipe).replace(num_steps=config.num_steps, num_samples=config.train_samples)
    data = cubic(config.num_data, config.split)
    likelihood = Gaussian(data.noise_variance, learn_variance=False)
    with warnings.catch_warnings():
        # more inducing points than data, as in the paper
        warnings.filterwarnings("ignore", message=".*inducing points for.*data points")
        network = mlp(
            1,
            1,
            [config.width] * config.depth,
            prior=config.prior,
            posterior=_posteriors(config),
            num_inducing=config.num_inducing,
            generator=torch.Generator().manual_seed(config.split),
        )
        fit(
            network,
            likelihood,
            (data.x, data.y),
            recipe,
            seed=config.split,
            checkpoint=checkpoint,
            progress=progress,
            description=f"{config.posterior:>18}",
        )
    terms = evaluate(network, likelihood, (data.x, data.y), config.test_samples, config.split)
    variances = layer_variances(network, config.test_samples, seeded(config.split, "layer variances"))
    predictive = predict(network, likelihood, torch.as_tensor(GRID[:, None], dtype=network.dtype), config.test_samples)
    return {
        **nats(terms),
        "layer_variance": variances,
        "mean": rounded(predictive.mean[:, 0]),
        "std": rounded(predictive.stddev[:, 0]),
    }


def _posteriors(config: Config) -> str | list[Posterior | str]:
    if config.posterior != "global":
        return config.posterior
    precision = cast(PrecisionKind, config.precision)
    hidden = GlobalInducing(precision, config.hidden_log_precision)
    return [*[hidden] * config.depth, GlobalInducing(precision)]


def nats(terms: ELBOTerms) -> Metrics:
    """The ELBO and its two parts, for each data point."""
    log_likelihood, elbo = float(terms.log_likelihood.mean()) / terms.num_data, float(terms.elbo_per_datapoint)
    return {"elbo_per_datapoint": elbo, "log_likelihood": log_likelihood, "kl": log_likelihood - elbo}


def rounded(values: Float[Tensor, " N"]) -> list[float]:
    """A curve as it is kept in the store."""
    return [round(value, 5) for value in values.tolist()]


def layer_variances(
    network: Network, num_samples: int, generator: torch.Generator, num_inputs: int = 1000
) -> list[float]:
    """Mean over standard normal inputs and output units of V[f_l(x)], layer by layer.

    A layer's function is everything since the layer below, so its input goes through the activation first (the paper's
    appendix "Understanding compositional uncertainty").
    """
    with torch.no_grad():
        draw = network.draw(num_samples, generator, consistent=True)
    variances = []
    pending, width = [], network.input_shape
    for module, step in zip(network.layers, draw.function.steps, strict=True):
        pending.append(step)
        if isinstance(module, Layer):
            x = torch.randn(1, num_inputs, *width, generator=generator, dtype=network.dtype)
            variances.append(float(Chain(tuple(pending))(x).var(0).mean()))
            pending, width = [], (module.out_features,)
    return variances


def panels(results: list[dict[str, Any]], titles: list[str]) -> Figure:
    """A panel for each run: data, predictive mean, one standard deviation."""
    fig = Figure(figsize=(3.1 * len(results), 3.0), layout="constrained")
    for axes, result, title in zip(
        fig.subplots(1, len(results), sharey=True, squeeze=False)[0], results, titles, strict=True
    ):
        config, metrics = result["config"], result["metrics"]
        data = cubic(config["num_data"], config["split"])
        plot_interval(axes, GRID, np.array(metrics["mean"]), np.array(metrics["std"]))
        axes.plot(data.x[:, 0], data.y[:, 0], ".", color=BLACK, markersize=4)
        # a sampler has no bound
        elbo = f"ELBO {metrics['elbo_per_datapoint']:.2f}" if "elbo_per_datapoint" in metrics else ""
        axes.set_title(f"{title}\n{elbo}", fontsize=10)
        axes.set_xlabel("x")
        axes.set_xlim(GRID[0], GRID[-1])
        axes.set_ylim(-2.6, 2.6)
        axes.spines[["top", "right"]].set_visible(False)
    return fig


def table(results: list[dict[str, Any]]) -> Table:
    """Our figures, each with the paper's below it where the paper has them; cells without a figure stay empty."""
    paper = published()["toy_compositional_bnn"]
    layers = results[0]["config"]["depth"] + 1
    rows = Table(
        title="Toy regression: ELBO, log-likelihood and KL in nats per data point",
        title_justify="left",
        caption="V[Fl]: mean variance of layer l's function over standard normal inputs. The paper prints the ELBO of "
        "global as 2.236, more than the likelihood allows; it is read as -2.236.",
        caption_justify="left",
    )
    rows.add_column("posterior", no_wrap=True)
    for heading in ("ELBO", "log-lik.", "KL", *(f"V[F{index + 1}]" for index in range(layers))):
        rows.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        posterior, metrics = result["config"]["posterior"], result["metrics"]
        parts = [metrics.get(name) for name in ("elbo_per_datapoint", "log_likelihood", "kl")]
        parts += metrics.get("layer_variance", [])
        rows.add_row(posterior, *("" if part is None else f"{part:.2f}" for part in parts))
        if posterior in paper:
            theirs = paper[posterior]
            variances = (f"{variance:.2f}" for variance in theirs["variance"])
            rows.add_row("  the paper", f"{theirs['elbo_per_datapoint']:.2f}", "", "", *variances, style="dim")
    return rows


def report(results: list[dict[str, Any]], path: Path, console: Console) -> None:
    """Print the table, write the panels."""
    console.print(table(results))
    titles = [result["config"]["posterior"].replace("->", " → ") for result in results]
    write_figure(panels(results, titles), path, console)


def report_num_inducing(results: list[dict[str, Any]], path: Path, console: Console) -> None:
    """Fig. A1: print the ELBOs, write the figure."""
    rows = Table(title="Global inducing points on the toy problem", title_justify="left")
    rows.add_column("inducing points", justify="right")
    rows.add_column("ELBO per datapoint", justify="right")
    for result in results:
        rows.add_row(str(result["config"]["num_inducing"]), f"{result['metrics']['elbo_per_datapoint']:.3f}")
    console.print(rows)
    titles = [f"{result['config']['num_inducing']} points" for result in results]
    write_figure(panels(results, titles), path, console)


def report_compositional(results: list[dict[str, Any]], path: Path, console: Console) -> None:
    """The table of compositional uncertainty: print it, write the figure."""
    console.print(table(results))
    paper = published()["toy_compositional_bnn"]
    fig = Figure(figsize=(8.5, 3.0), layout="constrained")
    for axes, result in zip(fig.subplots(1, len(results), sharey=True, squeeze=False)[0], results, strict=True):
        posterior, ours = result["config"]["posterior"], result["metrics"]["layer_variance"]
        layers = np.arange(len(ours))
        axes.bar(layers - 0.2, ours, 0.38, color=BLUE, label="ours")
        if posterior in paper:
            axes.bar(layers + 0.2, paper[posterior]["variance"], 0.38, color="#bbbbbb", label="the paper")
        axes.set_title(f"{posterior}\nELBO {result['metrics']['elbo_per_datapoint']:.2f}", fontsize=10)
        axes.set_xticks(layers, [f"layer {layer + 1}" for layer in layers])
        axes.spines[["top", "right"]].set_visible(False)
    fig.axes[0].set_ylabel("mean variance of the function")
    fig.axes[-1].legend(frameon=False)
    write_figure(fig, path, console)


def as_json(results: list[dict[str, Any]]) -> str:
    """The figures, keyed by posterior."""
    keys = ("elbo_per_datapoint", "log_likelihood", "kl", "layer_variance")
    table = {result["config"]["posterior"]: {key: result["metrics"][key] for key in keys} for result in results}
    return json.dumps(table, indent=2) + "\n"


# in a fraction of the time, factorised, local and global have higher ELBOs than with the paper's recipe (seed 0)
DEMO: dict[str, Recipe] = {
    "local": Recipe(num_steps=2000, learning_rate=0.1),
    "global": FAST.replace(num_steps=600, learning_rate=0.1, num_samples=4),
    "factorised": Recipe(num_steps=2000, learning_rate=0.1),
    "factorised->global": FAST.replace(num_steps=1000, learning_rate=0.1),
}


def demo(out: Path | None, num_steps: int | None, seed: int, console: Console) -> list[dict[str, Any]]:
    """Fit all posteriors side by side, print the table, and write ``out/toy.png`` and ``out/toy.json``."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        for name in ("toy.png", "toy.json"):
            check_writable(out / name)
    parallel = Parallel(n_jobs=min(len(DEMO), effective_n_jobs(-1)), return_as="generator_unordered")
    found: dict[str, dict[str, Any]] = {}
    for result in parallel(delayed(_demo_run)(posterior, num_steps, seed) for posterior in DEMO):
        found[result["config"]["posterior"]] = result
        console.print(f"fitted {result['config']['posterior']} ({len(found)} of {len(DEMO)})", highlight=False)
    results = [found[posterior] for posterior in POSTERIORS]
    if out is None:
        console.print(table(results))
    else:
        report(results, out / "toy.png", console)
    console.print(
        "Settings of this demonstration, not the paper's: 40 inducing points (local: 100), a precision for each output, "
        "600 to 2,000 steps at a learning rate of 0.1 with a cosine schedule.",
        highlight=False,
    )
    if out is not None:
        write_atomically(out / "toy.json", as_json(results).encode())
        console.print(f"wrote {out / 'toy.json'}", highlight=False)
    return results


def _demo_run(posterior: str, num_steps: int | None, seed: int) -> dict[str, Any]:
    """A run of the demonstration, in a process with one thread."""
    torch.set_num_threads(1)
    recipe = DEMO[posterior] if num_steps is None else DEMO[posterior].replace(num_steps=num_steps)
    num_inducing = 100 if posterior == "local" else 40
    config = Config(
        posterior=posterior,
        num_inducing=num_inducing,
        precision="per_output",
        recipe="demo",
        num_steps=recipe.num_steps,
        train_samples=recipe.num_samples,
        split=seed,
    )
    return {"config": vars(config), "metrics": run(config, progress=False, recipe=recipe)}


def _published(key: Key, measure: Measure) -> Cell | None:
    table = published()["toy_compositional_bnn"][key[0]]
    layer = measure.path[-1]
    return Cell(table["elbo_per_datapoint"] if measure == ELBO else table["variance"][layer], 0.0, 1)


SMOKE = {"num_steps": 10, "train_samples": 2, "test_samples": 10}

NUM_INDUCING = Experiment(
    "toy-num-inducing",
    "the paper's Fig. A1: global inducing with 2 to 40 points",
    Config,
    {"num_inducing": (2, 5, 10, 20, 40)},
    run,
    report_num_inducing,
    {"smoke": {**SMOKE, "num_inducing": (2, 5)}, "cpu": {}},
)
COMPOSITIONAL = Experiment(
    "compositional-bnn",
    "the paper's table of compositional uncertainty: how much each layer's function varies",
    Config,
    {"posterior": ("factorised", "local", "global")},
    run,
    report_compositional,
    {"smoke": SMOKE, "cpu": {}},
    comparison=Comparison(
        {"posterior": ("factorised", "local", "global")},
        [ELBO, *(Measure(("layer_variance", layer), f"V[F{layer + 1}]", higher_is_better=None) for layer in range(3))],
        _published,
        "V[Fl] is the mean variance of layer l's function over standard normal inputs.",
    ),
)
