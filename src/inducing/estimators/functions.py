"""Functions drawn from the posterior of an estimator."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.utils import check_random_state

from inducing.nn.draw import FunctionSamples
from inducing.nn.likelihoods import Likelihood


@dataclasses.dataclass(frozen=True, eq=False)
class SampledFunctions:
    """Functions drawn from the posterior of an estimator: rows (N, D) to values (S, N, ...).

    Arguments:
        estimator: The `NetworkEstimator` that they were drawn from.
        functions: The drawn functions of the standardised inputs.
        likelihood: What gives the mean of the targets.
        n_samples: S.
    """

    estimator: Any
    functions: FunctionSamples
    likelihood: Likelihood
    n_samples: int

    def __call__(self, X: Any) -> Float[np.ndarray, "S N *O"]:
        """Run all functions on rows as `predict` takes them."""
        rows = self.estimator._encode(X, reset=False)
        parts = [
            self.estimator._values(self.estimator._predictive(outputs, self.likelihood))
            for outputs in self.estimator._run(rows, self.functions, self.n_samples)
        ]
        return np.concatenate(parts, axis=1)


def seed_of(random_state: Any) -> int:
    """A whole number is a seed; anything else gives one as in scikit-learn, None another one each time."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
