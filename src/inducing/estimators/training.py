"""The settings of the training of an estimator: rows, recipe, time budget, callbacks, checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from inducing.inference.callbacks import Callback
from inducing.inference.held_out import HeldOut
from inducing.inference.history import History
from inducing.inference.recipes import Recipe
from inducing.inference.row_file import RowFile
from inducing.inference.time_budget import Clock, measure_step
from inducing.inference.training import fit
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network

# inputs, targets and, if there are any, weights
Rows = tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]


def count_rows(data: Rows | RowFile) -> int:
    """The number of rows, whatever their weights."""
    return len(data if isinstance(data, RowFile) else data[0])


@dataclass(frozen=True, eq=False)
class Training:
    """Rows to train on, and settings.

    Arguments:
        data: The rows.
        recipe: The recipe.
        held_out: Rows that stop the training, if there are any.
        seed: Seed of the training.
        clock: The time budget.
        callbacks: Functions that are called after each step, as in `inducing.fit`.
        checkpoint: Folder for checkpoints. Default: no checkpoints.
        progress: Whether to show progress.
        name: Name of the training in the progress bar.
    """

    data: Rows | RowFile
    recipe: Recipe
    held_out: Rows | HeldOut | None
    seed: int
    clock: Clock
    callbacks: Callback | Sequence[Callback] = ()
    checkpoint: Path | None = None
    progress: bool = False
    name: str = ""

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return count_rows(self.data)

    def fit_in_time(self, network: Network, likelihood: Likelihood) -> History:
        """Train with as many steps as fit into the time budget."""
        recipe = self.clock.limit(self.recipe, lambda: self.seconds_per_step(network, likelihood))
        return self.fit(network, likelihood, recipe)

    def fit(self, network: Network, likelihood: Likelihood, recipe: Recipe) -> History:
        """Train with a recipe."""
        return fit(
            network,
            likelihood,
            self.data,
            recipe,
            validation=self.held_out,
            seed=self.seed,
            callbacks=[*([self.callbacks] if callable(self.callbacks) else self.callbacks), self.clock],
            checkpoint=self.checkpoint,
            progress=self.progress,
            description=self.name,
        )

    def seconds_per_step(self, network: Network, likelihood: Likelihood) -> float:
        """Measure the time of a step, on copies of the network and the likelihood."""
        return measure_step(self.clock, network, likelihood, self.data, self.recipe, self.seed)
