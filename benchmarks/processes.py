"""Measurements in fresh processes, whose number of threads and way of waiting are set before torch starts.

OpenMP reads its environment once, when torch is imported. A worker is a module of this package whose `main` prints
one line of JSON last.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.machine import CPUTime

ROOT = Path(__file__).parents[1]
# variables that begin so decide how many threads there are and how they wait
THREAD_VARIABLES = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_")


class WorkerError(RuntimeError):
    """A worker ended with an error."""


def without_thread_settings(environment: dict[str, str]) -> dict[str, str]:
    """The environment without the variables that decide on threads."""
    return {key: value for key, value in environment.items() if not key.startswith(THREAD_VARIABLES)}


def threads(number: int) -> dict[str, str]:
    """The variables that fix the number of threads."""
    return {"OMP_NUM_THREADS": str(number), "MKL_NUM_THREADS": str(number)}


def measure_command(*arguments: object) -> dict[str, float]:
    """Run the command `inducing` in a process of its own. Return its seconds and its peak memory in MB."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "inducing", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    # the process has been waited for, and Popen need not warn that it still runs
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the command failed with status {process.returncode}")
    # Linux counts in kilobytes, macOS in bytes
    unit = 1 if sys.platform == "darwin" else 1024
    return {"seconds": time.perf_counter() - start, "peak_mb": usage.ru_maxrss * unit / 2**20}


@contextmanager
def busy_loops(number: int) -> Iterator[None]:
    """Processes that each keep a core busy; they have ended when the block has."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run_worker(
    module: str, arguments: list[str], settings: dict[str, str], first: str = "inducing", neighbours: int = 0
) -> tuple[dict[str, Any], float | None]:
    """Run a worker; what it printed, and the cores that other processes used on average meanwhile.

    Arguments:
        module: Its name in this package.
        arguments: Its command line.
        settings: Variables for threads; all others of that kind are unset.
        first: What it imports first. `inducing` sets how threads wait where nothing else does; `torch` leaves it alone.
        neighbours: Busy loops beside it, which do not count as other processes.
    """
    start = f"import {first}; from benchmarks.{module} import main; main()"
    environment = without_thread_settings(dict(os.environ)) | settings
    before = CPUTime.read()
    with busy_loops(neighbours):
        done = subprocess.run(
            [sys.executable, "-c", start, *arguments], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        )
    if done.returncode:
        raise WorkerError(f"benchmarks.{module} {' '.join(arguments)} ended with status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1]), before.other_cores(CPUTime.read())
