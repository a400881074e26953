"""The training loop: Adam on the negative ELBO, read from top to bottom.

A step is a function of the seed, the number of the step and the parameters. That makes it possible to undo it and try again,
and to stop at any moment and continue as if nothing had been.
"""

from __future__ import annotations

import logging
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from signal import Signals
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from inducing.checks import check_dtype, check_inputs, check_seed, refuse_inference_mode
from inducing.inference.advice import advise, explain_divergence
from inducing.inference.batches import Augment, Batch, Batches, Data, augment_identity, augmented, batches
from inducing.inference.checkpoint import CheckpointError, Checkpoints, checksums
from inducing.inference.distributed import ALONE, RankError, Ranks, join, quiet
from inducing.inference.division import Division, Parallel, check_parallel
from inducing.inference.history import History, Record
from inducing.inference.interrupts import Interrupts, interrupts
from inducing.inference.objective import ELBO, ELBOTerms
from inducing.inference.optimal import match_optimum, start_optimally
from inducing.inference.recipes import Recipe, as_recipe
from inducing.inference.resuming import resume
from inducing.inference.schedules import learning_rate_factor, stepwise_warmup
from inducing.inference.state import DivergenceError, TrainingState
from inducing.linalg.cholesky import FactorisationError, recorded_jitter
from inducing.linalg.noise import seeded
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.threads import Work, change_threads, threads_for, threads_of_user, using_threads

logger = logging.getLogger("inducing")
Callback = Callable[[Record], bool | None]


