"""Regressors of other packages, with predictive distributions: `pip install -c constraints.txt "inducing[peers]"`.

Ridge regression and boosted trees of scikit-learn (`inducing.tables.baselines`) have one variance for all rows, from
cross-validation. The Gaussian process has a constant times an RBF kernel and white noise, by maximum likelihood from five
starts. CatBoost and NGBoost predict a variance for each row; a tenth of the training rows decides when they stop.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import inducing
from inducing.nn.likelihoods.heteroscedastic import outputs_of
from inducing.tables.baselines import boosted_trees, ridge

# training rows of the Gaussian process, at most: its cost is cubic
MOST_GP_ROWS = 2000
STALE_ROUNDS = 50


def gaussian_process(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, seed: int) -> inducing.Predictive:
    """A Gaussian process with one length scale."""
    scale = StandardScaler().fit(x)
    kernel = ConstantKernel() * RBF() + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=4, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(scale.transform(x), y)
    return by_row(*model.predict(scale.transform(x_test), return_std=True), y)


def catboost(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, seed: int) -> inducing.Predictive:
    """CatBoost with a Gaussian likelihood."""
    from catboost import CatBoostRegressor

    settings = {"allow_writing_files": False, "thread_count": 1, "verbose": False, "random_seed": seed}
    x, held_x, y, held_y = train_test_split(x, y, test_size=0.1, random_state=seed)
    model = CatBoostRegressor(loss_function="RMSEWithUncertainty", od_type="Iter", od_wait=STALE_ROUNDS, **settings)
    model.fit(x, y, eval_set=(held_x, held_y))
    mean, variance = model.predict(x_test).T
    return by_row(mean, np.sqrt(variance), y)


def ngboost(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, seed: int) -> inducing.Predictive:
    """NGBoost with a Gaussian likelihood."""
    from ngboost import NGBRegressor

    x, held_x, y, held_y = train_test_split(x, y, test_size=0.1, random_state=seed)
    model = NGBRegressor(verbose=False, random_state=seed, n_estimators=2000)
    model.fit(x, y, X_val=held_x, Y_val=held_y, early_stopping_rounds=STALE_ROUNDS)
    found = model.pred_dist(x_test)
    return by_row(found.loc, found.scale, y)


def by_row(mean: np.ndarray, deviation: np.ndarray, y: np.ndarray) -> inducing.Predictive:
    """One Gaussian for each row, as a mixture of a single draw."""
    noise = inducing.HeteroscedasticGaussian(1.0, learn_variance=False).double()
    moments = mean / y.std(), np.maximum(deviation / y.std(), 1e-6) ** 2
    outputs = outputs_of(*(torch.from_numpy(np.ascontiguousarray(each))[:, None] for each in moments))[None]
    return inducing.Predictive(outputs, noise).unstandardise(0.0, y.std())


PEERS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray, int], inducing.Predictive]] = {
    "Ridge": lambda x, y, x_test, seed: ridge(x, y[:, None], x_test),
    "BoostedTrees": lambda x, y, x_test, seed: boosted_trees(x, y[:, None], x_test),
    "CatBoost": catboost,
    "NGBoost": ngboost,
    "GaussianProcess": gaussian_process,
}
