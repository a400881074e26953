"""UCI regression with Bayesian neural networks: the paper's appendix "UCI results with Bayesian neural networks".

Nine datasets with the splits of Gal & Ghahramani, four posteriors, three priors. What to look for: the ELBO is much better
with global inducing points, in the last layer or in all. Small datasets have one inducing point for each row.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from torch import Tensor

import inducing
from inducing.experiments.engine import training
from inducing.experiments.uci_tables import uci_experiment
from inducing.nn.posteriors import Factorised, GlobalInducing, LocalInducing, Posterior


@dataclass(frozen=True, kw_only=True)
class Config(training.NetworkConfig):
    """The paper's settings: "UCI results with Bayesian neural networks", experimental details.

    Where the number of steps, batch size or learning rate is None, it is the paper's for the posterior; the latter two are
    chosen by `trials`. There is one inducing point for each training row, at most ``num_inducing``.
    """

    dataset: str = "boston"
    num_inducing: int = 10_000
    recipe: str = "paper:uci"
    num_steps: int | None = None


def trials(config: Config) -> list[Config]:
    """The paper's grid of learning rates and batch sizes, on split 0."""
    if None not in (config.num_steps, config.batch_size, config.learning_rate):
        return []
    factorised = config.posterior == "factorised"
    rates = (3e-4, 1e-3, 3e-3, 1e-2) if factorised else (3e-3, 1e-2)
    sizes = (32, 100, 500) if factorised else (10_000,)
    base = dataclasses.replace(config, split=0, num_steps=config.num_steps or (25_000 if factorised else 10_000))
    found = (
        dataclasses.replace(base, batch_size=base.batch_size or size, learning_rate=base.learning_rate or rate)
        for rate in rates
        for size in sizes
    )
    return list(dict.fromkeys(found))


def _network(config: Config, x: Tensor, y: Tensor) -> inducing.Network:
    initial, posteriors = training.initial_values(config, x, y), _posteriors(config)
    return inducing.models.mlp(x.shape[1], 1, config.widths, prior=config.prior, posterior=posteriors, **initial)


def _posteriors(config: Config) -> list[Posterior]:
    """A precision for each output; local reparameterisation if no layer needs whole functions."""
    below, _, last = config.posterior.partition("->")
    named: dict[str, Posterior] = {
        "factorised": Factorised(local_reparameterisation=config.posterior == "factorised"),
        "local": LocalInducing(precision="per_output"),
        "global": GlobalInducing("per_output"),
    }
    return [*[named[below]] * config.depth, named[last or below]]


UCI_BNN = uci_experiment("uci-bnn", Config(), _network, "prior", trials=trials)
