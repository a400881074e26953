"""The training loop: Adam on the negative ELBO."""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from inducing.checks import check_seed, check_whole, refuse_inference_mode
from inducing.errors import CheckpointError, DivergenceError, FactorisationError, RankError
from inducing.inference.batches import Augment, Batch, Data, augmented, batches
from inducing.inference.callbacks import Callback, as_functions_of_records
from inducing.inference.checkpoint import Checkpoints, resume
from inducing.inference.held_out import HeldOut
from inducing.inference.history import History, Record
from inducing.inference.identity import checksums
from inducing.inference.interrupts import Interrupts, interrupts, leave
from inducing.inference.objective import ELBO
from inducing.inference.optimal import check_optimum, start_optimally
from inducing.inference.optimizers import MakeOptimizer, check_settings, own_optimizer
from inducing.inference.parallel.division import Division, Parallel, check_parallel
from inducing.inference.parallel.ranks import ALONE, hide_warnings, join
from inducing.inference.progress import Update, progress_bar
from inducing.inference.recipes import Recipe, as_recipe
from inducing.inference.row_file import RowFile
from inducing.inference.run import Run, learned_parameters
from inducing.inference.state import TrainingState
from inducing.inference.validation import check_data, check_model, check_training_data, warn_of_problems
from inducing.memory import keeping_memory
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.threads import Work, available_cores, change_threads, threads_for, threads_of_user, using_threads

logger = logging.getLogger("inducing")


