"""The paper's Fig. 1: posteriors on 40 points of a cubic with a gap, beside Hamiltonian Monte Carlo (HMC). And Fig. A1: the
same with 2 to 40 global inducing points.

What to look for: the ELBO is much better with global inducing points, and only then do error bars widen where there are no
data. HMC is exact in the limit of many samples. The second table shows how far each posterior's predictive mean and standard
deviation are from HMC's: where there are data, in the gap between them, and beyond them.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float

import inducing
from inducing.errors import DataWarning
from inducing.experiments.engine import figures, store, training
from inducing.experiments.engine.comparison import ELBO, ELBO_TERMS, Comparison, layer_variance
from inducing.experiments.engine.experiment import Experiment, Metrics
from inducing.linalg.noise import seeded
from inducing.nn.draw import layer_functions
from inducing.nn.posteriors.pseudo_likelihood import PrecisionKind
from inducing.pages import Table
from inducing.plots import BLACK, plot_band

GRID = np.linspace(-2.0, 2.0, 201)
INPUTS = torch.as_tensor(GRID[:, None], dtype=torch.float32)


@dataclass(frozen=True, kw_only=True)
class Config(training.NetworkConfig):
    """The paper's settings: Section 4.1 and the appendix "Additional experimental details".

    ``precision`` and ``hidden_log_precision`` are for layers with global inducing points.
    """

    dataset: str = "toy"
    num_data: int = 40
    precision: PrecisionKind = "shared"
    hidden_log_precision: float = -4.0
    recipe: str = "paper:toy"
    num_steps: int = 5000


@dataclass(frozen=True, kw_only=True)
class HMCConfig(Config):
    """Settings of a variational posterior or of HMC.

    The paper seems to use one chain from a standard normal distribution, with step sizes tuned by hand. We use four chains
    from the prior, with a step size found in warm-up. Both converge to the same distribution.
    """

    hmc_chains: int = 4
    hmc_warmup: int = 10_000
    hmc_samples: int = 10_000
    hmc_thin: int = 10
    hmc_leapfrog: int = 20


def run(config: Config, checkpoint: Path | None = None, progress: bool = True) -> Metrics:
    """Fit one posterior to the toy data."""
    data = inducing.data.toy.cubic(config.num_data, config.split)
    likelihood = inducing.Gaussian(data.noise_variance, learn_variance=False)
    generator = torch.Generator().manual_seed(config.split)
    posterior = training.posteriors(config, config.depth, config.hidden_log_precision, config.precision)
    settings: dict[str, Any] = {"prior": config.prior, "posterior": posterior, "generator": generator}
    with warnings.catch_warnings():
        # more inducing points than data, as in the paper
        warnings.simplefilter("ignore", DataWarning)
        network = inducing.models.mlp(1, 1, config.widths, num_inducing=config.num_inducing, **settings)
        trained = training.train_and_score(network, likelihood, (data.x, data.y), config, checkpoint, progress)
    variances = layer_variances(network, config.test_samples, seeded(config.split, "layer variances"))
    predictive = inducing.predict(network, likelihood, INPUTS, config.test_samples)
    return {**trained.nats, "layer_variance": variances, **_curves(predictive)}


def _curves(predictive: inducing.Predictive) -> Metrics:
    return {"mean": training.rounded(predictive.mean[:, 0]), "std": training.rounded(predictive.stddev[:, 0])}


def run_with_hmc(config: HMCConfig, checkpoint: Path | None = None, progress: bool = True) -> Metrics:
    """Fit one posterior, or sample the weights by HMC with the true noise variance. HMC gives no ELBO."""
    if config.posterior != "hmc":
        return run(config, checkpoint, progress)
    data = inducing.data.toy.cubic(config.num_data, config.split)
    likelihood = inducing.Gaussian(data.noise_variance, learn_variance=False)
    network = inducing.models.mlp(1, 1, config.widths, prior=config.prior, posterior="prior")
    samples = inducing.hmc(
        network,
        likelihood,
        (data.x, data.y),
        num_chains=config.hmc_chains,
        num_warmup=config.hmc_warmup,
        num_samples=config.hmc_samples,
        thin=config.hmc_thin,
        num_leapfrog=config.hmc_leapfrog,
        seed=config.split,
        progress=progress,
        description="toy hmc",
    )
    # thousands of functions: a few rows at a time
    predictive = inducing.predict(samples, likelihood, INPUTS, batch_size=20)
    r_hat, ess = samples.diagnostics(INPUTS[::10])
    return {
        "log_likelihood": float(likelihood.log_prob(samples.functions(data.x), data.y).mean()),
        **_curves(predictive),
        # the worst of the inputs
        "r_hat": float(r_hat.max()),
        "ess": float(ess.min()),
        "acceptance": float(samples.acceptance.mean()),
        "divergences": int(samples.divergences.sum()),
        "step_size": samples.step_size,
    }


def layer_variances(
    network: inducing.Network, num_samples: int, generator: torch.Generator, num_inputs: int = 1000
) -> list[float]:
    """Mean over standard normal inputs and output units of V[f_l(x)], layer by layer.

    The function of a layer includes the activation below it (the paper's appendix "Understanding compositional
    uncertainty").
    """
    with torch.no_grad():
        draw = network.draw(num_samples, generator, consistent=True)
    variances, shape = [], network.input_shape
    for function in layer_functions(draw):
        values = function(torch.randn(1, num_inputs, *shape, generator=generator, dtype=network.dtype))
        variances.append(float(values.var(0).mean()))
        shape = tuple(values.shape[2:])
    return variances


def draw_predictions(results: list[store.Result], title: str = "{posterior}") -> figures.Figure:
    """A panel for each run of the first split: data, predictive mean, one standard deviation.

    Fields of the configuration fill the title.
    """
    results = figures.first_split(results)
    figure, (row,) = figures.panels(1, len(results), (3.1, 3.0), sharey=True)
    for axes, result in zip(row, results, strict=True):
        config, metrics = result["config"], result["metrics"]
        data, elbo = inducing.data.toy.cubic(config["num_data"], config["split"]), ELBO.of(metrics)
        plot_band(GRID, metrics["mean"], metrics["std"], ax=axes)
        axes.plot(data.x[:, 0], data.y[:, 0], ".", color=BLACK, markersize=4)
        subtitle = "" if elbo is None else f"ELBO {elbo:.2f}"
        axes.set_title(f"{figures.with_arrows(title.format(**config))}\n{subtitle}", fontsize=10)
        axes.set(xlabel="x", xlim=(GRID[0], GRID[-1]), ylim=(-2.6, 2.6))
    return figure


def regions(x: Float[np.ndarray, " N"]) -> dict[str, Bool[np.ndarray, " G"]]:
    """Which inputs of the grid are among the data, in the widest gap between them, and beyond them."""
    ordered = np.sort(x)
    widest = np.diff(ordered).argmax()
    gap = (ordered[widest] < GRID) & (ordered[widest + 1] > GRID)
    beyond = (ordered[0] > GRID) | (ordered[-1] < GRID)
    return {"data": ~gap & ~beyond, "gap": gap, "beyond": beyond, "all": np.ones_like(gap)}


def distances(result: store.Result, reference: store.Result) -> dict[str, float]:
    """Root mean square differences of the predictive mean and standard deviation, by region."""
    config, found = result["config"], {}
    where = regions(inducing.data.toy.cubic(config["num_data"], config["split"]).x[:, 0].numpy())
    for curve in ("mean", "std"):
        difference = np.array(result["metrics"][curve]) - np.array(reference["metrics"][curve])
        for region, rows in where.items():
            found[f"{curve} {region}"] = float(np.sqrt(np.mean(difference[rows] ** 2)))
    return found


def distances_from_hmc(results: list[store.Result]) -> dict[str, dict[str, float]]:
    """The distances of each posterior from HMC on the same data, as means over the splits that all of them have.

    Posteriors that have no split in common with HMC are left out.
    """
    every = defaultdict[str, dict[int, store.Result]](dict)
    for result in results:
        every[result["config"]["posterior"]][result["config"]["split"]] = result
    references = every.pop("hmc", {})
    runs = {posterior: found for posterior, found in every.items() if found.keys() & references.keys()}
    splits = [split for split in references if all(split in found for found in runs.values())]
    means = {}
    for posterior, found in runs.items() if splits else ():
        each = [distances(found[split], references[split]) for split in splits]
        means[posterior] = {name: float(np.mean([one[name] for one in each])) for name in each[0]}
    return means


def tables(results: list[store.Result]) -> list[Table]:
    """A table of the distances from HMC on the same data, or no table if no split has runs of HMC and another posterior."""
    found = distances_from_hmc(results)
    if not found:
        return []
    rows = [[posterior, *(f"{distance:.3f}" for distance in each.values())] for posterior, each in found.items()]
    chains = [each["metrics"] for each in results if each["config"]["posterior"] == "hmc"]
    note = (
        "Means over the splits that have all of these runs. The scale of y is 1. HMC: R-hat at most "
        f"{max(each['r_hat'] for each in chains):.3f}, effective sample size at least "
        f"{min(each['ess'] for each in chains):.0f}, acceptance at least {min(each['acceptance'] for each in chains):.2f}, "
        f"{sum(each['divergences'] for each in chains)} divergences."
    )
    title = "Distance from HMC: RMS difference of the predictive mean and standard deviation"
    return [Table(["posterior", *next(iter(found.values()))], rows, title, note)]


COMPARISON = Comparison(
    ["posterior"],
    [*ELBO_TERMS, *map(layer_variance, range(3))],
    "toy_compositional_bnn",
    "ELBO, log-likelihood and KL in nats per data point. V[Fl]: mean variance of layer l's function over standard normal "
    "inputs. The paper prints the ELBO of global as 2.236, more than the likelihood allows; it is read as -2.236.",
)
NUMBERS = Comparison(["num_inducing"], [ELBO._replace(digits=3)])
draw_numbers = partial(draw_predictions, title="{num_inducing} points")
NUM_INDUCING = Experiment.described("toy-num-inducing", Config(), run, draw_numbers, NUMBERS)
TOY = Experiment.described("toy", HMCConfig(), run_with_hmc, draw_predictions, COMPARISON, tables)
