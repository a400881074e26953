"""Runs on a Dask cluster: workers compute, and the caller stores the results.

A worker needs this package and the data. It shares no disk with the caller and keeps no checkpoints: the run of a worker
that dies starts again on another worker. Dask sends functions by pickle; use it only among machines that trust each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

from inducing.errors import DivergenceError
from inducing.experiments.engine.experiment import Run
from inducing.experiments.engine.runs import Pool, execute
from inducing.experiments.engine.store import Result
from inducing.extras import require

CONNECT_SECONDS = 10.0


@contextmanager
def connect(address: str) -> Iterator[Pool]:
    """Execute runs on the workers of a scheduler with this address, e.g. "tcp://10.0.0.1:8786"."""
    distributed = require("distributed")
    try:
        connected = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except OSError as error:
        raise OSError(f"no Dask scheduler answers at {address}; `dask scheduler` prints its address") from error
    with connected as client:
        executor = client.get_executor(pure=False)
        try:
            yield Pool(
                lambda run, config, checkpoint: executor.submit(run_on_worker, run, config),
                # two runs for each worker: no worker is idle, and few locks are held before their runs start
                lambda: 2 * max(1, len(client.scheduler_info(n_workers=-1)["workers"])),
                (DivergenceError, distributed.KilledWorker),
            )
        except CancelledError as error:
            raise OSError(f"lost the Dask scheduler at {address}; the same command continues") from error


def run_on_worker(run: Run, config: Any) -> Result:
    """Execute one run on a worker."""
    from distributed import get_worker

    if get_worker().state.nthreads > 1:
        # torch's random state and the warnings filter belong to the process
        raise ValueError("a worker must execute one run at a time; start workers with `dask worker --nthreads 1`")
    return execute(run, config, None)
