"""Boosted trees as tensors: fitted by scikit-learn, then saved, loaded and run without it.

Each row begins at the root of every tree. At a node it goes left if one of its inputs is at most a threshold, else right.
The values of the leaves at which it ends are summed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import KFold
from torch import Tensor, nn

from inducing.saving.registry import Tensors
from inducing.saving.values import shorten, take

FOLDS = 5
# rows that go through all trees at a time
BATCH_ROWS = 10_000
# the tensors of T trees with K nodes each and O predictions
SHAPES = {"feature": "TK", "threshold": "TK", "left": "TK", "right": "TK", "value": "TK", "output": "T", "start": "O"}


class BoostedTrees(nn.Module):
    """Sums of T trees with at most K nodes: rows (N, D) to predictions (N, O). A leaf is its own child on both sides.

    Arguments:
        feature: The input that each node compares.
        threshold: Its threshold.
        left: The next node for inputs up to the threshold.
        right: The next node for larger inputs.
        value: The value of each leaf.
        output: The prediction that each tree is a part of.
        start: The predictions without trees.
        depth: The largest number of comparisons between a root and a leaf.
    """

    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    value: Tensor
    output: Tensor
    start: Tensor

    def __init__(
        self,
        feature: Int64[Tensor, "T K"],
        threshold: Float[Tensor, "T K"],
        left: Int64[Tensor, "T K"],
        right: Int64[Tensor, "T K"],
        value: Float[Tensor, "T K"],
        output: Int64[Tensor, " T"],
        start: Float[Tensor, " O"],
        depth: int,
    ) -> None:
        super().__init__()
        nodes = {"feature": feature, "threshold": threshold, "left": left, "right": right, "value": value}
        for name, tensor in {**nodes, "output": output, "start": start}.items():
            self.register_buffer(name, tensor)
        self.depth = depth

    @property
    def num_outputs(self) -> int:
        """The number of predictions of a row."""
        return len(self.start)

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N O"]:
        tree = torch.arange(len(self.output), device=x.device)
        # not len(x), which would be a constant in an exported file
        node = torch.zeros(x.shape[0], len(tree), dtype=torch.int64, device=x.device)
        for _ in range(self.depth):
            goes_left = x.gather(1, self.feature[tree, node]) <= self.threshold[tree, node]
            node = torch.where(goes_left, self.left[tree, node], self.right[tree, node])
        return self.start.expand(x.shape[0], -1).index_add(1, self.output, self.value[tree, node])

    def predict(self, rows: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N O"]:
        """Predict any number of rows, in batches."""
        parts = torch.as_tensor(np.ascontiguousarray(rows)).split(BATCH_ROWS)
        return torch.cat([self(part) for part in parts]).numpy()

    def to_tensors(self) -> Tensors:
        """The trees as tensors with names."""
        return {f"trees.{name}": tensor for name, tensor in self.state_dict().items()} | {
            "trees.depth": torch.tensor(self.depth)
        }

    @classmethod
    def from_tensors(cls, tensors: Tensors, num_inputs: int) -> BoostedTrees:
        """The inverse of `to_tensors`. Tensors that do not fit each other are refused, since a file may hold anything."""
        own = {name.removeprefix("trees."): value for name, value in tensors.items() if name.startswith("trees.")}
        take(own, "boosted trees", **dict.fromkeys((*SHAPES, "depth"), Tensor))
        depth, sizes = own.pop("depth"), dict(zip("TK", own["value"].shape, strict=False)) | {"O": own["start"].numel()}
        ends = {"feature": num_inputs, "left": sizes.get("K", 0), "right": sizes.get("K", 0), "output": sizes["O"]}
        for name, axes in SHAPES.items():
            tensor, dtype = own[name], torch.int64 if name in ends else torch.float64
            if tensor.dtype != dtype or tensor.shape != tuple(sizes.get(axis) for axis in axes) or not tensor.numel():
                raise ValueError(f"{name} of boosted trees cannot be {tensor.dtype} {tuple(tensor.shape)}")
            in_range = _within(tensor, ends[name]) if name in ends else not tensor.isnan().any()
            if not in_range:
                raise ValueError(f"{name} of boosted trees of {num_inputs} inputs is out of range")
        # no path is longer than the number of nodes
        if depth.shape or depth.dtype != torch.int64 or not 0 <= depth < sizes["K"]:
            raise ValueError(f"the depth of trees with {sizes['K']} nodes cannot be {shorten(depth.tolist())}")
        return cls(**own, depth=int(depth))


def fit_trees(
    rows: Float[np.ndarray, "N D"],
    targets: Float[np.ndarray, "N O"],
    weights: Float[np.ndarray, " N"],
    copies: Int[np.ndarray, " N"],
) -> tuple[BoostedTrees, Float[np.ndarray, "N O"]]:
    """Fit boosted trees to each target, and predict each row by trees that were fitted without one copy of it.

    Missing targets (NaN) are left out.

    Arguments:
        rows: Distinct rows.
        targets: Their targets.
        weights: Their weights, of all copies together.
        copies: How often each occurs. Only ratios count: a table that is repeated as a whole is the table itself.
    """
    copies = copies // np.gcd.reduce(copies)
    found = [_fit_target(rows, y, weights, copies) for y in targets.T]
    return join_trees([model for model, _ in found]), np.column_stack([held_out for _, held_out in found])


def _fit_target(
    rows: Float[np.ndarray, "N D"],
    y: Float[np.ndarray, " N"],
    weights: Float[np.ndarray, " N"],
    copies: Int[np.ndarray, " N"],
) -> tuple[HistGradientBoostingRegressor, Float[np.ndarray, " N"]]:
    def fit(weights: Float[np.ndarray, " N"]) -> HistGradientBoostingRegressor:
        some = np.flatnonzero(weights)
        return HistGradientBoostingRegressor(random_state=0).fit(rows[some], y[some], weights[some])

    weights = np.where(np.isnan(y), 0.0, weights)
    observed = np.flatnonzero(weights)
    model = fit(weights)
    held_out = model.predict(rows)
    if len(observed) > 1:
        for _, fold in KFold(min(FOLDS, len(observed)), shuffle=True, random_state=0).split(observed):
            test, others = observed[fold], weights.copy()
            others[test] *= 1 - 1 / copies[test]
            held_out[test] = fit(others).predict(rows[test])
    return model, held_out


def join_trees(models: list[HistGradientBoostingRegressor]) -> BoostedTrees:
    """The trees of fitted models, each of which is one prediction."""
    trees = [(index, *iteration) for index, model in enumerate(models) for iteration in model._predictors]
    # trees with fewer nodes get unused ones
    places = max(len(tree.nodes) for _, tree in trees)
    nodes = np.zeros((len(trees), places), dtype=trees[0][1].nodes.dtype)
    is_leaf = np.ones(nodes.shape, dtype=bool)
    for row, (_, tree) in enumerate(trees):
        nodes[row, : len(tree.nodes)] = tree.nodes
        is_leaf[row, : len(tree.nodes)] = tree.nodes["is_leaf"]
    own = np.broadcast_to(np.arange(places), nodes.shape)

    def column(name: str, of_leaves: Any, dtype: type) -> Tensor:
        return torch.as_tensor(np.where(is_leaf, of_leaves, nodes[name]).astype(dtype))

    return BoostedTrees(
        feature=column("feature_idx", 0, np.int64),
        threshold=column("num_threshold", 0.0, np.float64),
        left=column("left", own, np.int64),
        right=column("right", own, np.int64),
        value=torch.as_tensor(np.where(is_leaf, nodes["value"], 0.0)),
        output=torch.tensor([index for index, _ in trees]),
        start=torch.as_tensor(np.concatenate([np.ravel(model._baseline_prediction) for model in models])),
        depth=max(tree.get_max_depth() for _, tree in trees),
    )


def _within(indices: Tensor, count: int) -> bool:
    return bool(((indices >= 0) & (indices < count)).all())
