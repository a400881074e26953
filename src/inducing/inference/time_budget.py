"""Training within a number of seconds.

A few steps on copies of the model measure the time of a step. The number of steps is then what fits into the budget, so that
the schedule ends with it. A clock stops the training if that estimate was too low.
"""

from __future__ import annotations

import copy
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from inducing.files import write_atomically
from inducing.inference.batches import Data
from inducing.inference.history import Record
from inducing.inference.parallel.ranks import join
from inducing.inference.recipes import Recipe
from inducing.inference.training import fit
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network

# steps that are measured, and the share of the budget that they may take
TRIAL_STEPS, TRIAL_SHARE = 20, 0.05
# share of the remaining time that the steps are planned for: the time of steps varies
PLANNED_SHARE = 0.9


def check_time_budget(seconds: Any) -> float:
    """Check that a time budget is a positive number of seconds, and return it."""
    is_number = isinstance(seconds, int | float | np.number) and not isinstance(seconds, bool)
    if not (is_number and seconds > 0):
        raise ValueError(f"time_budget must be a positive number of seconds, got {seconds!r}")
    return seconds


@dataclass
class Clock:
    """The time of a training that has a budget: a callback of `fit` that stops it, and a choice of the number of steps.

    Arguments:
        seconds: The budget. None: no limit.
        folder: Where to remember the chosen number of steps for a continued run. Default: nowhere.
    """

    seconds: float | None
    folder: Path | None = None
    is_limiting: bool = field(default=False, init=False)
    start: float = field(default_factory=time.perf_counter, init=False)

    def __post_init__(self) -> None:
        if self.seconds is not None:
            check_time_budget(self.seconds)

    @property
    def remaining(self) -> float:
        """Seconds until the end of the budget."""
        return float("inf") if self.seconds is None else self.seconds - (time.perf_counter() - self.start)

    def is_over(self) -> bool:
        """Whether the budget is used up. All ranks get the same answer."""
        if self.seconds is None:
            return False
        (over,) = join().maximum(self.remaining <= 0)
        self.is_limiting |= bool(over)
        return bool(over)

    def __call__(self, record: Record) -> bool:
        """Stop the training when the budget is used up."""
        self.is_limiting |= self.remaining <= 0
        return self.remaining <= 0

    def limit(self, recipe: Recipe, seconds_per_step: Callable[[], float]) -> Recipe:
        """The recipe with as many of its steps as fit into the budget."""
        if self.seconds is None:
            return recipe
        steps = join().broadcast(self._recall() or self._plan(recipe.num_steps, seconds_per_step))
        if self.folder is not None and join().first:
            write_atomically(self.folder / "steps.json", json.dumps(steps).encode())
        self.is_limiting |= steps < recipe.num_steps
        return recipe.replace(num_steps=min(steps, recipe.num_steps))

    def _plan(self, num_steps: int, seconds_per_step: Callable[[], float]) -> int:
        cost = seconds_per_step()
        return max(1, int(min(num_steps, PLANNED_SHARE * self.remaining / cost)))

    def _recall(self) -> int | None:
        """The steps that an interrupted run had chosen."""
        try:
            return None if self.folder is None else int(json.loads((self.folder / "steps.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None


def measure_step(
    clock: Clock, network: Network, likelihood: Likelihood, data: Data, recipe: Recipe, seed: int
) -> float:
    """Measure the seconds of a gradient step, on copies of the network and the likelihood.

    The first training of a process is slow, since it loads parts of torch. What it takes beyond the time of its steps is
    added to the budget.
    """
    trial, start = Clock(max(TRIAL_SHARE * clock.remaining, 1e-3)), time.perf_counter()
    copies = copy.deepcopy(network), copy.deepcopy(likelihood)
    short = recipe.replace(num_steps=TRIAL_STEPS, early_samples=None, patience=None)
    with warnings.catch_warnings():
        # the training itself warns, too
        warnings.simplefilter("ignore")
        history = fit(*copies, data, short, seed=seed, callbacks=_from_second(trial), progress=False)
    first, last = history[0].seconds, history[-1].seconds
    cost = (last - first) / (len(history) - 1)
    clock.start += max(time.perf_counter() - start - len(history) * cost, 0.0)
    return cost


def _from_second(clock: Clock) -> Callable[[Record], bool]:
    """A callback that lets the first two steps happen, whatever they take, and starts the clock after the first."""

    def stop(record: Record) -> bool:
        if record.step == 1:
            clock.start = time.perf_counter()
            return False
        return clock(record)

    return stop
