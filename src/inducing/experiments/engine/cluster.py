"""Runs on a Dask cluster: workers compute, and the caller stores the results.

A worker needs this package and the data. It shares no disk with the caller and keeps no checkpoints: the run of a worker
that dies starts again on another worker. Dask sends functions by pickle; use it only among machines that trust each other.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack
from typing import Any

from inducing.errors import DivergenceError
from inducing.experiments.engine.experiment import Metrics, Run
from inducing.experiments.engine.runs import Outcome, State, Task
from inducing.experiments.engine.store import Origin, origin
from inducing.extras import require

CONNECT_SECONDS = 10.0


def run_each(address: str, tasks: list[Task], wait: bool) -> Iterator[Outcome]:
    """Execute runs on a cluster and store the results.

    Arguments:
        address: Address of the scheduler, e.g. "tcp://10.0.0.1:8786".
        tasks: The runs.
        wait: Whether to wait for runs that another process is executing.
    """
    distributed = require("distributed")
    waiting, running = deque(tasks), dict[Any, tuple[Task, Any]]()
    try:
        connected = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except OSError as error:
        raise OSError(f"no Dask scheduler answers at {address}; `dask scheduler` prints its address") from error
    # however this function ends, no lock is kept
    with ExitStack() as locks, connected as client:
        while waiting or running:
            # two runs for each worker: no worker is idle, and few locks are held before their runs start
            while waiting and len(running) < 2 * max(1, len(client.scheduler_info(n_workers=-1)["workers"])):
                task = waiting.popleft()
                lock = task.lock(wait)
                if isinstance(lock, Outcome):
                    yield lock
                else:
                    locks.callback(lock.release)
                    running[client.submit(run_on_worker, task.run, task.config, pure=False)] = task, lock
            for future in _next_done(client, list(running), address):
                task, lock = running.pop(future)
                outcome = collect(future, task)
                lock.release()
                yield outcome


def run_on_worker(run: Run, config: Any) -> tuple[Metrics, float, Origin]:
    """Execute one run on a worker. Return its metrics, its seconds, and the version of the package there."""
    from distributed import get_worker

    if get_worker().state.nthreads > 1:
        # torch's random state and the warnings filter belong to the process
        raise ValueError("a worker must execute one run at a time; start workers with `dask worker --nthreads 1`")
    start = time.perf_counter()
    metrics = run(config, None, False)
    return metrics, time.perf_counter() - start, origin()


def collect(future: Any, task: Task) -> Outcome:
    """Store the result of a run that has ended on the cluster."""
    from distributed import KilledWorker

    try:
        return task.finish(*future.result())
    except DivergenceError as error:
        return Outcome(task.config, State.FAILED, str(error))
    except KilledWorker as error:
        last = error.last_worker.address
        reason = f"several workers died, the last was {last}; is there enough memory?"
        return Outcome(task.config, State.FAILED, reason)


def _next_done(client: Any, futures: list[Any], address: str) -> list[Any]:
    """Wait until at least one future is done, and return all that are done."""
    from distributed import wait

    if not futures:
        return []
    try:
        with client.as_current():
            return list(wait(futures, return_when="FIRST_COMPLETED").done)
    except CancelledError as error:
        raise OSError(f"lost the Dask scheduler at {address}; the same command continues") from error
