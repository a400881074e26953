"""Functions drawn from the posterior of an estimator, on the scales of the user's inputs and targets."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from inducing.checks import check_inputs
from inducing.nn.draw import FunctionSamples
from inducing.nn.likelihoods import Likelihood
from inducing.prediction.blended import blend
from inducing.prediction.predictive import Predictive
from inducing.prediction.running import run_functions
from inducing.threads import most_threads, using_threads

if TYPE_CHECKING:
    from inducing.estimators.predicting import PredictingEstimator
    from inducing.estimators.targets import LabelTargets, NumericTargets

# numbers in one batch of predictions
BATCH_NUMBERS = 2**23


class Functions(ABC):
    """Functions drawn from a posterior: rows (N, D) to values (S, N, ...)."""

    @property
    @abstractmethod
    def targets(self) -> NumericTargets | LabelTargets:
        """The encoding of the targets."""

    @property
    @abstractmethod
    def batch_size(self) -> int:
        """Number of rows in a batch of predictions, which bounds their memory."""

    @abstractmethod
    def predict_batches(self, X: Any, batch_size: int | None = None) -> Iterator[Predictive]:
        """The predictive distribution of the mixture of these functions, one batch of rows at a time."""

    @abstractmethod
    def _differentiable(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "S N *O"]:
        """The values of all functions at a tensor of rows."""

    @overload
    def __call__(self, X: Tensor) -> Float[Tensor, "S N *O"]: ...

    @overload
    def __call__(self, X: Any) -> Float[np.ndarray, "S N *O"]: ...

    def __call__(self, X: Any) -> Any:
        """Evaluate all functions at rows.

        Arrays and tables return an array. A tensor returns a tensor on its device and in its dtype, with gradients; text
        columns must then be encoded by the schema, as for `NetworkEstimator.export`.
        """
        if isinstance(X, Tensor):
            return self._differentiable(X)
        return self.collect(X, lambda predictive: predictive.function_means, 1)

    def collect(self, X: Any, statistic: Callable[[Predictive], Tensor], axis: int = 0) -> np.ndarray:
        """One statistic of the predictions of all rows, computed in batches to bound memory."""
        parts = []
        for predictive in self.predict_batches(X):
            with using_threads(most_threads()):
                parts.append(statistic(predictive))
        return self.targets.decode(torch.cat(parts, axis).numpy())

    def predict(self, X: Any) -> Predictive:
        """The predictive distribution of the mixture of these functions."""
        parts = list(self.predict_batches(X))
        return replace(parts[0], outputs=torch.cat([part.outputs for part in parts], 1))


@dataclass(frozen=True, eq=False)
class SampledFunctions(Functions):
    """Functions drawn from the posterior of an estimator: rows (N, D) to values (S, N, ...).

    Example:
        >>> import inducing, numpy as np, torch
        >>> X = np.random.default_rng(0).normal(size=(30, 2))
        >>> model = inducing.BNNRegressor([5], max_steps=10, random_state=0).fit(X, X[:, 0])
        >>> functions, x = model.sample_functions(4), torch.zeros(3, 2, requires_grad=True)
        >>> functions(x).sum().backward()
        >>> functions(X).shape, x.grad.shape
        ((4, 30), torch.Size([3, 2]))

    Arguments:
        estimator: The fitted estimator.
        functions: The drawn functions of the standardised inputs.
        likelihood: The likelihood of the fit.
        n_samples: S.
        seed: Seed of the draws.
    """

    estimator: PredictingEstimator
    functions: FunctionSamples
    likelihood: Likelihood
    n_samples: int
    seed: int

    @property
    def targets(self) -> NumericTargets | LabelTargets:
        return self.estimator.targets_

    @property
    def batch_size(self) -> int:
        return max(1, BATCH_NUMBERS // (int(self.n_samples) * self.estimator._width()))

    def predict_batches(self, X: Any, batch_size: int | None = None) -> Iterator[Predictive]:
        estimator = self.estimator
        likelihood, location, scale = estimator.targets_.to_original_scale(self.likelihood)
        rows = estimator._encode(X, reset=False)
        for batch in np.array_split(rows, max(1, math.ceil(len(rows) / (batch_size or self.batch_size)))):
            outputs = run_functions(self.functions, estimator.inputs_.apply(batch, torch.float64)).cpu()
            yield Predictive(outputs, likelihood, location, scale, self.seed)

    def _differentiable(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "S N *O"]:
        estimator, scale = self.estimator, self.estimator.inputs_
        check_inputs(x, (estimator.num_encoded,), x.dtype if x.is_floating_point() else torch.float64, "X")
        further, rows = estimator._further_inputs, x.cpu().double()
        if further is not None:
            rows = torch.cat([rows, further(rows)], 1)
        rows = scale.apply(rows, torch.float64).to(self.functions.device)
        predictive = Predictive(
            self.functions(rows).cpu(), *estimator.targets_.to_original_scale(self.likelihood), self.seed
        )
        return estimator.targets_.decode(predictive.function_means).to(x)


@dataclass(frozen=True, eq=False)
class BlendedFunctions(Functions):
    """Functions drawn from the posteriors of several estimators.

    Arguments:
        members: The functions of each estimator.
    """

    members: tuple[SampledFunctions, ...]

    @property
    def targets(self) -> NumericTargets | LabelTargets:
        return self.members[0].targets

    @property
    def batch_size(self) -> int:
        return min(member.batch_size for member in self.members)

    def predict_batches(self, X: Any, batch_size: int | None = None) -> Iterator[Predictive]:
        batches = (member.predict_batches(X, batch_size or self.batch_size) for member in self.members)
        return map(blend, zip(*batches, strict=True))

    def _differentiable(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "S N *O"]:
        return torch.cat([member._differentiable(x) for member in self.members])
