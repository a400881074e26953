"""The optimiser of a training run: Adam, or one of the user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import LBFGS, Adam, Optimizer

from inducing.errors import CheckpointError

# of the learned parameters
MakeOptimizer = Callable[[list[nn.Parameter]], Optimizer]


def adam(parameters: list[nn.Parameter], learning_rate: float) -> Adam:
    """The default optimiser."""
    return Adam(parameters, lr=learning_rate, fused=True)


def own_optimizer(make: MakeOptimizer, parameters: list[nn.Parameter]) -> Optimizer:
    """Create the optimiser of the user. Raise an error if `fit` cannot use it."""
    optimizer = make(parameters) if callable(make) else make
    if not isinstance(optimizer, Optimizer) or isinstance(make, Optimizer):
        raise TypeError(
            "optimizer must be a function of the learned parameters that returns a torch.optim.Optimizer, e.g. "
            f"optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3), got {type(make).__name__}"
        )
    if isinstance(optimizer, LBFGS):
        raise TypeError(
            "LBFGS evaluates the loss several times in a step, and each draw of a network gives another loss"
        )
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if {*map(id, held)} != {*map(id, parameters)}:
        raise ValueError(
            f"optimizer must hold the {len(parameters)} learned parameters that it is given, but holds {len(held)}. To fix "
            "parameters, use requires_grad_(False) before fit"
        )
    rates = [group.get("lr") for group in optimizer.param_groups]
    if not all(isinstance(rate, float | int) and rate > 0 for rate in rates):
        raise ValueError(f"each group of the optimizer must have a learning rate lr > 0, got {rates}")
    return optimizer


def check_settings(changes: dict[str, Any], checkpoint: str | Path | None) -> None:
    """Raise an error for arguments of `fit` that an optimiser of the user excludes."""
    if checkpoint is not None:
        raise CheckpointError(
            "checkpoints hold the state of Adam only, so a run with an optimizer of your own could not be continued. Leave "
            "out checkpoint or optimizer"
        )
    if "learning_rate" in changes:
        raise ValueError("got learning_rate and an optimizer, which has its own. Set lr in the optimizer")