def fit(
    network: Network,
    likelihood: Likelihood,
    data: Data,
    recipe: Recipe | str = "fast",
    *,
    epochs: int | None = None,
    optimizer: MakeOptimizer | None = None,
    validation: HeldOut | tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor] | None = None,
    previous: Network | None = None,
    seed: int = 0,
    augment: Augment | None = None,
    callbacks: Callback | Sequence[Callback] = (),
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 30.0,
    progress: bool = True,
    description: str = "fit",
    parallel: Parallel | None = "data",
    **changes: Any,
) -> History:
    """Train a network and a likelihood: maximise the ELBO with Adam, or with an optimiser of your own.

    The same seed gives the same numbers on the same machine with the same number of threads and the same initial parameters.
    The number of threads is chosen from the work of the first step, which runs on one thread, and is stored in checkpoints.
    Set OMP_NUM_THREADS or call `torch.set_num_threads` for another number. Under `torchrun` all processes train one network:
    each computes a part of every step, and all end with the same parameters. After training, ``grad`` of the parameters is
    the gradient of the last step. No gradients are computed for the data.

    Arguments:
        network: The Bayesian network.
        likelihood: The distribution of the targets given the outputs of the network. Its parameters are learned, too.
        data: A pair (x, y) of tensors, a Dataset, or a DataLoader; or (x, y, weights), where each row's log-likelihood is
            multiplied by its weight. A row with weight 2 counts as two rows. NaN in some of several targets of a row
            are missing targets, which are left out.
        recipe: "fast", "paper", or a `Recipe`.
        epochs: Number of passes over the data, in place of ``num_steps``.
        optimizer: Function from the list of learned parameters to an optimiser, e.g. ``lambda parameters:
            torch.optim.AdamW(parameters, lr=1e-3)``. Its learning rates replace that of the recipe, and follow the schedule.
            It excludes checkpoints. Default: Adam.
        validation: Rows (x, y) or (x, y, weights) that are not trained on, or `HeldOut` with settings. Training ends with
            the parameters under which they had the highest log-likelihood, and stops early if that does not increase any
            more.
        previous: A fitted network whose posterior is used as the prior, as in Bayesian updating. Start from a copy of it,
            and pass new data only. In networks with Gaussian processes, kernels and inducing inputs must not be learned.
            `inducing.update` does all this.
        seed: Seed of the posterior samples and of the order of the data, an integer.
        augment: Random augmentation of the inputs of each batch, ``augment(x, generator)``, e.g.
            `inducing.data.images.augment`.
        callbacks: One function or several, called with the `Record` of each step. A function with three arguments is called
            with the record, the network and the likelihood, which it must not change. Training stops when one returns True.
        checkpoint: Folder for checkpoints. After an interruption the same call continues from the newest checkpoint, and
            ends with the result of an uninterrupted run. A finished run (all steps done, or stopped by a callback or by
            patience) is not trained again, unless ``num_steps`` is raised. With a constant schedule and neither
            ``early_samples``, ``kl_warmup_fraction`` nor ``validation`` the result is then that of a run with the larger
            number from the start. Otherwise these settings follow the new number from the current step on, and the last
            step of the shorter run keeps its score. All other settings must stay the same.
        checkpoint_seconds: Seconds between checkpoints.
        progress: Whether to show a progress bar, which needs the package rich, and to print from where a run continues.
        description: Name of the run in the progress bar.
        parallel: How several processes divide the work. "data": the rows of each batch, with independent posterior samples
            on each process. "samples": the posterior samples. "rows": the rows, with the same samples on each process,
            which gives the numbers of one process. None: this process trains alone. All processes must have the same data
            and settings. Only rank 0 shows progress, calls callbacks and writes checkpoints.
        changes: Settings that replace those of the recipe, e.g. ``num_steps=500, learning_rate=1e-3``. See `Recipe`.

    Returns:
        The history, with a `Record` for each step.
    """
    refuse_inference_mode("fit")
    check_model(network, likelihood)
    check_parallel(parallel)
    recipe, seed = as_recipe(recipe).replace(**changes), check_seed(seed)
    # only the first rows of a file are checked, and a target may be missing in all of them, as in all new data
    check = check_data if isinstance(data, RowFile) or previous is not None else check_training_data
    source = batches(data, recipe.batch_size, seed, lambda x, y: check(network, likelihood, x, y))
    if epochs is not None:
        if "num_steps" in changes:
            raise ValueError(f"got epochs={epochs} and num_steps={changes['num_steps']}; leave one of them out")
        recipe = recipe.replace(num_steps=check_whole("epochs", epochs) * source.steps_per_epoch)
    if augment is not None:
        source = augmented(source, augment, seed)
    elbo = ELBO(network, likelihood, source.num_data, previous)
    weights = check_optimum(network, data, source.num_data)
    ranks = ALONE if parallel is None else join()
    division = Division(ranks, parallel or "data")
    division.check(recipe)
    held_out = None if validation is None else HeldOut.of(validation, network, likelihood)
    learned, own = learned_parameters(elbo), None
    if optimizer is not None:
        check_settings(changes, checkpoint)
        own = own_optimizer(optimizer, learned)
        recipe = recipe.replace(learning_rate=own.param_groups[0]["lr"])
    run = Run(elbo, source, recipe, seed, division, held_out)
    state = TrainingState(learned, recipe.learning_rate, recipe.num_steps, len(network.layer_names), own)
    # new data may be few, and of one region
    if ranks.first and previous is None:
        warn_of_problems(network, likelihood, data, source.num_data)
    if network.optimal_last is not None:
        # an earlier fit may have set other weights
        network.optimal_last.set_row_weights(weights)
    with ExitStack() as stack:
        # the caller may be inside torch.no_grad
        stack.enter_context(torch.enable_grad())
        stack.enter_context(hide_warnings(not ranks.first))
        stack.enter_context(using_threads(1))
        stack.enter_context(keeping_memory())
        identity = run.identity(data, augment) if ranks.size > 1 or checkpoint is not None else {}
        if ranks.size > 1:
            _check_same_run(run, identity)
        checkpoints = None
        if checkpoint is not None and ranks.first:
            checkpoints = stack.enter_context(_checkpoints(Path(checkpoint), run, identity).locked())
        _initialise(run, state, checkpoints, progress)
        state.history.bound = elbo.name
        observers = Observers(
            as_functions_of_records(callbacks, network, likelihood),
            checkpoints,
            checkpoint_seconds,
            stack.enter_context(interrupts(enabled=checkpoint is not None)),
            stack.enter_context(progress_bar(description, recipe.num_steps, state.step, show=progress and ranks.first)),
        )
        try:
            _train(run, state, observers)
        except RankError as error:
            advice = "start again" if checkpoint is None else f"the same command continues from {checkpoint}"
            text = f"step {state.step + 1}, rank {ranks.rank} of {ranks.size}: {error}; {advice}"
            raise RankError(text) from error.__cause__
    state.load_best()
    if state.damping < 0.1 and ranks.first:
        warnings.warn(
            f"the step size was reduced to {state.damping:.1g} of the recipe's after {state.roll_backs} roll-backs, so "
            "training may be incomplete. Lower learning_rate, or standardise the data",
            stacklevel=2,
        )
    return state.history


