"""Train a network with the settings of a configuration, and score it. The split is the seed of everything."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import inducing
from inducing import metrics
from inducing.experiments.engine.experiment import Metrics
from inducing.inference.batches import Augment
from inducing.inference.history import Record
from inducing.inference.recipes import as_recipe
from inducing.nn.likelihoods import Likelihood
from inducing.nn.posteriors import GlobalInducing, Posterior
from inducing.nn.posteriors.pseudo_likelihood import PrecisionKind


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The settings that every experiment has. An experiment adds its own, and sets the paper's values as defaults.

    Arguments:
        dataset: Name of the data.
        posterior: Name of the posterior.
        num_inducing: Number of inducing points.
        recipe: Name of the recipe.
        num_steps: Number of gradient steps. None: it depends on the posterior.
        batch_size: Number of rows in a batch. None: that of the recipe.
        learning_rate: Initial learning rate. None: that of the recipe.
        train_samples: Number of posterior samples in each step. None: that of the recipe.
        test_samples: Number of posterior samples of the ELBO and of predictions.
        split: Number of the split of the data, and the seed of the run.
        kl_warmup_fraction: Fraction of the steps in which the weight of the KL increases from 0 to 1. Default: that of the
            recipe.
        doublings: How often the number of steps may be doubled until training has converged on split 0. None: no check.
    """

    dataset: str
    posterior: str = "global"
    num_inducing: int = 100
    recipe: str
    num_steps: int | None
    batch_size: int | None = None
    learning_rate: float | None = None
    train_samples: int | None = 10
    test_samples: int = 100
    split: int = 0
    kl_warmup_fraction: float | None = None
    doublings: int | None = None


@dataclass(frozen=True, kw_only=True)
class NetworkConfig(TrainingConfig):
    """The settings of an experiment with fully connected networks.

    Arguments:
        prior: Name of the prior.
        width: Number of units in each hidden layer.
        depth: Number of hidden layers.
    """

    prior: str = "neal"
    width: int = 50
    depth: int = 2

    @property
    def widths(self) -> list[int]:
        """The number of units in each hidden layer."""
        return [self.width] * self.depth


def recipe_of(config: TrainingConfig) -> inducing.Recipe:
    """The recipe named by a configuration, with the settings of the configuration."""
    settings = dataclasses.asdict(config) | {"num_samples": config.train_samples}
    known = {field.name for field in dataclasses.fields(inducing.Recipe)}
    changes = {name: value for name, value in settings.items() if name in known and value is not None}
    return as_recipe(config.recipe).replace(**changes)


def initial_values(config: TrainingConfig, x: Tensor, y: Tensor) -> dict[str, Any]:
    """Arguments of a model: inducing points at the first rows of the data, and a generator with the seed of the run."""
    return {
        "inducing_points": x[: config.num_inducing],
        "inducing_targets": y[: config.num_inducing],
        "generator": torch.Generator().manual_seed(config.split),
    }


def posteriors(
    config: TrainingConfig, num_hidden: int, hidden_log_precision: float, precision: PrecisionKind
) -> str | list[Posterior]:
    """The posterior named by a configuration. Hidden layers with global inducing points have their own initial precision."""
    if config.posterior != "global":
        return config.posterior
    return [*[GlobalInducing(precision, hidden_log_precision)] * num_hidden, GlobalInducing(precision)]


class Trained(NamedTuple):
    """The record of training, and the terms of the ELBO after it."""

    history: inducing.History
    terms: inducing.ELBOTerms

    @property
    def nats(self) -> Metrics:
        """The ELBO and its two parts, per data point."""
        elbo = float(self.terms.elbo_per_datapoint)
        log_likelihood = float(self.terms.log_likelihood.mean()) / self.terms.num_data
        return {"elbo_per_datapoint": elbo, "log_likelihood": log_likelihood, "kl": log_likelihood - elbo}


def train_and_score(
    network: inducing.Network,
    likelihood: Likelihood,
    data: tuple[Tensor, Tensor],
    config: TrainingConfig,
    checkpoint: Path | None,
    progress: bool,
    *,
    recipe: inducing.Recipe | None = None,
    augment: Augment | None = None,
    autocast: str | None = None,
    callbacks: Sequence[Callable[[Record], bool | None]] = (),
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
        autocast: Name of the dtype in which training runs the data, see `torch.autocast`. Default: that of the network.
            Draws, the ELBO and predictions are always in the dtype of the network.
        callbacks: Functions that are called after each step.
        score_batch: Batch size of the evaluation. Default: all rows.
    """
    with nullcontext() if autocast is None else torch.autocast(network.device.type, getattr(torch, autocast)):
        history = inducing.fit(
            network,
            likelihood,
            data,
            recipe or recipe_of(config),
            seed=config.split,
            augment=augment,
            callbacks=callbacks,
            checkpoint=checkpoint,
            progress=progress,
            description=f"{config.dataset} {config.posterior}",
        )
    terms = inducing.evaluate(network, likelihood, data, config.test_samples, config.split, batch_size=score_batch)
    return Trained(history, terms)


def held_out_scores(predictive: inducing.Predictive, y: Tensor) -> Metrics:
    """The log-likelihood and the RMSE of held-out targets."""
    return {"test_log_likelihood": metrics.log_likelihood(predictive, y), "rmse": metrics.rmse(predictive, y)}


def rounded(values: Tensor) -> list[float]:
    """A curve for the store."""
    return [round(value, 5) for value in values.tolist()]
