"""The networks inside the estimators: Bayesian neural networks and deep Gaussian processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from sklearn.base import is_classifier

from inducing.checks import check_whole
from inducing.estimators.base import NetworkEstimator, is_auto
from inducing.estimators.likelihoods import Choice
from inducing.estimators.stages import fit_in_stages
from inducing.estimators.training import Training
from inducing.inference.history import History
from inducing.inference.recipes import FAST, Recipe
from inducing.nn.kernels import Kernel, Stationary, as_kernel
from inducing.nn.likelihoods import HeteroscedasticGaussian, HeteroscedasticStudentT, Likelihood, StudentT
from inducing.nn.models import deep_gp, mlp
from inducing.nn.models.dense import check_hidden
from inducing.nn.network import Network
from inducing.nn.posteriors import GlobalInducing, OptimalInducing, PointEstimate, Posterior
from inducing.nn.priors.base import Prior

# The recipe "fast" for tables: fewer posterior samples and fewer steps.
BNN_FAST = FAST.replace(num_steps=1000, num_samples=4, early_samples=None, whole_last_kl=True)
# half of the steps at 0.05 lost 0.025 nats of held-out log-likelihood on MNIST, a third 0.03 to 0.06
BNN_CLASSES_FAST = BNN_FAST.replace(num_steps=1500, temperature=0.1, whole_last_kl=False)
DEEP_GP_FAST = FAST.replace(num_steps=1500, num_samples=2, early_samples=None)
# more steps raise neither the ELBO nor the log-likelihood of held-out rows
DEEP_GP_CLASSES_FAST = DEEP_GP_FAST.replace(num_steps=1000)
# Regression on few rows: fewer and larger steps. The log-likelihood of held-out rows was 0.003 (BNN) and 0.005 nats (deep
# GP) lower in the mean of five sets with 400 rows, in two fifths and a third of the time (benchmarks/estimator_steps.py).
FEW_ROWS = 1000
BNN_FEW_ROWS = {"num_steps": 400, "learning_rate": 0.1}
DEEP_GP_FEW_ROWS = {"num_steps": 500, "learning_rate": 0.1}
# Degrees of freedom that are learned from few rows may fall to 2 at first, while no row is fitted well. Whole groups of rows
# are outliers then, and stay so: in two fits of energy the RMSE was two to four times as large, and the ELBO 0.3 nats a row
# lower. In the mean of six other datasets with at most 1,000 rows, neither is better.
FEW_ROWS_TAILS = {"learn_degrees_of_freedom": False}
# Neural networks use a cold posterior: with the whole KL they learn too little from few rows. The weight of the KL is 0.1
# for classes; for regression it grows with the number of rows from 0.1 to 1. It was chosen by
# benchmarks/estimator_defaults.py on datasets that are not in the table of benchmarks/estimators.py. A `Recipe` has the
# whole KL by default.
ROWS_FOR_WHOLE_KL = 1750
LEAST_TEMPERATURE = 0.1
# Neural networks on more rows are trained in stages, with a number of steps that grows with the fourth root of the rows.
STEPS_OF_STAGES = 1300
BNN_STAGES = FAST.replace(num_samples=1, early_samples=None, learning_rate=1e-2, optimal_start=False)
# Among many rows are some outliers, and one of them can cost more than the others gain. The log-likelihood of held-out rows
# was 0.04 nats higher than with Gaussian tails on training rows of power. On kin40k and skillcraft the difference was below
# 0.005.
MANY_ROWS_LIKELIHOOD = "heteroscedastic-student-t"
FEW_ROWS_HIDDEN, HIDDEN = (50, 50), (100, 100)
# more than the inputs of a hidden layer and its bias, so that the posterior can start at any weights
INDUCING_FOR_STAGES = 200
# Initial variance of hidden Gaussian processes around their mean function: higher ELBOs after as many steps than with 1.
HIDDEN_VARIANCE = 0.1


@dataclass(eq=False, repr=False)
class BNN(NetworkEstimator):
    """Estimators around a fully connected Bayesian neural network."""

    hidden: Sequence[int] | Literal["auto"] = "auto"
    _: KW_ONLY
    prior: Prior | str = "scale"

    auto_likelihood: ClassVar[str] = "heteroscedastic"
    exact_rows: ClassVar[int] = 1000

    def _make_network(self, features: int, outputs: int, num_rows: int, exact: bool, **settings: Any) -> Network:
        posterior, hidden = self.posterior, self._choose_hidden(num_rows)
        if is_auto(posterior):
            depends = isinstance(self.likelihood_, HeteroscedasticGaussian)
            last: Posterior = OptimalInducing(heteroscedastic=depends) if exact else GlobalInducing()
            posterior = [*(GlobalInducing() for _ in hidden), last]
        return mlp(features, outputs, hidden, prior=self.prior, posterior=posterior, **settings)

    def _choose_hidden(self, num_rows: int) -> list[int]:
        by_rows = HIDDEN if self._in_stages(num_rows) else FEW_ROWS_HIDDEN
        return check_hidden(by_rows if is_auto(self.hidden) else self.hidden)

    def _auto_likelihood(self, num_rows: int) -> str:
        return self.auto_likelihood if is_classifier(self) or not self._in_stages(num_rows) else MANY_ROWS_LIKELIHOOD

    def _count_inducing(self, num_rows: int) -> int | Literal["auto"]:
        in_stages = is_auto(self.num_inducing) and self._in_stages(num_rows)
        return INDUCING_FOR_STAGES if in_stages else self.num_inducing

    def _in_stages(self, num_rows: int) -> bool:
        """Whether training starts from a plain network."""
        return self.recipe == "fast" and is_auto(self.posterior) and not self.warm_start and num_rows > FEW_ROWS

    def _train(self, training: Training, network: Network, likelihood: Likelihood) -> History:
        if not self._in_stages(training.num_rows):
            return super()._train(training, network, likelihood)
        hidden, (features,), (outputs,) = (
            self._choose_hidden(training.num_rows),
            network.input_shape,
            network.output_shape,
        )
        generator = torch.Generator().manual_seed(self.seed_)
        plain = mlp(features, outputs, hidden, prior="standard", posterior=PointEstimate(), generator=generator)
        return fit_in_stages(training, network, plain.to(network.dtype).to(network.device), likelihood)

    def _fast_recipe(self, num_rows: int, num_data: float) -> Recipe:
        if self._in_stages(num_rows):
            return BNN_STAGES.replace(num_steps=round(STEPS_OF_STAGES * num_rows**0.25))
        if is_classifier(self):
            return BNN_CLASSES_FAST
        recipe = BNN_FAST.replace(**BNN_FEW_ROWS) if num_rows <= FEW_ROWS else BNN_FAST
        return recipe.replace(temperature=min(1.0, max(LEAST_TEMPERATURE, num_data / ROWS_FOR_WHOLE_KL)))

    def _width(self) -> int:
        widths = [layer.out_features for _, layer in self.network_.layers.bayesian_layers()]
        return max([*widths, self.n_features_in_])


@dataclass(eq=False, repr=False)
class DeepGP(NetworkEstimator):
    """Estimators around a deep Gaussian process."""

    num_layers: int = 2
    _: KW_ONLY
    kernel: Kernel | str = "squared-exponential"

    auto_likelihood: ClassVar[str] = "heteroscedastic-student-t"
    # none, since each step would cost the cube of the number of rows
    exact_rows: ClassVar[int] = 0

    def _make_network(self, features: int, outputs: int, num_rows: int, exact: bool, **settings: Any) -> Network:
        kernel: Kernel | list[Kernel] = as_kernel(self.kernel)
        num_layers = check_whole("num_layers", self.num_layers)
        if isinstance(self.kernel, str) and isinstance(kernel, Stationary):
            # hidden processes that start near the identity learn faster
            kernel = [*[replace(kernel, variance=HIDDEN_VARIANCE)] * (num_layers - 1), kernel]
        posterior = "global" if is_auto(self.posterior) else self.posterior
        return deep_gp(features, outputs, num_layers, kernel=kernel, posterior=posterior, **settings)

    def _choice(self, y: np.ndarray, weights: Float[np.ndarray, " N"], num_rows: int) -> Choice:
        choice = super()._choice(y, weights, num_rows)
        has_tails = issubclass(choice.likelihood, StudentT | HeteroscedasticStudentT)
        return choice._replace(settings=FEW_ROWS_TAILS) if has_tails and num_rows <= FEW_ROWS else choice

    def _fast_recipe(self, num_rows: int, num_data: float) -> Recipe:
        if is_classifier(self):
            return DEEP_GP_CLASSES_FAST
        return DEEP_GP_FAST.replace(**DEEP_GP_FEW_ROWS) if num_rows <= FEW_ROWS else DEEP_GP_FAST

    def _width(self) -> int:
        # random features of the prior for the function of each layer
        return 512 + (self.network_.num_initial_points or 0)
