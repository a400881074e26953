"""Fitting an estimator to rows in a file. A sample of them gives the scales and the initial inducing points.

Rows of the sample are held out: they stop the training and, in training by stages, choose the weight of the KL.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from inducing.checks import check_device, refuse_inference_mode
from inducing.estimators.base import NetworkEstimator
from inducing.estimators.stages import HELD_OUT_SHARE, MOST_HELD_OUT
from inducing.estimators.training import Rows
from inducing.inference.row_file import RowFile
from inducing.linalg.noise import seeded
from inducing.threads import threads_of_user, using_threads


def fit_file(
    estimator: NetworkEstimator,
    sample: tuple[Any, np.ndarray],
    num_rows: int,
    write: Callable[[Rows], RowFile],
    checkpoint: Callable[[RowFile], Path],
) -> NetworkEstimator:
    """Fit an estimator to rows in a file.

    Arguments:
        estimator: The estimator.
        sample: Inputs and targets of a sample of the rows, as in ``estimator.fit``.
        num_rows: Number of all rows.
        write: Writes the file, given those rows of the sample that are not held out. It may use the scales of the estimator.
        checkpoint: The folder of the checkpoints for a file.
    """
    X, y = sample
    refuse_inference_mode("fit")
    device = check_device(estimator.device)
    if estimator._optimal_posterior() is not None:
        raise ValueError("an optimal posterior needs all rows in memory. Choose another posterior")
    with using_threads(threads_of_user() or 1):
        rows, distinct, counts, _ = estimator._merge_rows(X, y, None, reset=True)
        estimator._build(rows, distinct, counts, num_rows)
        x = estimator.inputs_.apply(estimator._encode(X, reset=False, y=y), torch.float64)
        targets = estimator.targets_.encode(y)
        order = torch.randperm(len(x), generator=seeded(estimator.seed_, "held-out rows"))
        kept, held = order.split([len(x) - (out := min(MOST_HELD_OUT, round(HELD_OUT_SHARE * len(x)))), out])
        file = write((x[kept], targets[kept]))
        estimator.network_.to(device)
        estimator.likelihood_.to(device)
        estimator._run(file, float(len(file)), (x[held], targets[held]), checkpoint=checkpoint(file))
        # the sample stands for all rows
        weights = torch.full((len(x),), num_rows / len(x), dtype=torch.float64)
        estimator._evaluate((x, targets, weights))
    return estimator