@dataclass
class Observers:
    """Actions between steps: progress bar, callbacks, checkpoints and signals.

    Arguments:
        callbacks: Functions that are called with each record, on rank 0.
        checkpoints: Checkpoints of the run, or None without checkpoints and on ranks other than 0.
        checkpoint_seconds: Seconds between checkpoints.
        interrupts: Signals to this process.
        update_bar: Updates the progress bar.
    """

    callbacks: Sequence[Callable[[Record], bool | None]]
    checkpoints: Checkpoints | None
    checkpoint_seconds: float
    interrupts: Interrupts
    update_bar: Update
    last_saved: float = field(default_factory=time.perf_counter, init=False)

    def call(self, record: Record) -> bool:
        """Call all callbacks, and return whether one of them stops the run."""
        return any([callback(record) is True for callback in self.callbacks])  # noqa: C419

    def checkpoint_is_due(self) -> bool:
        """Return whether the next checkpoint should be written now."""
        return self.checkpoints is not None and time.perf_counter() - self.last_saved > self.checkpoint_seconds

    def save(self, state: TrainingState) -> str:
        """Write a checkpoint on rank 0, and return a message about how to continue the run."""
        saved = self.checkpoints is None or self.checkpoints.save(state)
        self.last_saved = time.perf_counter()
        if not saved:
            return "the checkpoint could not be written"
        folder = "the checkpoint of rank 0" if self.checkpoints is None else self.checkpoints.folder
        return f"the same command continues from {folder}"


def _train(run: Run, state: TrainingState, observers: Observers) -> None:
    """Take steps until the run is finished."""
    ranks = run.division.ranks
    stream = run.batches.since(state.step)
    start = time.perf_counter() - (state.history[-1].seconds if len(state.history) else 0.0)
    while state.stopped is None:
        try:
            record = _gradient(run, state, stream)
        except (FactorisationError, DivergenceError) as failure:
            state.roll_back(failure)
            stream = run.batches.since(state.step)
            continue
        record = record._replace(seconds=time.perf_counter() - start)
        state.advance(record)
        run.score_held_out(state)
        observers.update_bar(
            state.step, f"{state.history.bound} per datapoint {record.elbo:9.3f} threads {state.threads}"
        )

        # rank 0 has the callbacks and the checkpoints, and any rank may receive a signal; all ranks must act alike
        callback_stops, is_due, signal = ranks.maximum(
            ranks.first and observers.call(record),
            observers.checkpoint_is_due(),
            observers.interrupts.received or 0,
        )
        state.stopped = run.stop_reason(state, bool(callback_stops))
        if is_due or signal:
            ranks.check_equal(state.tensors(), state.step)
            how_to_continue = observers.save(state)
            if signal:
                leave(signal, f"stopped after step {state.step}; {how_to_continue}")
    ranks.check_equal(state.tensors(), state.step)
    observers.save(state)
    if observers.interrupts.received:
        leave(observers.interrupts.received, f"finished after step {state.step}")


def _gradient(run: Run, state: TrainingState, stream: Iterator[Batch]) -> Record:
    """Compute the gradient of the next step. The first time, choose the number of threads from its work."""
    if state.threads is not None:
        return run.gradient(state, next(stream))
    with Work() as work:
        record = run.gradient(state, next(stream))
    state.threads = int(run.division.ranks.broadcast(threads_for(work.operations)))
    change_threads(state.threads)
    logger.info("%d threads for %.2g operations per step", state.threads, work.operations)
    return record


def _initialise(run: Run, state: TrainingState, checkpoints: Checkpoints | None, progress: bool) -> None:
    """Restore the newest checkpoint, or initialise the last layer. Then give the state of rank 0 to all ranks."""
    restored = checkpoints is not None and checkpoints.restore(state)
    if checkpoints is not None and restored:
        message = resume(state, run.recipe, checkpoints.folder)
        logger.info(message)
        if progress:
            sys.stdout.write(f"{message}\n")
    # a continued run keeps its number of threads, so that it rounds as before; settings of the user have priority
    state.threads = threads_of_user() or (state.threads and min(state.threads, available_cores()))
    # a copy of a previous network starts where that has ended
    if not restored and run.recipe.optimal_start and run.elbo.previous is None:
        start_optimally(run.elbo.network, run.elbo.likelihood, run.batches.num_data)
    run.division.share(state, run.constants())
    change_threads(state.threads or 1)
    if checkpoints is not None and not restored:
        checkpoints.save(state)


def _checkpoints(folder: Path, run: Run, identity: dict[str, Any]) -> Checkpoints:
    if not run.batches.repeatable:
        raise CheckpointError(
            "the order of this DataLoader cannot be repeated, so the run cannot be continued exactly. Pass a Dataset, or "
            "DataLoader(..., generator=torch.Generator())"
        )
    return Checkpoints(folder, {**identity, "constants": checksums(run.constants())})


def _check_same_run(run: Run, identity: dict[str, Any]) -> None:
    """Raise an error if ranks have different data or settings. Initial parameters may differ: those of rank 0 are used."""
    if not run.batches.repeatable:
        raise ValueError(
            "the order of this DataLoader differs between processes, so some rows would be used twice and others never. "
            "Pass a Dataset, or DataLoader(..., generator=torch.Generator())"
        )
    settings = {**identity, "num_steps": run.recipe.num_steps, "parallel": run.division.parallel}
    run.division.ranks.agree(settings, "fit divides the batches itself")
