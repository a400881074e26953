"""The runs of a sweep: lock each one, execute it, store its result.

The process of the sweep locks runs and stores their results. A pool executes them: this process, several processes, or a
Dask cluster (cluster.py). The lock prevents two sweeps from executing the same run at the same time.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, NamedTuple

import torch

from inducing.errors import DivergenceError
from inducing.experiments.engine.experiment import Run, key_of
from inducing.experiments.engine.store import Result, Store, finished_run, revision_of
from inducing.extras import require
from inducing.inference.parallel.ranks import join

# between two attempts to lock the runs that other processes are executing
RETRY_SECONDS = 0.5


class Outcome(NamedTuple):
    """The end of a run, with a detail for the user: its seconds, or why it failed or was not needed."""

    config: Any
    detail: str
    failed: bool = False


class Task(NamedTuple):
    """A run to execute.

    Arguments:
        run: The run function of the experiment.
        config: The configuration of the run.
        store: The store for its result.
        resume: Whether to keep a stored result and to continue from a checkpoint.
        since: The first revision of the package whose result is kept.
    """

    run: Run
    config: Any
    store: Store
    resume: bool
    since: int = 1

    @property
    def checkpoint(self) -> Path:
        """The folder for its checkpoints. The process that executes the run holds a lock of the same name."""
        folder = self.store.path.parent / "checkpoints"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{self.store.path.stem}-{key_of(self.config)}"

    def lock(self) -> Callable[[], None] | None:
        """Lock the run for this process. Return a function that releases it, or None if another process has the lock.

        The file of a lock is never removed: another process may have opened it already, and would then hold a lock that a
        third process does not see.
        """
        from filelock import FileLock, Timeout

        lock = FileLock(self.checkpoint.with_suffix(".lock"))
        with suppress(Timeout):
            lock.acquire(timeout=0)
        return lock.release if lock.is_locked else None

    def is_finished(self) -> bool:
        """Whether the store has a result that is up to date."""
        result = self.store.results().get(key_of(self.config))
        return result is not None and revision_of(result) >= self.since

    def finish(self, result: Result) -> Outcome:
        """Store the result and remove the checkpoints."""
        self.store.add(result)
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        return Outcome(self.config, f"{result['seconds']:.0f} s")


class Pool(NamedTuple):
    """What executes runs.

    Arguments:
        submit: Function that starts a run, with the run function, a configuration and a folder for checkpoints.
        capacity: Function that returns the number of runs to start before one has ended.
        failures: Errors that end only their run. Other errors end the sweep.
    """

    submit: Callable[[Run, Any, Path | None], Future[Result]]
    capacity: Callable[[], int]
    failures: tuple[type[Exception], ...] = (DivergenceError,)


def run_each(tasks: list[Task], pool: Pool) -> Iterator[Outcome]:
    """Execute runs and store the results. Runs that another process is executing are tried again until it ends."""
    waiting, running = list(tasks), dict[Future[Result], tuple[Task, Callable[[], None]]]()
    # however this function ends, no lock is kept
    with ExitStack() as locks:
        while waiting or running:
            for task in list(waiting):
                if len(running) >= pool.capacity():
                    break
                release = task.lock()
                if release is None:
                    continue
                locks.callback(release)
                waiting.remove(task)
                if task.resume and task.is_finished():
                    release()
                    yield Outcome(task.config, "finished by another process")
                    continue
                if not task.resume:
                    shutil.rmtree(task.checkpoint, ignore_errors=True)
                running[pool.submit(task.run, task.config, task.checkpoint)] = task, release
            if not running and waiting:
                sleep(RETRY_SECONDS)
            for future in wait(running, RETRY_SECONDS if waiting else None, FIRST_COMPLETED).done:
                task, release = running.pop(future)
                try:
                    outcome = task.finish(future.result())
                except pool.failures as error:
                    outcome = Outcome(task.config, str(error), failed=True)
                release()
                yield outcome


def execute(run: Run, config: Any, checkpoint: Path | None, progress: bool = False) -> Result:
    """Execute one run."""
    start = perf_counter()
    metrics = run(config, checkpoint, progress)
    return finished_run(dataclasses.asdict(config), metrics, perf_counter() - start)


@contextmanager
def this_process() -> Iterator[Pool]:
    """Execute runs one by one in this process, together with the other processes of `torchrun`."""

    def submit(run: Run, config: Any, checkpoint: Path | None) -> Future[Result]:
        future = Future[Result]()
        join().broadcast([dataclasses.asdict(config), str(checkpoint)])
        try:
            future.set_result(execute(run, config, checkpoint, progress=True))
        except DivergenceError as error:
            future.set_exception(error)
        return future

    yield Pool(submit, lambda: 1)


@contextmanager
def processes(jobs: int, threads: int) -> Iterator[Pool]:
    """Execute runs in several processes, each with this number of threads."""
    require("joblib")
    from joblib.externals.loky import ProcessPoolExecutor

    executor = ProcessPoolExecutor(jobs, initializer=_start_worker, initargs=(threads,))
    try:
        yield Pool(partial(executor.submit, execute), lambda: jobs)
    finally:
        executor.shutdown(kill_workers=True)


def _start_worker(threads: int) -> None:
    """Prepare a worker process. It exits with its parent, so that it does not execute a run without its lock."""
    torch.set_num_threads(threads)
    threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()


def _exit_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        sleep(0.5)
    os._exit(1)
