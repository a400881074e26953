"""Training on many rows, in stages. Rows that are held out of the first stages stop them and choose the temperature.

1. A plain network with the same layers is trained by maximum likelihood. The posterior starts at its weights: from a random
   start, training on thousands of rows takes many times as long, or ends at a constant.
2. The posterior is trained with several weights of the KL, from 0.3 down or up as long as the held-out rows are predicted
   better. On four datasets that no table reports, one split each, 0.3 was best on three (kin40k, pumadyn32nm, skillcraft)
   and 0.1 on one (sml).
3. The held-out rows return: the chosen network is trained on all rows for some more steps.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import Tensor

from inducing.inference.held_out import HeldOut
from inducing.inference.history import History
from inducing.inference.recipes import Recipe
from inducing.inference.row_file import RowFile
from inducing.inference.time_budget import Clock, measure_step
from inducing.inference.training import fit
from inducing.linalg.noise import seeded
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.nn.starting import point_weights, start_at

# inputs, targets and, if there are any, weights
Rows = tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]

HeldOutRows = tuple[Tensor, Tensor]

# weights of the KL to choose from, the one that is tried first, and how many are tried at most
TEMPERATURES, FIRST, MOST_TRIALS = (1.0, 0.3, 0.1, 0.03, 0.01), 1, 4
# shares of all steps: the plain network, each of at most four temperatures, all rows
PLAIN_SHARE, TEMPERATURE_SHARE, LAST_SHARE = 0.2, 0.15, 0.06
PLAIN_RATE, LAST_RATE = 2e-2, 2e-3
# held-out rows: a tenth, and not more than needed for a standard error of a few hundredths of a nat
HELD_OUT_SHARE, MOST_HELD_OUT = 0.1, 2000
# each stage scores the held-out rows this often, and stops after a number of scores without a better one
NUM_SCORES, PATIENCE, LEAST_INTERVAL = 40, 12, 25


class Trial(NamedTuple):
    """A trained network: the best score of held-out rows, the history, and the states of network and likelihood."""

    score: float
    history: History
    network: dict[str, Tensor]
    likelihood: dict[str, Tensor]


class Stages(NamedTuple):
    """The settings of all stages.

    Arguments:
        recipe: The settings of the second stage, with the number of steps of all stages together.
        seed: Seed of all stages.
        progress: Whether to show progress.
        name: Name of the run in the progress bar.
        clock: The time of all stages.
        checkpoint: Folder for the checkpoints of all stages. Default: no checkpoints.
    """

    recipe: Recipe
    seed: int
    progress: bool
    name: str
    clock: Clock
    checkpoint: Path | None = None

    def fit(
        self,
        network: Network,
        plain: Network,
        likelihood: Likelihood,
        data: Rows | RowFile,
        held_out: HeldOutRows | None = None,
    ) -> History:
        """Train the network and the likelihood, and return the history of the last two stages.

        Arguments:
            network: The network, with global inducing points.
            plain: The same layers with one set of weights.
            likelihood: The likelihood.
            data: The rows to train on.
            held_out: Inputs and targets of held-out rows. They do not return. Default: a share of the rows, if they are
                tensors.
        """
        if held_out is not None:
            train, rows = data, held_out
        else:
            assert not isinstance(data, RowFile)
            train, rows = split(data, self.seed)
        stages = self._limit(network, plain, likelihood, train, rows)
        # small outputs: the mean of the targets, and the initial noise
        with torch.no_grad():
            plain.get_parameter(f"{plain.layer_names[-1]}.posterior.scaled").mul_(0.1)
        stages._fit("a plain network", plain, likelihood, train, PLAIN_SHARE, rows, learning_rate=PLAIN_RATE)
        start_at(network, point_weights(plain))
        trials: dict[int, Trial] = {}

        def score(place: int) -> float:
            if place not in trials:
                if trials and self.clock.is_over():
                    return -math.inf
                trials[place] = stages._try(TEMPERATURES[place], network, likelihood, train, rows)
            return trials[place].score

        place = climb(score, FIRST, len(TEMPERATURES))
        chosen, history = TEMPERATURES[place], trials[place].history
        network.load_state_dict(trials[place].network)
        likelihood.load_state_dict(trials[place].likelihood)
        if train is data or self.clock.is_over():
            return history
        last = {"temperature": chosen, "learning_rate": LAST_RATE}
        return history.followed_by(stages._fit("all rows", network, likelihood, data, LAST_SHARE, None, **last))

    def _limit(
        self, network: Network, plain: Network, likelihood: Likelihood, data: Rows | RowFile, rows: HeldOutRows
    ) -> Stages:
        """The stages with as many steps as fit into the budget, if all temperatures are tried."""

        def seconds_per_step() -> float:
            settings = data, self.recipe, self.seed
            costs = [measure_step(self.clock, each, likelihood, *settings) for each in (plain, network)]
            start = time.perf_counter()
            HeldOut(*rows).score(network, likelihood, self.seed)
            scoring = (time.perf_counter() - start) / LEAST_INTERVAL
            return (
                PLAIN_SHARE * costs[0] + MOST_TRIALS * TEMPERATURE_SHARE * (costs[1] + scoring) + LAST_SHARE * costs[1]
            )

        return self._replace(recipe=self.clock.limit(self.recipe, seconds_per_step))

    def _try(
        self,
        temperature: float,
        network: Network,
        likelihood: Likelihood,
        data: Rows | RowFile,
        rows: HeldOutRows,
    ) -> Trial:
        """Train copies of the network and the likelihood with one weight of the KL."""
        trial, noise, stage = copy.deepcopy(network), copy.deepcopy(likelihood), f"temperature {temperature:g}"
        history = self._fit(stage, trial, noise, data, TEMPERATURE_SHARE, rows, temperature=temperature)
        # none if the time is up before the first one
        best = max((score for _, score in history.held_out), default=-math.inf)
        return Trial(best, history, trial.state_dict(), noise.state_dict())

    def _fit(
        self,
        stage: str,
        network: Network,
        likelihood: Likelihood,
        data: Rows | RowFile,
        share: float,
        rows: HeldOutRows | None,
        **changes: float,
    ) -> History:
        num_steps = max(1, round(share * self.recipe.num_steps))
        every = max(LEAST_INTERVAL, num_steps // NUM_SCORES)
        # a plain network has one function
        samples = 1 if share == PLAIN_SHARE else 20
        return fit(
            network,
            likelihood,
            data,
            # the held-out rows stop a stage
            self.recipe.replace(num_steps=num_steps, patience=None, **changes),
            validation=None if rows is None else HeldOut(*rows, every=every, patience=PATIENCE, num_samples=samples),
            seed=self.seed,
            callbacks=self.clock,
            progress=self.progress,
            description=f"{self.name}, {stage}",
            checkpoint=None if self.checkpoint is None else self.checkpoint / stage.replace(" ", "-"),
        )


def climb(score: Callable[[int], float], first: int, count: int) -> int:
    """Go from the first place upwards as long as the score increases; if it does not at once, downwards."""
    place = first
    for step in (1, -1):
        while 0 <= place + step < count and score(place) < score(place + step):
            place += step
        if place != first:
            return place
    return first


def split(data: Rows, seed: int) -> tuple[Rows, HeldOutRows]:
    """Divide the rows at random into those to train on, and the inputs and targets of held-out rows."""
    count = len(data[0])
    order = torch.randperm(count, generator=seeded(seed, "held-out rows"))
    num_held_out = min(MOST_HELD_OUT, round(HELD_OUT_SHARE * count))
    x, y = (tensor[order[:num_held_out]] for tensor in data[:2])
    return cast(Rows, tuple(tensor[order[num_held_out:]] for tensor in data)), (x, y)
