"""Choosing inducing points for the user: where they start, and how many are worth their time."""

from __future__ import annotations

import itertools
import logging
import math
import time
import warnings
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from inducing.checks import check_finite, check_rows, check_seed, check_tensor, check_whole
from inducing.inference.recipes import FAST
from inducing.linalg.noise import seeded

Method = Literal["first", "random", "kmeans"]
logger = logging.getLogger("inducing")


class InducingPoints(NamedTuple):
    """First values for `Network(inducing_points=..., inducing_targets=...)`."""

    points: Float[Tensor, "M *in"]
    targets: Tensor


def choose_inducing_points(
    x: Float[Tensor, "N *in"],
    y: Tensor,
    num_inducing: int | Literal["auto"] = "auto",
    method: Method = "kmeans",
    *,
    time_budget: float = 60.0,
    hidden: Sequence[int] = (50, 50),
    seed: int = 0,
) -> InducingPoints:
    """Choose inducing points from the training data, with their targets.

    Arguments:
        x: Training inputs.
        y: Training targets.
        num_inducing: Their number, at most that of the rows; "auto" takes what a training run of ``time_budget`` seconds
            allows on this machine as busy as it is, and says so in the log ("inducing", level INFO).
        method: "first" rows, "random" rows, or the rows nearest to the centres of "kmeans" clusters.
        time_budget: Seconds that training may take, for "auto".
        hidden: Widths of the network's hidden layers, for "auto".
        seed: Seed of the choice.

    Example:
        >>> import inducing, torch
        >>> x, y = torch.randn(200, 3), torch.randn(200, 1)
        >>> points, targets = inducing.choose_inducing_points(x, y, num_inducing=20)
        >>> points.shape, targets.shape
        (torch.Size([20, 3]), torch.Size([20, 1]))
    """
    x, y = check_tensor("x", x), check_tensor("y", y)
    check_rows(x, y)
    check_finite("x", x)
    seed = check_seed(seed)
    if method not in get_args(Method):
        raise ValueError(f"unknown method {method!r}; known are {', '.join(get_args(Method))}")
    if num_inducing == "auto":
        number = _affordable(len(x), x[0].numel(), hidden, time_budget)
    else:
        number = check_whole("num_inducing", num_inducing, 'a whole number or "auto"')
    number = min(number, len(x))
    if method == "first" or number == len(x):
        rows = torch.arange(number)
    elif method == "random":
        rows = torch.randperm(len(x), generator=seeded(seed, "inducing points"))[:number]
    else:
        rows = _nearest_to_centres(x, number, seed)
    rows = rows.to(x.device)
    return InducingPoints(x[rows].clone(), y[rows].clone())


def _nearest_to_centres(x: Tensor, number: int, seed: int) -> Tensor:
    """One row for each cluster, the nearest to its centre: real rows have real targets, and no two are the same."""
    table = x.flatten(1).double().cpu().numpy()
    # here, since it takes half a second to import
    from sklearn.cluster import MiniBatchKMeans

    clusters = MiniBatchKMeans(number, random_state=seed, n_init=1, batch_size=max(1024, 4 * number)).fit(table)
    distances = np.linalg.norm(table - clusters.cluster_centers_[clusters.labels_], axis=1)
    order = np.lexsort((distances, clusters.labels_))
    _, first = np.unique(clusters.labels_[order], return_index=True)
    rows = order[first]
    # clusters of duplicates may be empty: fill up with other rows
    rest = np.setdiff1d(np.arange(len(table)), rows)
    filler = np.random.default_rng(seed).permutation(rest)[: number - len(rows)]
    return torch.from_numpy(np.sort(np.concatenate([rows, filler])))


def _affordable(num_data: int, features: int, hidden: Sequence[int], time_budget: float) -> int:
    """The largest M for which the "fast" recipe with shared precisions fits into the budget."""
    steps, passes = FAST.num_steps, 3
    samples = sum(FAST.samples_at(step) for step in range(steps)) / steps
    rate = _operations_per_second()
    widths = [features, *hidden, 1]
    # a row costs 2 F O operations to propagate and, if inducing, 2 F^2 in the regression
    propagate = sum(2 * a * b for a, b in itertools.pairwise(widths))
    regress = sum(2 * a * a for a in widths[:-1])
    factorise = sum(a**3 for a in widths[:-1])
    scale = steps * samples * passes / rate
    fixed = scale * (num_data * propagate + factorise)
    affordable = max(1, math.floor((time_budget - fixed) / (scale * (propagate + regress))))
    # timing is noisy: a power of two is the same the next time, as a rule
    affordable = 2 ** math.floor(math.log2(affordable))
    number = min(num_data, max(affordable, min(num_data, 20)))
    if fixed >= time_budget:
        warnings.warn(
            f"the data alone are expected to take {fixed:.0f} s, more than the time budget of {time_budget:.0f} s, with "
            f"however few inducing points; {number} are taken. Lower batch_size, or allow more time",
            stacklevel=3,
        )
    logger.info(
        "num_inducing='auto': %d of %d rows; %d steps are expected to take about %.0f s, with a budget of %.0f s",
        number,
        num_data,
        steps,
        fixed + scale * number * (propagate + regress),
        time_budget,
    )
    return number


def _operations_per_second() -> float:
    """What small matrix products reach on this machine, a few milliseconds to find out."""
    size, repeats = 64, 50
    matrix = torch.ones(10, size, size)
    torch.bmm(matrix, matrix)
    start = time.perf_counter()
    for _ in range(repeats):
        torch.bmm(matrix, matrix)
    elapsed = time.perf_counter() - start
    # factorisations, elementwise work and overheads take most of a step: a tenth of the rate of plain products
    return 0.1 * repeats * 10 * 2 * size**3 / elapsed
