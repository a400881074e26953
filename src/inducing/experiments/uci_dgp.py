"""UCI regression with deep Gaussian processes: the paper's appendix "UCI results with deep Gaussian processes".

Nine sets with the splits of Gal & Ghahramani, depths 2 to 5, and four posteriors on the same model. The paper has three of
them; coupled inducing points are ours to add, since they differ from global ones in the one thing that the paper argues for.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from inducing.data import uci
from inducing.experiments.experiment import Experiment, Metrics
from inducing.experiments.uci_tables import UCITable, figures_of
from inducing.inference.training import fit
from inducing.nn.likelihoods import Gaussian
from inducing.nn.models import deep_gp
from inducing.nn.posteriors import GlobalInducing, Posterior

POSTERIORS = ("dsvi", "local", "global", "coupled")


@dataclass(frozen=True)
class Config:
    """The paper's settings: "UCI results with deep Gaussian processes" and "Additional experimental details".

    ``own_inducing`` says where inducing inputs begin that a layer learns for itself: from N(0, 1), as the paper's local
    inducing points, or at rows of the data as those of the other posteriors.
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


def run(config: Config, checkpoint: Path | None = None, progress: bool = True) -> Metrics:
    """Fit one deep Gaussian process to one split. The split is also the seed."""
    data = uci.load(config.dataset, config.split)
    x, y = data.x_train, data.y_train
    likelihood = Gaussian()
    at_data = config.posterior != "local" or config.own_inducing == "data"
    points = {"inducing_points": x[: config.num_inducing], "inducing_targets": y[: config.num_inducing]}
    network = deep_gp(
        x.shape[1],
        1,
        config.depth,
        kernel=config.kernel,
        posterior=_posteriors(config),
        **(points if at_data else {"num_inducing": config.num_inducing}),
        generator=torch.Generator().manual_seed(config.split),
    )
    history = fit(
        network,
        likelihood,
        (x, y),
        config.recipe,
        num_steps=config.num_steps,
        num_samples=config.train_samples,
        early_samples=None,
        seed=config.split,
        checkpoint=checkpoint,
        progress=progress,
        description=f"{config.dataset} {config.split} {config.posterior} {config.depth}",
    )
    return figures_of(network, likelihood, data, history, config.test_samples, config.split)


def _posteriors(config: Config) -> str | list[Posterior | str]:
    if config.posterior != "global":
        return config.posterior
    hidden = GlobalInducing(log_precision=config.hidden_log_precision)
    return [*[hidden] * (config.depth - 1), GlobalInducing()]


TABLE = UCITable(
    "uci-dgp",
    "Deep Gaussian processes on UCI regression",
    "depth",
    (2, 3, 4, 5),
    POSTERIORS,
    lambda dataset, depth: ("uci_dgp", dataset, str(depth)),
    """\
The paper's steps are 20,000. `coupled` is not in the paper; the paper's RMSE on wine, printed as 0.06, is left out. The
settings of the cpu preset (rates, first precisions) were chosen by the ELBO on the training rows of split 0 of yacht, energy
and boston; the 8,000 steps of global on boston and concrete too, by split 0: -0.32 and -0.39 nats per data point after 3,000
steps, -0.23 and -0.37 after 8,000. Where a posterior stays below the paper, fewer steps are the likely cause.""",
)

_CPU: dict[str, Any] = {
    "split": (0, 1, 2),
    "depth": (2,),
    "posterior": ("dsvi", "local", "global"),
    "own_inducing": "data",
    "recipe": "fast",
    "hidden_log_precision": 2.0,
    "train_samples": 2,
}

UCI_DGP = Experiment(
    "uci-dgp",
    "the paper's tables of deep Gaussian processes on UCI regression, depths 2 to 5",
    Config,
    {
        "dataset": tuple(uci.FOLDERS),
        "split": tuple(range(20)),
        "depth": (2, 3, 4, 5),
        "posterior": POSTERIORS,
    },
    run,
    TABLE.report,
    {
        "smoke": {
            "dataset": ("yacht",),
            "split": (0,),
            "depth": (2,),
            "num_inducing": 10,
            "num_steps": 3,
            "test_samples": 5,
        },
        # what reaches the paper's ELBOs: sets with more noise need more steps, wine has more rows and needs fewer
        "cpu": [
            {**_CPU, "dataset": ("boston", "concrete"), "posterior": ("global",), "num_steps": 8000},
            {**_CPU, "dataset": ("boston", "concrete"), "posterior": ("dsvi", "local"), "num_steps": 3000},
            {**_CPU, "dataset": ("energy", "yacht"), "num_steps": 3000},
            {**_CPU, "dataset": ("wine",), "num_steps": 1500},
        ],
    },
    lambda config: config.dataset != "protein" or config.split < 5,
    comparison=TABLE.comparison,
)
