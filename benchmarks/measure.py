"""Timing of sides that alternate within one process, with the CPU time and the spread of their runs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

# rows and columns of the matrix product that stands for what the machine can do
LARGE = 1024
# a process that never waits for a core has at least one thread at work all the time
LEAST_CPU_SHARE = 0.9
# the median run over the fastest
LARGEST_SLOWDOWN = 1.5


@dataclass
class Timing:
    """Wall-clock and CPU seconds of each run of one side, in order."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def __add__(self, other: Timing) -> Timing:
        return Timing(self.wall + other.wall, self.cpu + other.cpu)

    def record(self, work: Callable[[], object]) -> None:
        """Do the work once, and add its times."""
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        self.cpu.append(time.process_time() - cpu)
        self.wall.append(time.perf_counter() - wall)

    @property
    def fastest(self) -> float:
        """Wall-clock seconds of the fastest run."""
        return min(self.wall)

    @property
    def median(self) -> float:
        """Wall-clock seconds of the median run."""
        return statistics.median(self.wall)

    @property
    def cpu_share(self) -> float:
        """CPU seconds over wall-clock seconds of all runs: at least 1 if no run waits for a core."""
        return sum(self.cpu) / sum(self.wall)

    def disturbances(self, side: str) -> list[str]:
        """Why these runs do not count, if they do not."""
        found = []
        if self.cpu_share < LEAST_CPU_SHARE:
            found.append(f"{side} waited for a core: CPU time was {self.cpu_share:.2f} of wall time")
        if self.median > LARGEST_SLOWDOWN * self.fastest:
            found.append(f"{side} varied: its median run took {self.median / self.fastest:.1f} times the fastest")
        return found


def alternate(sides: Sequence[Callable[[], object]], seconds: float, least: int = 3) -> list[Timing]:
    """Run the sides one after the other, again and again, after one run of each that is not counted.

    Arguments:
        sides: What to run.
        seconds: How long to go on.
        least: Runs of each side, however long they take.
    """
    timings = [Timing() for _ in sides]
    for side in sides:
        side()
    start, rounds = time.perf_counter(), 0
    while rounds < least or time.perf_counter() - start < seconds:
        for side, timing in zip(sides, timings, strict=True):
            timing.record(side)
        rounds += 1
    return timings


def quartiles(values: list[float]) -> tuple[float, float]:
    """The lower and the upper quartile."""
    lower, _, upper = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return lower, upper


def large_product(dtype: torch.dtype) -> Callable[[], object]:
    """The matrix product itself, to be measured among the sides."""
    left, right = torch.randn(2, LARGE, LARGE, dtype=dtype)
    out = torch.empty_like(left)
    return lambda: torch.matmul(left, right, out=out)


def rate(seconds: float) -> float:
    """Operations per second, from the time of `large_product`."""
    return 2 * LARGE**3 / seconds
