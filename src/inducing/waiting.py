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
        count_runnable()
        return "libgomp" in Path("/proc/self/maps").read_text()
    except (OSError, ValueError, IndexError):
        return False


def count_runnable() -> int:
    """Return the number of runnable tasks of the whole machine, including this one."""
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])


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
        self._team: IdleTeam | None = None
        self._switch(spin=count_runnable() <= 1)

    @property
    def spins(self) -> bool:
        """Whether threads spin now."""
        return self._team is None

    def run(self) -> None:
        try:
            before = CPUTime.now()
            while not self._stop_watching.wait(INTERVAL):
                now = CPUTime.now()
                others = now.others_since(before)
                before = now
                self._switch(spin=others < (BUSY if self.spins else IDLE))
        finally:
            # here and not in `stop`, which Ctrl-C may interrupt
            self._switch(spin=True)

    def stop(self) -> None:
        """Stop the thread and restore torch's default, spinning."""
        self._stop_watching.set()
        self.join()

    def _switch(self, spin: bool) -> None:
        if spin and self._team is not None:
            self._team.end()
            self._team = None
        elif not spin and self._team is None:
            self._team = IdleTeam(self._num_threads)


class _Users:
    """The blocks of all Python threads that share one watch."""

    def __init__(self) -> None:
        self.lock, self.count = threading.Lock(), 0
        self.watch: Watch | None = None

    def enter(self, num_threads: int) -> None:
        """Start the watch for the first block."""
        with self.lock:
            self.count += 1
            if self.watch is None:
                self.watch = Watch(num_threads)
                self.watch.start()

    def leave(self) -> None:
        """Stop the watch after the last block."""
        with self.lock:
            self.count -= 1
            ended, self.watch = (self.watch, None) if self.count == 0 else (None, self.watch)
        if ended is not None:
            ended.stop()


_users = _Users()
if hasattr(os, "register_at_fork"):
    # a child process starts without a watch
    os.register_at_fork(after_in_child=_users.__init__)  # type: ignore[misc]


@contextmanager
def waiting_by_load(num_threads: int) -> Iterator[None]:
    """Let threads spin inside the block only while no other program is busy."""
    if num_threads == 1 or not can_switch():
        yield
        return
    owner = os.getpid()
    _users.enter(num_threads)
    try:
        yield
    finally:
        if os.getpid() == owner:
            _users.leave()
