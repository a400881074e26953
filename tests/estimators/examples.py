"""Rows for regression, and settings for quick fits."""

import numpy as np

import inducing

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(3.0, 2.0, (60, 2))
Y = 100 + 20 * np.sin(X[:, 0]) + RANDOM.normal(size=60)
BOTH = np.stack([Y, -3 * Y + X[:, 1]], 1)
REGRESSORS = [inducing.BNNRegressor, inducing.DeepGPRegressor]
SMALL = {"likelihood": "gaussian", "num_inducing": 15, "n_samples": 20, "max_steps": 30, "random_state": 0}


class NeverFitted(inducing.BNNRegressor):
    """A regressor that fails the test if it is fitted."""

    def fit(self, *arguments, **settings):
        raise AssertionError("it is fitted before the data are checked")
