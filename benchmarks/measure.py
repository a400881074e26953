"""Measuring: sides that alternate, and the fastest of their runs, on machines where nothing else can be compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

# rows and columns of the matrix product that stands for what the machine can do
LARGE = 1024


def fastest(sides: Sequence[Callable[[], object]], seconds: float, least: int = 3) -> list[float]:
    """Seconds that each side takes, the fastest of its runs.

    Arguments:
        sides: What to run, one after the other and again.
        seconds: How long to go on.
        least: Runs of each side, however long they take.
    """
    best = [float("inf")] * len(sides)
    for side in sides:
        side()
    start, rounds = time.perf_counter(), 0
    while rounds < least or time.perf_counter() - start < seconds:
        for index, side in enumerate(sides):
            began = time.perf_counter()
            side()
            best[index] = min(best[index], time.perf_counter() - began)
        rounds += 1
    return best


def large_product(dtype: torch.dtype) -> Callable[[], object]:
    """The matrix product itself, to be measured among the sides."""
    left, right = torch.randn(2, LARGE, LARGE, dtype=dtype)
    out = torch.empty_like(left)
    return lambda: torch.matmul(left, right, out=out)


def rate(seconds: float) -> float:
    """Operations per second, from the time of `large_product`."""
    return 2 * LARGE**3 / seconds
