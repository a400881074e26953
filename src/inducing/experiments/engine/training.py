"""Train a network with the settings of a configuration, and score it. The split is the seed of everything."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from inducing.experiments.engine.experiment import Metrics
from inducing.inference.batches import Augment
from inducing.inference.history import History
from inducing.inference.objective import ELBOTerms, evaluate
from inducing.inference.recipes import Recipe, as_recipe
from inducing.inference.training import fit
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.prediction.metrics import log_likelihood, rmse
from inducing.prediction.predictive import Predictive

# fields of a configuration that are settings of its recipe
RECIPE_FIELDS = ("num_steps", "batch_size", "learning_rate", "schedule", "kl_warmup_epochs", "temperature")


@runtime_checkable
class TrainingConfig(Protocol):
    """The fields that every configuration has. A configuration is a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    @property
    def dataset(self) -> str: ...
    @property
    def split(self) -> int: ...
    @property
    def posterior(self) -> str: ...
    @property
    def num_inducing(self) -> int: ...
    @property
    def recipe(self) -> str: ...
    @property
    def test_samples(self) -> int: ...


def recipe_of(config: TrainingConfig) -> Recipe:
    """The recipe named by a configuration, with the settings of the configuration."""
    fields = dataclasses.asdict(config)
    changes = {name: fields[name] for name in RECIPE_FIELDS if name in fields}
    if "train_samples" in fields:
        changes["num_samples"] = fields["train_samples"]
    return as_recipe(config.recipe).replace(**changes)


def initial_values(config: TrainingConfig, x: Tensor, y: Tensor) -> dict[str, Any]:
    """Arguments of a model: inducing points at the first rows of the data, and a generator with the seed of the run."""
    return {
        "inducing_points": x[: config.num_inducing],
        "inducing_targets": y[: config.num_inducing],
        "generator": torch.Generator().manual_seed(config.split),
    }


class Trained(NamedTuple):
    """The record of training, and the terms of the ELBO after it."""

    history: History
    terms: ELBOTerms

    @property
    def nats(self) -> Metrics:
        """The ELBO and its two parts, per data point."""
        elbo = float(self.terms.elbo_per_datapoint)
        log_likelihood = float(self.terms.log_likelihood.mean()) / self.terms.num_data
        return {"elbo_per_datapoint": elbo, "log_likelihood": log_likelihood, "kl": log_likelihood - elbo}


def train_and_score(
    network: Network,
    likelihood: Likelihood,
    data: tuple[Tensor, Tensor],
    config: TrainingConfig,
    checkpoint: Path | None,
    progress: bool,
    *,
    recipe: Recipe | None = None,
    augment: Augment | None = None,
    score_batch: int | None = None,
) -> Trained:
    """Train a network and evaluate its ELBO.

    Arguments:
        network: The network.
        likelihood: The likelihood.
        data: Training inputs and targets.
        config: The configuration of the run.
        checkpoint: Folder for checkpoints.
        progress: Whether to show progress.
        recipe: The recipe. Default: that of the configuration.
        augment: Random augmentation of the inputs of each batch.
        score_batch: Batch size of the evaluation. Default: all rows.
    """
    history = fit(
        network,
        likelihood,
        data,
        recipe or recipe_of(config),
        seed=config.split,
        augment=augment,
        checkpoint=checkpoint,
        progress=progress,
        description=f"{config.dataset} {config.posterior}",
    )
    terms = evaluate(network, likelihood, data, config.test_samples, config.split, batch_size=score_batch)
    return Trained(history, terms)


def held_out_scores(predictive: Predictive, y: Tensor) -> Metrics:
    """The log-likelihood and the RMSE of held-out targets."""
    return {"test_log_likelihood": log_likelihood(predictive, y), "rmse": rmse(predictive, y)}


def rounded(values: Tensor) -> list[float]:
    """A curve for the store."""
    return [round(value, 5) for value in values.tolist()]
