"""The networks inside the estimators, with the constructors that scikit-learn reads the parameters from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from torch import Generator, Tensor

from inducing.checks import check_whole
from inducing.data.schema import Schema
from inducing.estimators.base import NetworkEstimator, is_auto
from inducing.inference.recipes import FAST, Recipe, as_recipe
from inducing.nn.fans import Prior
from inducing.nn.kernels import Kernel, Stationary, as_kernel
from inducing.nn.likelihoods import Gaussian, HeteroscedasticGaussian
from inducing.nn.models import deep_gp, mlp
from inducing.nn.network import Network
from inducing.nn.posteriors import GlobalInducing, OptimalInducing, Posterior

# The "fast" recipe for the networks of tables: fewer posterior samples, fewer steps.
BNN_FAST = FAST.replace(num_steps=1000, num_samples=4, early_samples=None, whole_last_kl=True)
BNN_CLASSES_FAST = BNN_FAST.replace(num_steps=1500, temperature=0.1, whole_last_kl=False)
DEEP_GP_FAST = FAST.replace(num_steps=1500, num_samples=2, early_samples=None)
# more steps raise neither the ELBO nor the log-likelihood of other rows
DEEP_GP_CLASSES_FAST = DEEP_GP_FAST.replace(num_steps=1000)
# Neural networks get a cold posterior: with the whole KL they learn too little from few rows. The weight of the KL is a
# tenth for classes, and for regression grows with the rows from a tenth up to 1. That was decided on sets of which none is
# in the table of benchmarks/estimators.py, by benchmarks/estimator_defaults.py. Recipe(...) has the whole KL.
ROWS_FOR_WHOLE_KL = 1750
LEAST_TEMPERATURE = 0.1
# Up to so many rows all of them are inducing points of a regression with Gaussian noise, and the last layer is exact.
EXACT_ROWS = 1000
# First variance of hidden Gaussian processes around their mean function: higher ELBOs after as many steps than with 1.
HIDDEN_VARIANCE = 0.1


class BNN(NetworkEstimator):
    """Estimators around a fully connected Bayesian neural network."""

    def __init__(
        self,
        hidden: Sequence[int] = (50, 50),
        *,
        posterior: Posterior | str | Sequence[Posterior | str] = "auto",
        prior: Prior | str = "scale",
        num_inducing: int | Literal["auto"] = "auto",
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

    def _network(
        self, features: int, outputs: int, points: Tensor, targets: Tensor, exact: bool, generator: Generator
    ) -> Network:
        return mlp(
            features,
            outputs,
            self.hidden,
            prior=self.prior,
            posterior=self._posteriors(exact) if is_auto(self.posterior) else self.posterior,
            inducing_points=points,
            inducing_targets=targets,
            learn_inducing_locations=not exact,
            generator=generator,
        )

    def _posteriors(self, exact: bool) -> list[Posterior]:
        """Global inducing points, with an exact last layer on top if that is asked for."""
        depends = isinstance(self.likelihood_, HeteroscedasticGaussian)
        last = OptimalInducing(heteroscedastic=depends) if exact else GlobalInducing()
        return [GlobalInducing() for _ in self.hidden] + [last]

    def _takes_all(self, rows: int) -> bool:
        asked = is_auto(self.posterior) and is_auto(self.num_inducing) and not self.warm_start
        few = asked and rows <= EXACT_ROWS and isinstance(self.likelihood_, Gaussian | HeteroscedasticGaussian)
        return few or self._asked_optimum() is not None

    def _recipe(self, num_data: float) -> Recipe:
        if self.recipe != "fast":
            return as_recipe(self.recipe)
        if self._has_classes:
            return BNN_CLASSES_FAST
        return BNN_FAST.replace(temperature=min(1.0, max(LEAST_TEMPERATURE, num_data / ROWS_FOR_WHOLE_KL)))

    def _width(self) -> int:
        return max([*map(int, self.hidden), self.n_features_in_])


class DeepGP(NetworkEstimator):
    """Estimators around a deep Gaussian process."""

    def __init__(
        self,
        num_layers: int = 2,
        *,
        kernel: Kernel | str = "squared-exponential",
        posterior: Posterior | str | Sequence[Posterior | str] = "auto",
        num_inducing: int | Literal["auto"] = "auto",
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

    def _network(
        self, features: int, outputs: int, points: Tensor, targets: Tensor, exact: bool, generator: Generator
    ) -> Network:
        return deep_gp(
            features,
            outputs,
            self.num_layers,
            kernel=self._kernels(),
            posterior="global" if is_auto(self.posterior) else self.posterior,
            inducing_points=points,
            inducing_targets=targets,
            learn_inducing_locations=not exact,
            generator=generator,
        )

    def _kernels(self) -> Kernel | list[Kernel]:
        kernel = as_kernel(self.kernel)
        num_layers = check_whole("num_layers", self.num_layers)
        if not (isinstance(self.kernel, str) and isinstance(kernel, Stationary)):
            return kernel
        # hidden processes begin near the identity, which learns faster
        hidden = dataclasses.replace(kernel, variance=HIDDEN_VARIANCE)
        return [*[hidden] * (num_layers - 1), kernel]

    def _takes_all(self, rows: int) -> bool:
        # only if asked: it costs the cube of the rows in every step
        return self._asked_optimum() is not None

    def _recipe(self, num_data: float) -> Recipe:
        if self.recipe != "fast":
            return as_recipe(self.recipe)
        return DEEP_GP_CLASSES_FAST if self._has_classes else DEEP_GP_FAST

    def _width(self) -> int:
        # random features of the prior, for the whole function of each layer
        return 512 + (self.network_.num_first_points or 0)
