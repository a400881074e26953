"""The paper's Fig. 1: variational posteriors on the toy problem beside Hamiltonian Monte Carlo, which is right in the limit.

What to look for: how far the predictive mean and standard deviation of each posterior are from those of HMC, where there are
data, in the gap between them, and beyond them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from rich.console import Console
from rich.table import Table

from inducing.data.toy import cubic
from inducing.experiments import toy
from inducing.experiments.experiment import Experiment, Metrics
from inducing.inference.hmc import hmc
from inducing.nn.likelihoods import Gaussian
from inducing.nn.models import mlp
from inducing.prediction.predictive import predict

REGIONS = ("data", "gap", "beyond", "all")


@dataclass(frozen=True)
class Config(toy.Config):
    """The settings of variational posteriors, and the paper's of HMC.

    The paper has one chain, as it seems, from a standard normal distribution, with step sizes tuned by hand; here are four,
    from the prior, with one that warm-up finds. What they converge to is the same.
    """

    hmc_chains: int = 4
    hmc_warmup: int = 10_000
    hmc_samples: int = 10_000
    hmc_thin: int = 10
    hmc_leapfrog: int = 20


def run(config: Config, checkpoint: Path | None = None, progress: bool = True) -> Metrics:
    """Fit one posterior or sample by HMC, and take the figures. The split is the seed of everything."""
    return run_hmc(config, progress) if config.posterior == "hmc" else toy.run(config, checkpoint, progress)


def run_hmc(config: Config, progress: bool = True) -> Metrics:
    """Sample the weights with the noise variance at its true value. There is no bound on the evidence."""
    data = cubic(config.num_data, config.split)
    likelihood = Gaussian(data.noise_variance, learn_variance=False)
    network = mlp(1, 1, [config.width] * config.depth, prior=config.prior, posterior="prior")
    samples = hmc(
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
        description=f"{config.posterior:>18}",
    )
    grid = torch.as_tensor(toy.GRID[:, None], dtype=network.dtype)
    # thousands of functions: a few rows at a time
    predictive = predict(samples, likelihood, grid, batch_size=20)
    r_hat, ess = samples.diagnostics(grid[::10])
    return {
        "log_likelihood": float(likelihood.log_prob(samples.functions(data.x), data.y).mean()),
        "mean": toy.rounded(predictive.mean[:, 0]),
        "std": toy.rounded(predictive.stddev[:, 0]),
        # the worst of the inputs
        "r_hat": float(r_hat.max()),
        "ess": float(ess.min()),
        "acceptance": float(samples.acceptance.mean()),
        "divergences": int(samples.divergences.sum()),
        "step_size": samples.step_size,
    }


def regions(x: Float[np.ndarray, " N"]) -> dict[str, Bool[np.ndarray, " G"]]:
    """Where on the grid there are data, where the gap between them is, what lies beyond them, and all of it."""
    grid, ordered = toy.GRID, np.sort(x)
    widest = np.diff(ordered).argmax()
    gap = (grid > ordered[widest]) & (grid < ordered[widest + 1])
    beyond = (grid < ordered[0]) | (grid > ordered[-1])
    return {"data": ~gap & ~beyond, "gap": gap, "beyond": beyond, "all": np.ones_like(gap)}


def distances(result: dict[str, Any], reference: dict[str, Any]) -> dict[tuple[str, str], float]:
    """Root mean square differences of the predictive "mean" and "std" on the grid, region by region."""
    config = result["config"]
    where = regions(cubic(config["num_data"], config["split"]).x[:, 0].numpy())
    found = {}
    for curve in ("mean", "std"):
        difference = np.array(result["metrics"][curve]) - np.array(reference["metrics"][curve])
        for region, rows in where.items():
            found[curve, region] = float(np.sqrt(np.mean(difference[rows] ** 2)))
    return found


def comparison(results: list[dict[str, Any]], reference: dict[str, Any]) -> Table:
    """How far each posterior is from HMC."""
    metrics = reference["metrics"]
    rows = Table(
        title="Distance from HMC: RMS difference of the predictive mean and standard deviation",
        title_justify="left",
        caption=f"The scale of y is 1. HMC: R-hat at most {metrics['r_hat']:.3f}, effective sample size at least "
        f"{metrics['ess']:.0f}, acceptance {metrics['acceptance']:.2f}, {metrics['divergences']} divergences.",
        caption_justify="left",
    )
    rows.add_column("posterior", no_wrap=True)
    for curve in ("mean", "std"):
        for region in REGIONS:
            rows.add_column(f"{curve}\n{region}", justify="right", no_wrap=True)
    for result in results:
        if result is not reference:
            found = distances(result, reference)
            rows.add_row(result["config"]["posterior"], *(f"{distance:.3f}" for distance in found.values()))
    return rows


def report(results: list[dict[str, Any]], path: Path, console: Console) -> None:
    """Fig. 1: print the tables, write the figure."""
    toy.report(results, path, console)
    for reference in results:
        if reference["config"]["posterior"] == "hmc" and len(results) > 1:
            console.print(comparison(results, reference))


TOY = Experiment(
    "toy",
    "the paper's Fig. 1: predictive distributions on 40 points of a cubic with a gap",
    Config,
    {"posterior": (*toy.POSTERIORS, "prior->global", "hmc")},
    run,
    report,
    {
        "smoke": {**toy.SMOKE, "hmc_warmup": 20, "hmc_samples": 20, "hmc_thin": 1, "hmc_leapfrog": 5},
        # with the paper's first precisions the lower layers of global stay at the prior, and its mean far from that of HMC
        "cpu": {
            "recipe": "fast",
            "precision": "per_output",
            "hidden_log_precision": 2.0,
            "num_steps": 10_000,
            # the error of a mean over 100 functions is as large as the distances beyond the data
            "test_samples": 2000,
            "hmc_warmup": 2000,
            "hmc_samples": 4000,
        },
    },
)
