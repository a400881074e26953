"""One run of a sweep: lock it, execute it, store its result.

The lock prevents two processes from executing the same run at the same time.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import threading
import time
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from inducing.errors import DivergenceError
from inducing.experiments.engine.experiment import Metrics, Run, key_of
from inducing.experiments.engine.store import Origin, Store
from inducing.inference.parallel.ranks import join

if TYPE_CHECKING:
    from filelock import BaseFileLock
else:
    # imported where it is used
    BaseFileLock = Any


class State(Enum):
    """How a run ended."""

    FINISHED = auto()
    SKIPPED = auto()
    BUSY = auto()
    FAILED = auto()


class Outcome(NamedTuple):
    """The final state of a run, with a detail for the user: its seconds, or the reason of the state."""

    config: Any
    state: State
    detail: str


class Task(NamedTuple):
    """A run to execute.

    Arguments:
        run: The run function of the experiment.
        config: The configuration of the run.
        store: The store for its result.
        resume: Whether to keep a stored result and to continue from a checkpoint.
    """

    run: Run
    config: Any
    store: Store
    resume: bool

    @property
    def checkpoint(self) -> Path:
        """The folder for its checkpoints."""
        return self.store.checkpoint(dataclasses.asdict(self.config))

    def lock(self, wait: bool) -> BaseFileLock | Outcome:
        """Lock the run for this process, or return why it is not needed or not possible. The caller releases the lock.

        The file of a lock is never removed: another process may have opened it already, and would then hold a lock that a
        third process does not see.

        Arguments:
            wait: Whether to wait for another process that has the lock.
        """
        from filelock import FileLock, Timeout

        lock = FileLock(self.checkpoint.with_suffix(".lock"), timeout=-1 if wait else 0)
        try:
            lock.acquire()
        except Timeout:
            return Outcome(self.config, State.BUSY, "another process is executing this run")
        if self.resume and key_of(self.config) in self.store.results():
            lock.release()
            return Outcome(self.config, State.SKIPPED, "finished by another process")
        return lock

    def finish(self, metrics: Metrics, seconds: float, made_by: Origin | None = None) -> Outcome:
        """Store the result and remove the checkpoints."""
        self.store.add(dataclasses.asdict(self.config), metrics, seconds, made_by)
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        return Outcome(self.config, State.FINISHED, f"{seconds:.0f} s")


def run_here(task: Task, wait: bool, progress: bool = False) -> Outcome:
    """Execute a run in this process, together with the other processes of `torchrun`."""
    lock = task.lock(wait)
    if isinstance(lock, Outcome):
        return lock
    try:
        if not task.resume:
            shutil.rmtree(task.checkpoint, ignore_errors=True)
        start = time.perf_counter()
        join().broadcast([dataclasses.asdict(task.config), str(task.checkpoint)])
        metrics = task.run(task.config, task.checkpoint, progress)
        return task.finish(metrics, time.perf_counter() - start)
    except DivergenceError as error:
        return Outcome(task.config, State.FAILED, str(error))
    finally:
        lock.release()


def run_in_worker(task: Task, wait: bool, threads: int) -> Outcome:
    """Execute a run in a worker process. The worker exits with its parent, so that it does not keep the lock."""
    torch.set_num_threads(threads)
    threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()
    return run_here(task, wait)


def _exit_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
