"""The number of threads of a computation.

`fit`, `evaluate`, and `predict` when it draws functions use several threads only for large computations. The number depends
on the computation and the number of cores, but not on timings or the load, since sums are rounded differently with another
number of threads. Whether waiting threads spin or sleep depends on the load of the machine (`inducing.waiting`). This does
not change results.

Settings of the user have priority: the environment variables below, and `torch.set_num_threads` with a number other than
the default. `import inducing` imports this module before torch.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

# read by the OpenMP library when torch loads it
WAIT_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
COUNT_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")

IMPORTED_BEFORE_TORCH = "torch" not in sys.modules
# a process that a process of ours has started has inherited its setting
WAITING_IS_CHOSEN = {name: os.environ[name] for name in WAIT_VARIABLES if name in os.environ} not in (
    {},
    {"KMP_BLOCKTIME": "0"},
)
if IMPORTED_BEFORE_TORCH and not WAITING_IS_CHOSEN:
    # GNU's OpenMP, on Linux, can be switched later; others are told now to sleep
    os.environ |= {"KMP_BLOCKTIME": "0"} if sys.platform == "linux" else {"OMP_WAIT_POLICY": "passive"}

import torch  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.flop_counter import flop_registry  # noqa: E402

from inducing.waiting import can_switch, waiting_by_load  # noqa: E402

DEFAULT_COUNT = torch.get_num_threads()
# floating-point operations per thread for which one more thread pays off (measured by python -m benchmarks.threads)
WORTH_A_THREAD = 1e9


class Work(TorchDispatchMode):
    """Counter of floating-point operations (products, convolutions, factorisations, solves) in a ``with`` block."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0.0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        operator = function.overloadpacket
        if operator in flop_registry:
            self.operations += flop_registry[operator](*args, **kwargs, out_val=result)
        elif operator is torch.ops.aten.linalg_solve_triangular:
            # N^2 for each right-hand side
            self.operations += args[0].shape[-1] * result.numel()
        elif operator is torch.ops.aten.linalg_cholesky_ex:
            self.operations += args[0].shape[-1] * args[0].numel() / 3
        return result


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def threads_of_user() -> int | None:
    """Return the number of threads that the user has set by the environment or by torch, or None."""
    count = _blocks.before if _Blocks.active else torch.get_num_threads()
    cores = available_cores()
    # torch starts one thread for each logical or physical core
    is_default = count == DEFAULT_COUNT and (IMPORTED_BEFORE_TORCH or count in (cores, cores // 2))
    return None if is_default and not any(name in os.environ for name in COUNT_VARIABLES) else count


def most_threads() -> int:
    """Return the number of threads for a large computation."""
    of_user = threads_of_user()
    if of_user is not None:
        return of_user
    # several threads only if spinning can be avoided or the user has chosen how threads wait
    return DEFAULT_COUNT if IMPORTED_BEFORE_TORCH or WAITING_IS_CHOSEN or can_switch() else 1


def threads_for(operations: float) -> int:
    """Return the number of threads for a step, or for drawing functions, with this number of floating-point operations."""
    of_user = threads_of_user()
    return max(1, min(most_threads(), int(operations / WORTH_A_THREAD))) if of_user is None else of_user


def threads_for_samples(num_samples: int, draw_one: Callable[[], object]) -> int:
    """Return the number of threads for this number of posterior samples.

    ``draw_one`` does the work of one sample. It is called once to count the operations.
    """
    most = most_threads()
    if most == 1 or threads_of_user() is not None:
        return most
    with using_threads(1), Work() as work:
        draw_one()
    return threads_for(num_samples * work.operations)


class _Blocks(threading.local):
    """The active blocks of `using_threads`: their number in all Python threads, and the settings of this Python thread.

    torch has a number of threads for each Python thread. A new Python thread starts with the number that was set last.
    """

    lock = threading.Lock()
    active = 0
    outside = 0

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.waiting: list[ExitStack] = []
        # the setting of this Python thread outside all blocks, also if a block of another Python thread is active
        self.before = _Blocks.outside if _Blocks.active else torch.get_num_threads()


_blocks = _Blocks()
if hasattr(os, "register_at_fork"):
    # another thread may hold the lock when a process forks
    os.register_at_fork(after_in_child=_Blocks.lock._at_fork_reinit)  # type: ignore[attr-defined]


@contextmanager
def using_threads(count: int) -> Iterator[None]:
    """Use this number of threads inside a ``with`` block, until `change_threads` sets another."""
    if not _blocks.counts and not _Blocks.active:
        _blocks.before = torch.get_num_threads()
    with _Blocks.lock:
        if not _Blocks.active:
            _Blocks.outside = _blocks.before
        _Blocks.active += 1
    try:
        _blocks.counts.append(count)
        _blocks.waiting.append(ExitStack())
        change_threads(count)
        yield
    finally:
        # what may wait comes last, since Ctrl-C may interrupt it
        _blocks.counts.pop()
        waiting = _blocks.waiting.pop()
        torch.set_num_threads(_blocks.counts[-1] if _blocks.counts else _blocks.before)
        with _Blocks.lock:
            _Blocks.active -= 1
        waiting.close()


def change_threads(count: int) -> None:
    """Set the number of threads for the rest of a block of `using_threads`."""
    _blocks.counts[-1] = count
    torch.set_num_threads(count)
    _blocks.waiting[-1].close()
    if not WAITING_IS_CHOSEN:
        _blocks.waiting[-1].enter_context(waiting_by_load(count))
