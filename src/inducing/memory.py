"""Reuse of freed memory during training and prediction.

The C library returns large freed blocks to the operating system at once. A training step frees and allocates the same
large tensors again, and so does the prediction of a batch. The operating system clears each of their pages when it is
touched. On images this takes up to a third of the time of a step, and half of the time of a prediction. Inside
`keeping_memory` the GNU C library keeps freed blocks for the next step or batch. Afterwards
free memory is returned, and the thresholds become the library's upper limits, since the earlier values cannot be read.
Results do not change. Other C libraries, and settings of the user by environment variables, are left alone.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

# parameters of mallopt, from malloc.h of the GNU C library
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
LARGEST_INT = 2**31 - 1
# the largest values that the GNU C library chooses by itself
DEFAULTS = {TRIM_THRESHOLD: 2**26, MMAP_THRESHOLD: 2**25}


@cache
def _adjustable_glibc() -> ctypes.CDLL | None:
    """Return the GNU C library, or None if there is another one or the user has set how it allocates."""
    chosen = any(name.startswith("MALLOC_") for name in os.environ) or "malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if sys.platform != "linux" or chosen:
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") and hasattr(library, "mallopt") else None


class _Blocks:
    """The number of active blocks in all Python threads."""

    lock = threading.Lock()
    active = 0


@contextmanager
def keeping_memory() -> Iterator[None]:
    """Keep freed memory for reuse inside the block, and return it to the operating system afterwards."""
    library = _adjustable_glibc()
    if library is None:
        yield
        return
    with _Blocks.lock:
        _Blocks.active += 1
        if _Blocks.active == 1:
            for parameter in DEFAULTS:
                library.mallopt(parameter, LARGEST_INT)
    try:
        yield
    finally:
        with _Blocks.lock:
            _Blocks.active -= 1
            if _Blocks.active == 0:
                for parameter, value in DEFAULTS.items():
                    library.mallopt(parameter, value)
                library.malloc_trim(0)


def keeping_memory_for(num_batches: int) -> AbstractContextManager[None]:
    """`keeping_memory` for work on several batches. One batch has nothing to reuse."""
    return keeping_memory() if num_batches > 1 else nullcontext()
