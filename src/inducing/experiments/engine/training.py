"""Train a network with the settings of a configuration, and score it. The split is the seed of everything."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from inducing.experiments.engine.experiment import Metrics
from inducing.inference.history import History
from inducing.inference.objective import ELBOTerms, evaluate
from inducing.inference.training import fit
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.prediction.metrics import log_likelihood, rmse
from inducing.prediction.predictive import Predictive

# fields of a configuration that are settings of its recipe
RECIPE_FIELDS = ("num_steps", "batch_size", "learning_rate", "schedule", "kl_warmup_epochs", "temperature")


def initial_values(config: Any, x: Tensor, y: Tensor) -> dict[str, Any]:
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
    config: Any,
    checkpoint: Path | None,
    progress: bool,
    score_batch: int | None = None,
    **settings: Any,
) -> Trained:
    """Train a network and evaluate its ELBO.

    Arguments:
        network: The network.
        likelihood: The likelihood.
        data: Training inputs and targets.
        config: The configuration of the run.
        checkpoint: Folder for checkpoints.
        progress: Whether to show progress.
        score_batch: Rows at a time in the evaluation; None for all.
        settings: Further arguments of `fit`. They win over those of the configuration.
    """
    fields = dataclasses.asdict(config)
    changes = {name: fields[name] for name in RECIPE_FIELDS if name in fields}
    if "train_samples" in fields:
        changes["num_samples"] = config.train_samples
    arguments = {"recipe": config.recipe, "description": f"{config.dataset} {config.posterior}", **changes, **settings}
    history = fit(network, likelihood, data, seed=config.split, checkpoint=checkpoint, progress=progress, **arguments)
    terms = evaluate(network, likelihood, data, config.test_samples, config.split, batch_size=score_batch)
    return Trained(history, terms)


def held_out_scores(predictive: Predictive, y: Tensor) -> Metrics:
    """The log-likelihood and the RMSE of held-out targets."""
    return {"test_log_likelihood": log_likelihood(predictive, y), "rmse": rmse(predictive, y)}


def rounded(values: Tensor) -> list[float]:
    """A curve for the store."""
    return [round(value, 5) for value in values.tolist()]