def fit(
    network: Network,
    likelihood: Likelihood,
    data: Data,
    recipe: Recipe | str = "fast",
    *,
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
    """Maximise the ELBO with Adam.

    The same seed gives the same numbers on the same machine with as many threads, for a network that starts from the same
    parameters. The number of threads follows from the work of the first step, which has one thread, and is kept in
    checkpoints; set OMP_NUM_THREADS or call `torch.set_num_threads` for another number. Under `torchrun` all processes
    train one network: each takes a part of every step, and all end with the same parameters. As after any training loop
    of torch, parameters keep the gradients of the last step; the data get none.

    Arguments:
        network: The Bayesian network.
        likelihood: The distribution of the targets given its outputs; its parameters are learned too.
        data: A pair (x, y) of tensors, a Dataset, or a DataLoader; or (x, y, weights), where each row's log-likelihood is
            multiplied by its weight: a row of weight 2 counts as two.
        recipe: "fast", "paper", or a `Recipe`.
        seed: Seed of the posterior samples and the order of the data, a whole number.
        augment: Changes the inputs of each batch at random, ``augment(x, generator)``, e.g. `inducing.data.images.augment`.
        callbacks: One or several, called with the `Record` of each step; training stops when one returns True.
        checkpoint: Folder for checkpoints. The same call continues from there after whatever interrupted it, and ends
            with the result of a run that was never interrupted. A run that is finished (all steps done, or stopped by a
            callback or by patience) is not trained again; a larger ``num_steps`` continues it. After all steps, with a
            constant schedule and no ``early_samples``, that gives the result of the larger number from the start; otherwise
            the schedule follows the new number from the present step on. All other settings must stay as they were.
        checkpoint_seconds: Time between checkpoints.
        progress: Whether to show a progress bar.
        description: What the bar calls this run.
        parallel: What several processes divide: "data", the rows of each batch, with posterior samples of its own on each;
            "samples", the posterior samples; "rows", the rows alone, with the same samples on each, which gives the numbers
            of one process. None: this process trains by itself. All must be given the same data and settings; rank 0 alone
            shows progress, calls callbacks and writes checkpoints.
        changes: Settings of the recipe to change, e.g. ``num_steps=500, learning_rate=1e-3``; see `Recipe`.

    Returns:
        The history, a `Record` for each step.
    """
    refuse_inference_mode("fit")
    recipe, seed = as_recipe(recipe).replace(**changes), check_seed(seed)
    callbacks = [callbacks] if callable(callbacks) else callbacks
    check_parallel(parallel)

    def check(x: Tensor, y: Tensor) -> None:
        check_inputs(x, network.input_shape, network.dtype)
        check_dtype("y", likelihood.check_targets(y, network.output_shape), network.dtype)

    # a network and a likelihood of ours, before anything is asked of them
    ELBO(network, likelihood, 1)
    source = batches(data, recipe.batch_size, seed, check)
    if augment is not None:
        source = augmented(source, augment, seed)
    elbo = ELBO(network, likelihood, source.num_data)
    match_optimum(network, data, source.num_data)
    parameters = [parameter for parameter in elbo.parameters() if parameter.requires_grad]
    if not parameters:
        raise ValueError("nothing can be learned: neither the network nor the likelihood has parameters")
    ranks = ALONE if parallel is None else join()
    division = Division(ranks, parallel or "data")
    division.check(recipe)
    if ranks.first:
        advise(network, likelihood, data, source.num_data)
    state = TrainingState(parameters, recipe.learning_rate, recipe.num_steps, len(network.layer_names))
    with ExitStack() as stack:
        # also for a caller inside torch.no_grad
        stack.enter_context(torch.enable_grad())
        stack.enter_context(quiet(not ranks.first))
        together = ranks.size > 1
        run = _identify(data, source, recipe, seed, augment, elbo) if together or checkpoint is not None else {}
        if together:
            _agree(ranks, {**run, "num_steps": recipe.num_steps, "parallel": parallel}, source)
        saved = _open_checkpoints(checkpoint if ranks.first else None, stack, source, run, elbo)
        continues = saved is not None and saved.restore(state)
        message = resume(state, recipe, saved.folder) if saved is not None and continues else None
        # a run keeps its threads, so that it rounds as before; settings of the user win
        state.threads = threads_of_user() or (state.threads and min(state.threads, os.cpu_count() or 1))
        stack.enter_context(using_threads(state.threads or 1))
        if not continues and recipe.optimal_start:
            start_optimally(network, likelihood, source.num_data)
        ranks.share(state, _constants(elbo))
        if state.threads:
            change_threads(state.threads)
        if saved is not None and not continues:
            saved.save(state)
        stop = stack.enter_context(interrupts(enabled=checkpoint is not None))
        stack.enter_context(network.closed_form_kl(recipe.closed_form_kl))
        bar = stack.enter_context(_progress_bar(progress and ranks.first))
        if message is not None:
            bar.console.print(message, highlight=False, soft_wrap=True)
        try:
            _train(
                elbo,
                source,
                recipe,
                seed,
                state,
                callbacks,
                saved,
                checkpoint_seconds,
                stop,
                bar,
                description,
                division,
            )
        except RankError as error:
            where = "start again" if checkpoint is None else f"the same command continues from {checkpoint}"
            text = f"step {state.step + 1}, rank {ranks.rank} of {ranks.size}: {error}; {where}"
            raise RankError(text) from error.__cause__
    if state.damping < 0.1 and ranks.first:
        warnings.warn(
            f"training ended with steps damped to {state.damping:.1g} of their size after {state.roll_backs} roll-backs; "
            "it may have learned little. Lower learning_rate, or standardise the data",
            stacklevel=2,
        )
    return state.history


def _train(
    elbo: ELBO,
    source: Batches,
    recipe: Recipe,
    seed: int,
    state: TrainingState,
    callbacks: Sequence[Callback],
    saved: Checkpoints | None,
    checkpoint_seconds: float,
    stop: Interrupts,
    bar: Progress,
    description: str,
    division: Division,
) -> None:
    """Take steps until the recipe is done."""
    ranks = division.ranks
    task = bar.add_task(description, total=recipe.num_steps, completed=state.step, elbo="", threads="")
    stream = source.since(state.step)
    spent = state.history[-1].seconds if len(state.history) else 0.0
    start = last_saved = time.perf_counter()
    while state.stopped is None:
        rate = recipe.learning_rate * learning_rate_factor(recipe.schedule, state.step / recipe.num_steps)
        try:
            with nullcontext() if state.threads else Work() as work:
                terms, norm, jitter = _gradient(elbo, recipe, source, seed, state, stream, division)
        except (FactorisationError, DivergenceError) as failure:
            state.roll_back(failure)
            stream = source.since(state.step)
            continue
        if work is not None:
            state.threads = int(ranks.broadcast(threads_for(work.operations)))
            change_threads(state.threads)
            logger.info("%s: %d threads for %.2g operations a step", description, state.threads, work.operations)
        rate *= state.damping
        record = _record(state.step + 1, terms, rate, norm, jitter, spent + time.perf_counter() - start)
        state.advance(record, rate)
        bar.update(task, completed=state.step, elbo=f"{record.elbo:9.3f}", threads=state.threads)

        # all callbacks are called, whatever the first says
        asked = ranks.first and any([callback(record) is True for callback in callbacks])  # noqa: C419
        due = saved is not None and time.perf_counter() - last_saved > checkpoint_seconds
        # rank 0 asks and saves, a signal may come to any: all leave this step with the same answers
        ends, saves, signal = ranks.maximum(asked, due, stop.received or 0)
        warm = state.step >= recipe.kl_warmup_epochs * source.steps_per_epoch + 2 * (recipe.patience or 0)
        at_rest = recipe.patience is not None and warm and state.history.has_plateaued(recipe.patience)
        done = state.step >= recipe.num_steps
        state.stopped = "num_steps" if done else "callback" if ends else "patience" if at_rest else None
        if saves or signal:
            ranks.check_equal(state)
            kept = saved is None or saved.save(state)
            last_saved = time.perf_counter()
            if signal:
                stop.received = Signals(signal)
                folder = "the checkpoint of rank 0" if saved is None else saved.folder
                where = f"the same command continues from {folder}" if kept else "the checkpoint could not be written"
                stop.leave(f"stopped after step {state.step}; {where}")
    ranks.check_equal(state)
    if saved is not None:
        saved.save(state)
    if stop.received:
        stop.leave(f"finished after step {state.step}")


def _gradient(
    elbo: ELBO,
    recipe: Recipe,
    source: Batches,
    seed: int,
    state: TrainingState,
    stream: Iterator[Batch],
    division: Division,
) -> tuple[ELBOTerms, float, float]:
    """Evaluate the ELBO of the present step and leave the gradient of its negative in the parameters."""
    device, num_samples = elbo.network.device, recipe.samples_at(state.step)
    batch = next(stream)
    num_rows = division.num_rows(len(batch[0]))
    x, y, *weights = (tensor.detach().to(device) for tensor in division.rows(batch))
    weight = recipe.temperature * stepwise_warmup(state.step, recipe.kl_warmup_epochs * source.steps_per_epoch)
    noise = seeded(seed, division.noise(f"posterior samples of step {state.step}"), device)
    state.optimizer.zero_grad()
    with recorded_jitter() as jitters:
        try:
            own = division.num_samples(num_samples)
            counts = weights[0] if weights else None
            terms = elbo(x, y, own, weight, noise, counts, num_rows, recipe.whole_last_kl)
            loss = -terms.objective / source.num_data
            # not so on a rank without rows, where the network has nothing to learn
            if loss.requires_grad:
                loss.backward()
            outcome: ELBOTerms | Exception = terms
        except Exception as failure:
            # bad rows of a Dataset, say: the others wait for this rank, and hear why
            outcome = failure
    layers, share = elbo.network.layer_names, division.weight(num_samples)
    terms, jitter = division.combine(state.parameters, outcome, len(layers), share, max(jitters, default=0.0))
    gradients = [parameter.grad for parameter in state.parameters if parameter.grad is not None]
    norm = float(torch.nn.utils.get_total_norm(gradients))
    if not (math.isfinite(norm) and math.isfinite(terms.elbo.item())):
        raise DivergenceError(explain_divergence(elbo, terms))
    return terms, norm, jitter


def _record(step: int, terms: ELBOTerms, rate: float, norm: float, jitter: float, seconds: float) -> Record:
    likelihood = terms.log_likelihood.mean(-1, keepdim=True)
    parts = [likelihood, terms.objective[None], terms.kl.mean(-1), terms.prior_kl.mean(-1)]
    # one transfer for all numbers
    log_likelihood, objective, *values = (torch.cat(parts).detach() / terms.num_data).tolist()
    layers = len(terms.kl)
    kl, prior_kl = tuple(values[:layers]), tuple(values[layers:])
    elbo = log_likelihood - sum(kl) - sum(prior_kl)
    return Record(step, elbo, log_likelihood, kl, prior_kl, terms.temperature, rate, norm, jitter, objective, seconds)


def _identify(
    data: Data, source: Batches, recipe: Recipe, seed: int, augment: Augment | None, elbo: ELBO
) -> dict[str, Any]:
    """What makes a run the run that it is."""
    return {
        "recipe": recipe.identity(),
        "seed": seed,
        "augment": augment_identity(augment),
        "num_data": source.num_data,
        "data": checksums(data if isinstance(data, tuple | list) else []),
        "network": repr(elbo.network),
        "likelihood": type(elbo.likelihood).__name__,
        "parameters": [[name, list(p.shape), str(p.dtype)] for name, p in elbo.named_parameters()],
    }


def _agree(ranks: Ranks, run: dict[str, Any], source: Batches) -> None:
    """Make sure that all ranks are at the same run; only first values may differ, and are then those of rank 0."""
    if not source.repeatable:
        raise ValueError(
            "the order of this DataLoader is another one on each process, so rows would be lost and others counted twice; "
            "pass a Dataset, or DataLoader(..., generator=torch.Generator())"
        )
    ranks.agree(run, "fit divides the batches itself")


def _constants(elbo: ELBO) -> list[Tensor]:
    """What is fixed: inducing points, noise, targets, and parameters that are not learned."""
    return [*elbo.buffers(), *(parameter.detach() for parameter in elbo.parameters() if not parameter.requires_grad)]


def _open_checkpoints(
    folder: str | Path | None, stack: ExitStack, source: Batches, run: dict[str, Any], elbo: ELBO
) -> Checkpoints | None:
    if folder is None:
        return None
    if not source.repeatable:
        raise CheckpointError(
            "the order of this DataLoader cannot be repeated, so a run could not be continued exactly; pass a Dataset, "
            "or DataLoader(..., generator=torch.Generator())"
        )
    constants = checksums(_constants(elbo))
    return stack.enter_context(Checkpoints(Path(folder), {**run, "constants": constants}))


def _progress_bar(show: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("ELBO per datapoint {task.fields[elbo]}"),
        TextColumn("threads {task.fields[threads]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
        disable=not show,
    )
