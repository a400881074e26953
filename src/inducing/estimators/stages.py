"""Training on many rows, in stages. Rows that are held out of the first stages stop them, and choose the temperature.

1. A plain network with the same layers is trained by maximum likelihood. The posterior starts at its weights: from a random
   start, training on thousands of rows takes many times as long, or ends at a constant.
2. The posterior is trained briefly with several weights of the KL, from 0.3 down or up as long as the held-out rows are
   predicted better. On four datasets that no table reports, one split each, 0.3 was best on three (kin40k, pumadyn32nm,
   skillcraft) and 0.1 on one (sml).
3. The best of them is trained for longer.
4. The noise and the precisions of the posterior are multiplied by factors that the held-out rows choose.
5. The held-out rows return: the network is trained on all rows for some more steps, which leave noise and precisions as they
   are.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, cast

import torch
from torch import Tensor

from inducing.estimators.calibrating import find_factors, freeze_noise_and_precisions
from inducing.estimators.training import Rows, Training
from inducing.inference.held_out import HeldOut
from inducing.inference.history import History
from inducing.inference.row_file import RowFile
from inducing.linalg.noise import seeded
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.nn.starting import point_weights, start_at

# weights of the KL to choose from, the one that is tried first, and how many are tried at most
TEMPERATURES, FIRST, MOST_TRIALS = (1.0, 0.3, 0.1, 0.03, 0.01), 1, 4
# shares of all steps: the plain network, each of at most four temperatures, the best of them, all rows
PLAIN_SHARE, TEMPERATURE_SHARE, LONG_SHARE, LAST_SHARE = 0.2, 0.1, 0.34, 0.06
PLAIN_RATE, LONG_RATE, LAST_RATE = 2e-2, 7e-3, 2e-3
# logarithm of the initial precision of the pseudo-outputs: this, or more if the noise is so small that draws with this
# precision would be far apart in comparison
LOG_PRECISION, LOG_PRECISION_TIMES_NOISE = 5.0, -1.0
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

    def load(self, network: Network, likelihood: Likelihood) -> History:
        """Give a network and a likelihood these states, and return the history."""
        network.load_state_dict(self.network)
        likelihood.load_state_dict(self.likelihood)
        return self.history


def fit_in_stages(training: Training, network: Network, plain: Network, likelihood: Likelihood) -> History:
    """Train the network and the likelihood, and return the history of the chosen temperature and of the stages after it.

    Arguments:
        training: The rows and settings. Its recipe is that of the second stage, with the number of steps of all stages
            together. Its held-out rows do not return; if there are none, a share of the rows is held out.
        network: The network, with global inducing points.
        plain: The same layers with one set of weights.
        likelihood: The likelihood.
    """
    rows, returns = training.held_out, training.held_out is None
    first = training
    if rows is None:
        assert not isinstance(training.data, RowFile)
        data, rows = split(training.data, training.seed)
        first = replace(training, data=data)
    assert not isinstance(rows, HeldOut)
    stages = Stages(_limited(first, network, plain, likelihood, rows), rows)
    # small outputs: the mean of the targets, and the initial noise
    with torch.no_grad():
        plain.get_parameter(f"{plain.layer_names[-1]}.posterior.scaled").mul_(0.1)
    # it has only one function to score
    stages.fit("a plain network", plain, likelihood, PLAIN_SHARE, 1, learning_rate=PLAIN_RATE)
    start_at(network, point_weights(plain), _initial_log_precision(plain, likelihood, rows[0][:MOST_HELD_OUT]))
    trials: dict[int, Trial] = {}

    def score(place: int) -> float:
        if place not in trials:
            if trials and training.clock.is_over():
                return -math.inf
            stage, changes = f"temperature {TEMPERATURES[place]:g}", {"temperature": TEMPERATURES[place]}
            trials[place] = stages.fit_copies(stage, network, likelihood, TEMPERATURE_SHARE, **changes)
        return trials[place].score

    place = find_peak(score, FIRST, len(TEMPERATURES))
    history, changes = trials[place].load(network, likelihood), {"temperature": TEMPERATURES[place]}
    if not training.clock.is_over():
        changes["learning_rate"] = LONG_RATE
        longer = stages.fit_copies("the best temperature", network, likelihood, LONG_SHARE, **changes)
        if longer.score > trials[place].score:
            history = history.followed_by(longer.load(network, likelihood))
    if not training.clock.is_over():
        some = HeldOut.from_rows(_take(rows, slice(MOST_HELD_OUT)))
        find_factors(network, likelihood, some, training.seed).apply(network, likelihood)
    if returns and not training.clock.is_over():
        last = Stages(replace(stages.training, data=training.data), None)
        changes["learning_rate"] = LAST_RATE
        with freeze_noise_and_precisions(network, likelihood):
            history = history.followed_by(last.fit("all rows", network, likelihood, LAST_SHARE, **changes))
    return history


class Stages(NamedTuple):
    """Stages with the same rows.

    Arguments:
        training: The rows and settings, with the number of steps of all stages together.
        rows: Held-out rows, which stop each stage, if there are any.
    """

    training: Training
    rows: Rows | None

    def fit_copies(self, stage: str, network: Network, likelihood: Likelihood, share: float, **changes: float) -> Trial:
        """Train copies of the network and the likelihood with a share of the steps."""
        trial, noise = copy.deepcopy(network), copy.deepcopy(likelihood)
        history = self.fit(stage, trial, noise, share, **changes)
        # none if the time is up before the first one
        best = max((score for _, score in history.held_out), default=-math.inf)
        return Trial(best, history, trial.state_dict(), noise.state_dict())

    def fit(
        self,
        stage: str,
        network: Network,
        likelihood: Likelihood,
        share: float,
        num_draws: int = 20,
        /,
        **changes: float,
    ) -> History:
        """Train with a share of the steps. The scores of held-out rows are means over a number of posterior draws."""
        training = self.training
        num_steps = max(1, round(share * training.recipe.num_steps))
        every = max(LEAST_INTERVAL, num_steps // NUM_SCORES)
        folder, held_out = training.checkpoint, None if self.rows is None else HeldOut.from_rows(self.rows)
        training = replace(
            training,
            held_out=held_out and replace(held_out, every=every, patience=PATIENCE, num_samples=num_draws),
            name=f"{training.name}, {stage}",
            checkpoint=None if folder is None else folder / stage.replace(" ", "-"),
        )
        # the held-out rows stop a stage
        recipe = training.recipe.replace(num_steps=num_steps, patience=None, **changes)
        return training.fit(network, likelihood, recipe)


def _limited(training: Training, network: Network, plain: Network, likelihood: Likelihood, rows: Rows) -> Training:
    """With as many steps as fit into the time budget, if all temperatures are tried."""

    def seconds_per_step() -> float:
        of_plain, of_network = (training.seconds_per_step(each, likelihood) for each in (plain, network))
        start = time.perf_counter()
        HeldOut.from_rows(rows).score(network, likelihood, training.seed)
        scoring = (time.perf_counter() - start) / LEAST_INTERVAL
        trials = (MOST_TRIALS * TEMPERATURE_SHARE + LONG_SHARE) * (of_network + scoring)
        return PLAIN_SHARE * of_plain + trials + LAST_SHARE * of_network

    return replace(training, recipe=training.clock.limit(training.recipe, seconds_per_step))


def _initial_log_precision(plain: Network, likelihood: Likelihood, x: Tensor) -> float:
    """Logarithm of the initial precision of the pseudo-outputs, by the noise that the plain network has learned."""
    if likelihood.support != "real":
        return LOG_PRECISION
    with torch.no_grad():
        noise = likelihood.variance(plain.draw(1)(x.to(plain.device))).median()
    return max(LOG_PRECISION, LOG_PRECISION_TIMES_NOISE - math.log(noise))


def find_peak(score: Callable[[int], float], first: int, count: int) -> int:
    """Return the index below ``count`` at which the score stops to increase, searching upwards, and else downwards."""
    index = first
    for step in (1, -1):
        while 0 <= index + step < count and score(index) < score(index + step):
            index += step
        if index != first:
            return index
    return first


def split(data: Rows, seed: int) -> tuple[Rows, Rows]:
    """Divide the rows at random into those to train on, and held-out rows.

    A target that is observed only in rows that would be held out is trained on, so they are not held out.
    """
    count = len(data[0])
    order = torch.randperm(count, generator=seeded(seed, "held-out rows"))
    num_held_out = min(MOST_HELD_OUT, round(HELD_OUT_SHARE * count))
    held, kept = order[:num_held_out], order[num_held_out:]
    observed = ~data[1].reshape(count, -1).isnan()
    needed = (observed[held] & ~observed[kept].any(0)).any(1)
    held, kept = held[~needed], torch.cat([held[needed], kept])
    return _take(data, kept), _take(data, held)


def _take(rows: Rows, which: Tensor | slice) -> Rows:
    return cast(Rows, tuple(tensor[which] for tensor in rows))
