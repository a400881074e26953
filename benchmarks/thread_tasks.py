"""Worker: one task with the threads that this process was started with; see benchmarks/threads.py."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import asdict

import numpy as np
import torch
from sklearn.datasets import load_diabetes
from threadpoolctl import threadpool_info

import inducing
from benchmarks.measure import Timing

# 442 rows of 10 columns
X, Y = load_diabetes(return_X_y=True)


def fit_network(quick: bool) -> Callable[[], object]:
    """60 steps of a Bayesian neural network on diabetes."""
    return lambda: inducing.BNNRegressor(max_steps=2 if quick else 60, random_state=0).fit(X, Y)


def fit_deep_gp(quick: bool) -> Callable[[], object]:
    """20 steps of a deep Gaussian process on diabetes."""
    return lambda: inducing.DeepGPRegressor(max_steps=2 if quick else 20, random_state=0).fit(X, Y)


def fit_resnet8(quick: bool) -> Callable[[], object]:
    """10 steps of a ResNet-8 with 8 channels on batches of 32 images of 3 x 32 x 32."""
    torch.manual_seed(0)
    images, labels = torch.randn(64, 3, 32, 32), torch.randint(0, 10, (64,))
    network = inducing.models.resnet8(channels=8, inducing_points=images[:20], inducing_targets=labels[:20])
    likelihood = inducing.Categorical()
    settings = {"num_samples": 1, "batch_size": 32, "num_steps": 1 if quick else 10, "early_samples": None}
    return lambda: inducing.fit(network, likelihood, (images, labels), progress=False, **settings)


def predict(quick: bool) -> Callable[[], object]:
    """Means of a fitted Bayesian neural network at 4,420 rows."""
    estimator = inducing.BNNRegressor(max_steps=2, random_state=0).fit(X, Y)
    rows = np.tile(X, (1 if quick else 10, 1))
    return lambda: estimator.predict(rows)


TASKS = {"bnn-fit": fit_network, "deep-gp-fit": fit_deep_gp, "resnet8-fit": fit_resnet8, "predict": predict}


def openmp_runtime() -> str:
    """Name of the OpenMP library that torch has loaded."""
    return (
        ", ".join(sorted({found["prefix"] for found in threadpool_info() if found["user_api"] == "openmp"})) or "none"
    )


def main() -> None:
    """Do a small version of the task, then the task itself with the clock, and print the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    make = TASKS[arguments.task]
    make(quick=True)()
    work, timing = make(arguments.quick), Timing()
    for _ in range(arguments.runs):
        timing.record(work)
    found = {"threads": torch.get_num_threads(), "wait_policy": os.environ.get("OMP_WAIT_POLICY", "not set")}
    print(json.dumps(asdict(timing) | {"openmp": openmp_runtime()} | found))
