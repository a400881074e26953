"""Choice between spinning and sleeping for threads that wait for each other, by the load of the machine.

Threads of OpenMP spin for some milliseconds before they sleep. On an idle machine this is fastest, since small operations
follow each other within microseconds. While another program is busy it is up to 40 times slower than one thread, because a
spinning thread occupies the core that the other thread needs.

GNU's OpenMP, which torch uses on Linux, does not spin while a process has more threads than cores. So a second, idle team of
threads switches spinning off. Ending this team switches it on again. Results do not change, only run times.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

# spinning is switched off above BUSY and on below IDLE cores used by other programs
BUSY, IDLE = 0.4, 0.2
# seconds between two measurements of the load
INTERVAL = 0.25
# elements of an operation that torch assigns to one thread
GRAIN = 2**16


class CPUTime(NamedTuple):
    """Busy seconds of the cores that this process may use, for all programs and for this process, at one time."""

    at: float
    all: float
    own: float

    @classmethod
    def now(cls) -> CPUTime:
        """Read the counters of Linux."""
        cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        lines = (line.split() for line in Path("/proc/stat").read_text().splitlines())
        # user, nice, system, idle, waiting for disks, interrupts (2), stolen by other machines on the same host
        busy = sum(int(v) for name, *values in lines if name in cores for v in (*values[:3], *values[5:8]))
        return cls(time.monotonic(), busy / os.sysconf("SC_CLK_TCK"), time.process_time())

    def others_since(self, before: CPUTime) -> float:
        """Return the average number of cores that other programs used since ``before``."""
        return (self.all - before.all - (self.own - before.own)) / max(self.at - before.at, 1e-3)


@cache
def can_switch() -> bool:
    """Return whether spinning can be switched on and off: on Linux, with GNU's OpenMP."""
    if sys.platform != "linux":
        return False
    try:
        CPUTime.now()
        return "libgomp" in Path("/proc/self/maps").read_text() and Path("/proc/loadavg").exists()
    except OSError:
        return False


class IdleTeam:
    """A second team of OpenMP threads that does nothing."""

    def __init__(self, size: int) -> None:
        self._end = threading.Event()
        started = threading.Event()
        self._thread = threading.Thread(target=self._wait, args=(size, started), daemon=True)
        self._thread.start()
        started.wait()

    def _wait(self, size: int, started: threading.Event) -> None:
        try:
            torch.ones(GRAIN * size).add_(1)
        finally:
            started.set()
        self._end.wait()

    def end(self) -> None:
        """Remove the team."""
        self._end.set()
        self._thread.join()


class Watch(threading.Thread):
    """A thread that switches spinning off while other programs are busy, until it is stopped."""

    def __init__(self, num_threads: int) -> None:
        super().__init__(daemon=True)
        self._num_threads, self._stop_watching = num_threads, threading.Event()
        # number of runnable tasks of the whole machine, including this one
        runnable = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
        self._team: IdleTeam | None = None
        self._switch(spin=runnable <= 1)

    @property
    def spins(self) -> bool:
        """Whether threads spin now."""
        return self._team is None

    def run(self) -> None:
        before = CPUTime.now()
        while not self._stop_watching.wait(INTERVAL):
            now = CPUTime.now()
            others = now.others_since(before)
            before = now
            self._switch(spin=others < (BUSY if self.spins else IDLE))

    def stop(self) -> None:
        """Stop the thread and restore torch's default, spinning."""
        self._stop_watching.set()
        self.join()
        self._switch(spin=True)

    def _switch(self, spin: bool) -> None:
        if spin and self._team is not None:
            self._team.end()
            self._team = None
        elif not spin and self._team is None:
            self._team = IdleTeam(self._num_threads)


# one watch serves all blocks of a process
_watched = threading.Lock()
if hasattr(os, "register_at_fork"):
    # a child process starts without a watch
    os.register_at_fork(after_in_child=_watched._at_fork_reinit)  # type: ignore[attr-defined]


@contextmanager
def waiting_by_load(num_threads: int) -> Iterator[None]:
    """Let threads spin inside the block only while no other program is busy."""
    if num_threads == 1 or not can_switch() or not _watched.acquire(blocking=False):
        yield
        return
    try:
        watch = Watch(num_threads)
        watch.start()
        try:
            yield
        finally:
            watch.stop()
    finally:
        _watched.release()
