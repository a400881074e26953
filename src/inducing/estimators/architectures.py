"""The networks inside the estimators, with the constructors that scikit-learn reads the parameters from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from inducing.data.schema import Schema
from inducing.estimators.base import NetworkEstimator
from inducing.inference.recipes import FAST, Recipe, as_recipe
from inducing.nn.fans import Prior
from inducing.nn.models import deep_gp, mlp
from inducing.nn.network import Network
from inducing.nn.posteriors import GlobalInducing, Posterior

# The "fast" recipe for the networks of tables: fewer posterior samples, fewer steps. Neural networks get a cold posterior: a
# fifth of the KL, and noise that is the same everywhere, predict rows that were not learned from best on the average. That
# was decided by benchmarks/estimator_defaults.py, on six sets of which none is in the table of benchmarks/estimators.py; a
# twentieth is far too sure of itself. Recipe(...) with a temperature of 1 has the whole KL.
BNN_FAST = FAST.replace(num_steps=1500, num_samples=4, early_samples=None, temperature=0.2)
DEEP_GP_FAST = FAST.replace(num_steps=2000, num_samples=2, early_samples=None)
# hidden processes begin nearer to deterministic than in the paper: they learn faster
HIDDEN_LOG_PRECISION = 2.0


class BNN(NetworkEstimator):
    """Estimators around a fully connected Bayesian neural network."""

    def __init__(
        self,
        hidden: Sequence[int] = (50, 50),
        *,
        posterior: Posterior | str | Sequence[Posterior | str] = "global",
        prior: Prior | str = "scale",
        num_inducing: int = 100,
        likelihood: str = "auto",
        recipe: Recipe | str = "fast",
        max_steps: int | None = None,
        batch_size: int = 1000,
        patience: int | None = 250,
        n_samples: int = 100,
        schema: Schema | None = None,
        warm_start: bool = False,
        random_state: Any = None,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:
        self.hidden = hidden
        self.posterior = posterior
        self.prior = prior
        self.num_inducing = num_inducing
        self.likelihood = likelihood
        self.recipe = recipe
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.patience = patience
        self.n_samples = n_samples
        self.schema = schema
        self.warm_start = warm_start
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _network(self, features: int, outputs: int, points: Tensor, targets: Tensor) -> Network:
        return mlp(
            features,
            outputs,
            self.hidden,
            prior=self.prior,
            posterior=self.posterior,
            inducing_points=points,
            inducing_targets=targets,
        )

    def _recipe(self) -> Recipe:
        return BNN_FAST if self.recipe == "fast" else as_recipe(self.recipe)

    def _width(self) -> int:
        return max(*self.hidden, self.n_features_in_) if self.hidden else self.n_features_in_


class DeepGP(NetworkEstimator):
    """Estimators around a deep Gaussian process."""

    def __init__(
        self,
        num_layers: int = 2,
        *,
        kernel: str = "squared-exponential",
        posterior: Posterior | str | Sequence[Posterior | str] = "global",
        num_inducing: int = 50,
        likelihood: str = "auto",
        recipe: Recipe | str = "fast",
        max_steps: int | None = None,
        batch_size: int = 1000,
        patience: int | None = 250,
        n_samples: int = 100,
        schema: Schema | None = None,
        warm_start: bool = False,
        random_state: Any = None,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:
        self.num_layers = num_layers
        self.kernel = kernel
        self.posterior = posterior
        self.num_inducing = num_inducing
        self.likelihood = likelihood
        self.recipe = recipe
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.patience = patience
        self.n_samples = n_samples
        self.schema = schema
        self.warm_start = warm_start
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _network(self, features: int, outputs: int, points: Tensor, targets: Tensor) -> Network:
        posterior = self.posterior
        if posterior == "global" and isinstance(self.num_layers, int):
            posterior = [GlobalInducing(log_precision=HIDDEN_LOG_PRECISION)] * (self.num_layers - 1) + ["global"]
        return deep_gp(
            features,
            outputs,
            self.num_layers,
            kernel=self.kernel,
            posterior=posterior,
            inducing_points=points,
            inducing_targets=targets,
        )

    def _recipe(self) -> Recipe:
        return DEEP_GP_FAST if self.recipe == "fast" else as_recipe(self.recipe)

    def _width(self) -> int:
        # random features of the prior, for the whole function of each layer
        return 512 + self.num_inducing
