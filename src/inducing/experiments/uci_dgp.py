"""UCI regression with deep Gaussian processes: the paper's appendix "UCI results with deep Gaussian processes".

Nine datasets with the splits of Gal & Ghahramani, depths 2 to 5, and four posteriors for the same model. The paper has three
of them. We add coupled inducing points: they differ from global ones only in what the paper argues for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

import inducing
from inducing.experiments.engine import training
from inducing.experiments.engine.experiment import Experiment
from inducing.experiments.uci_tables import DATASETS, SPLITS, compare, draw_scores, has_split, run_split
from inducing.nn.posteriors import GlobalInducing, Posterior

POSTERIORS = ("dsvi", "local", "global", "coupled")
DEPTHS = (2, 3, 4, 5)


@dataclass(frozen=True)
class Config:
    """The paper's settings: "UCI results with deep Gaussian processes" and "Additional experimental details".

    ``own_inducing`` is the initial value of local inducing points: "normal" for N(0, 1), as in the paper, or "data" for
    rows of the data, as for the other posteriors.
    """

    dataset: str = "boston"
    split: int = 0
    posterior: str = "global"
    depth: int = 2
    num_inducing: int = 100
    kernel: str = "squared-exponential"
    own_inducing: str = "normal"
    hidden_log_precision: float = -4.0
    recipe: str = "paper:dgp"
    num_steps: int = 20_000
    train_samples: int = 10
    test_samples: int = 100


def _network(config: Config, x: Tensor, y: Tensor) -> inducing.Network:
    initial = training.initial_values(config, x, y)
    if config.posterior == "local" and config.own_inducing == "normal":
        initial = {"num_inducing": config.num_inducing, "generator": initial["generator"]}
    posterior = _posteriors(config)
    return inducing.models.deep_gp(x.shape[1], 1, config.depth, kernel=config.kernel, posterior=posterior, **initial)


def _posteriors(config: Config) -> str | list[Posterior | str]:
    if config.posterior != "global":
        return config.posterior
    hidden = GlobalInducing(log_precision=config.hidden_log_precision)
    return [*[hidden] * (config.depth - 1), GlobalInducing()]


run = partial(run_split, _network)
COMPARISON = compare(
    "uci_dgp",
    "depth",
    {depth: str(depth) for depth in DEPTHS},
    POSTERIORS,
    "`coupled` has no results in the paper. The paper's RMSE on wine, printed as 0.06, is left out.",
)
_FAST = {"own_inducing": "data", "recipe": "fast", "hidden_log_precision": 2.0, "train_samples": 2}
_CPU: dict[str, Any] = {"split": (0, 1, 2), "depth": (2,), "posterior": ("dsvi", "local", "global"), **_FAST}
_SMOKE_GRID = {"dataset": ("yacht",), "split": (0,), "depth": (2,)}
UCI_DGP = Experiment(
    "uci-dgp",
    "the paper's tables of deep Gaussian processes on UCI regression, depths 2 to 5",
    Config(),
    {"dataset": DATASETS, "split": SPLITS, "depth": DEPTHS, "posterior": POSTERIORS},
    run,
    partial(draw_scores, COMPARISON),
    {
        "smoke": {**_SMOKE_GRID, "num_inducing": 10, "num_steps": 3, "test_samples": 5},
        # enough for the paper's ELBOs: datasets with more noise need more steps; wine has more rows and needs fewer
        "cpu": [
            {**_CPU, "dataset": ("boston", "concrete"), "posterior": ("global",), "num_steps": 8000},
            {**_CPU, "dataset": ("boston", "concrete"), "posterior": ("dsvi", "local"), "num_steps": 3000},
            {**_CPU, "dataset": ("energy", "yacht"), "num_steps": 3000},
            {**_CPU, "dataset": ("wine",), "num_steps": 1500},
        ],
    },
    COMPARISON,
    remarks="The paper uses 20,000 steps. The settings of the cpu preset (learning rate, initial precisions) were chosen "
    "by the ELBO on the training rows of split 0 of yacht, energy and boston. So were the 8,000 steps of global on boston "
    "and concrete, on their split 0: -0.32 and -0.39 nats per data point after 3,000 steps, -0.23 and -0.37 after 8,000. "
    "Where a posterior is short of the paper, the likely cause is the smaller number of steps.",
    exists=has_split,
)
