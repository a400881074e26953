"""Initial inducing points, chosen from the training data."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from inducing.checks import check_finite, check_known, check_rows, check_seed, check_tensor, check_whole
from inducing.extras import require
from inducing.linalg.noise import seeded
from inducing.nn.posteriors import DEFAULT_NUM_INDUCING

Method = Literal["first", "random", "kmeans"]


class InducingPoints(NamedTuple):
    """Initial values for `Network(inducing_points=..., inducing_targets=...)`."""

    points: Float[Tensor, "M *in"]
    targets: Tensor


def choose_inducing_points(
    x: Float[Tensor, "N *in"],
    y: Tensor,
    num_inducing: int | Literal["auto"] = "auto",
    method: Method = "kmeans",
    *,
    seed: int = 0,
) -> InducingPoints:
    """Choose inducing points from the training data, with their targets.

    Arguments:
        x: Training inputs.
        y: Training targets.
        num_inducing: Number of inducing points. "auto": 100, as in the estimators. At most the number of rows.
        method: "first" rows, "random" rows, or the rows nearest to the centres of "kmeans" clusters.
        seed: Random seed.

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
    check_known("method", method, get_args(Method))
    number = DEFAULT_NUM_INDUCING if num_inducing == "auto" else num_inducing
    number = min(check_whole("num_inducing", number, 'a whole number or "auto"'), len(x))
    if method == "first" or number == len(x):
        rows = torch.arange(number)
    elif method == "random":
        rows = torch.randperm(len(x), generator=seeded(seed, "inducing points"))[:number]
    else:
        rows = _nearest_to_centres(x, number, seed)
    rows = rows.to(x.device)
    return InducingPoints(x[rows].clone(), y[rows].clone())


def _nearest_to_centres(x: Tensor, number: int, seed: int) -> Tensor:
    """Return the index of the row nearest to each cluster centre. Unlike the centres, rows have targets."""
    table = x.flatten(1).double().cpu().numpy()
    require("sklearn")
    # here, since importing it takes half a second
    from sklearn.cluster import MiniBatchKMeans

    clusters = MiniBatchKMeans(number, random_state=seed, n_init=1, batch_size=max(1024, 4 * number)).fit(table)
    distances = np.linalg.norm(table - clusters.cluster_centers_[clusters.labels_], axis=1)
    order = np.lexsort((distances, clusters.labels_))
    _, first = np.unique(clusters.labels_[order], return_index=True)
    rows = order[first]
    # clusters may be empty if rows are duplicates; other rows replace them
    rest = np.setdiff1d(np.arange(len(table)), rows)
    filler = np.random.default_rng(seed).permutation(rest)[: number - len(rows)]
    return torch.from_numpy(np.sort(np.concatenate([rows, filler])))
