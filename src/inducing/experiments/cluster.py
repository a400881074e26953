"""Runs on a Dask cluster: workers compute, the results come back to the caller's store.

A worker needs this package and the data, but no disk in common with the caller, so it keeps no checkpoints: the run of a
worker that dies begins again on another one. Dask sends functions by pickle; use it among machines that trust each other.
"""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from inducing.experiments.experiment import Metrics
from inducing.experiments.store import Store, config_key, origin
from inducing.inference.state import DivergenceError

CONNECT_SECONDS = 10.0


def run_each(
    address: str, name: str, configs: list[dict[str, Any]], store: Store, resume: bool, wait: bool
) -> Iterator[tuple[dict[str, Any], str]]:
    """Do the runs and put them into the store; yield each with how long it took, or what happened.

    Arguments:
        address: The scheduler's, e.g. "tcp://10.0.0.1:8786".
        name: The experiment.
        configs: The configurations of its runs.
        store: Where results go.
        resume: Whether a result that another process has added meanwhile is kept.
        wait: Whether to wait for runs that another process is at; else they are "busy".
    """
    try:
        import distributed
    except ImportError as error:
        raise ValueError("a Dask cluster needs dask.distributed: pip install 'inducing[dask]'") from error
    waiting, running = deque(configs), dict[distributed.Future, tuple[dict[str, Any], FileLock]]()
    try:
        connected = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except OSError as error:
        raise OSError(f"no Dask scheduler answers at {address}; `dask scheduler` prints its address") from error
    with connected as client:
        while waiting or running:
            # a few for each worker, so that none is idle, and no lock is held long before its run begins
            while waiting and len(running) < 2 * max(1, len(client.scheduler_info(n_workers=-1)["workers"])):
                config = waiting.popleft()
                lock = FileLock(store.checkpoint(config).with_suffix(".lock"), timeout=-1 if wait else 0)
                try:
                    lock.acquire()
                except Timeout:
                    yield config, "busy"
                    continue
                if resume and config_key(config) in store.results():
                    _release(lock)
                    yield config, "0 s"
                    continue
                running[client.submit(run_here, name, config, pure=False)] = config, lock
            for future in _next_done(client, list(running), address):
                config, lock = running.pop(future)
                yield config, _collect(future, config, store)
                _release(lock)


def run_here(name: str, config: dict[str, Any]) -> tuple[Metrics, float, dict[str, str | None]]:
    """What a worker does: one run; returns its metrics, its seconds, and the version of the package there."""
    from distributed import get_worker

    from inducing.experiments.registry import EXPERIMENTS

    if get_worker().state.nthreads > 1:
        # torch's random state and the warnings filter belong to the process
        raise ValueError(
            "a worker must do one run at a time: start it with `dask worker --nthreads 1`, and more of them"
        )
    experiment = EXPERIMENTS[name]
    start = time.perf_counter()
    metrics = experiment.run(experiment.config(**config), None, False)
    return metrics, time.perf_counter() - start, origin()


def _next_done(client: Any, futures: list[Any], address: str) -> list[Any]:
    """Wait for the first of them."""
    from distributed import wait

    if not futures:
        return []
    try:
        with client.as_current():
            return list(wait(futures, return_when="FIRST_COMPLETED").done)
    except CancelledError as error:
        raise OSError(f"lost the Dask scheduler at {address}; the same command goes on") from error


def _collect(future: Any, config: dict[str, Any], store: Store) -> str:
    from distributed import KilledWorker

    try:
        metrics, seconds, made_by = future.result()
    except DivergenceError as error:
        return str(error)
    except KilledWorker as error:
        return f"several workers died at it, the last was {error.last_worker.address}; is there enough memory?"
    store.add(config, metrics, seconds, made_by)
    shutil.rmtree(store.checkpoint(config), ignore_errors=True)
    return f"{seconds:.0f} s"


def _release(lock: FileLock) -> None:
    lock.release()
    Path(lock.lock_file).unlink(missing_ok=True)
