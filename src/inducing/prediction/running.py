"""Draw functions from a posterior, and evaluate them at many rows with several threads.

The number of threads of a draw follows from its work. Rows are divided into pieces. Each thread runs the next piece from
start to end with one torch thread, so no thread waits for another. There are as many threads as cores that other programs
leave free. The pieces depend only on the functions and the rows, so outputs do not depend on the number of threads.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.inference.mixtures import Mixture
from inducing.inference.updating import UpdatedNetwork
from inducing.memory import keeping_memory_for
from inducing.nn.draw import FunctionSamples
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.threads import DEFAULT_COUNT, available_cores, threads_for_samples, threads_of_user, using_threads
from inducing.waiting import can_switch, count_runnable

# multiplications in a piece, assuming one for each row and stored number: a few milliseconds
MULTIPLICATIONS_PER_PIECE = 5e7
# rows of a piece, for functions of any size
LEAST_ROWS, MOST_ROWS = 16, 4096


def draw_functions(
    network: Network | UpdatedNetwork | Mixture, likelihood: Likelihood, num_samples: int, seed: int, **part: int
) -> FunctionSamples:
    """Draw functions from the posterior of a network, or a part of those of a `Mixture`."""
    count = threads_for_samples(num_samples, lambda: network.sample_functions(1, 0, likelihood))
    with using_threads(count):
        return network.sample_functions(num_samples, seed, likelihood, **part)


def run_functions(
    functions: FunctionSamples, x: Float[Tensor, "B *in"], batch_size: int | None = None
) -> Float[Tensor, "S B *out"]:
    """Return the outputs of the functions at all rows, without gradients.

    Arguments:
        functions: The functions.
        x: Inputs, on any device.
        batch_size: Maximum number of rows to run at a time in a thread. Default: chosen by the size of the functions; all
            rows on devices other than the CPU.
    """
    device = functions.device
    if device.type != "cpu":
        with torch.no_grad():
            return torch.cat([functions(rows.to(device)) for rows in x.split(batch_size or max(len(x), 1))], 1)
    numbers = sum(tensor.numel() for tensor in functions.buffers())
    size = int(min(max(MULTIPLICATIONS_PER_PIECE / max(numbers, 1), LEAST_ROWS), MOST_ROWS))
    pieces = x.split(min(size, batch_size or size))

    def run(rows: Tensor) -> Tensor:
        # no_grad and the number of torch threads are set for each Python thread
        with torch.no_grad(), using_threads(1):
            return functions(rows.to(device))

    count = min(len(pieces), threads_of_user() or _free_cores())
    if torch.is_autocast_enabled("cpu"):
        # autocasting is set for each Python thread
        count = 1
    with keeping_memory_for(len(pieces)):
        if count <= 1:
            return torch.cat([run(rows) for rows in pieces], 1)
        with ThreadPoolExecutor(count) as pool:
            return torch.cat(list(pool.map(run, pieces)), 1)


def _free_cores() -> int:
    """Estimate the number of free cores: the available ones minus other runnable tasks of the machine, at least one."""
    cores = min(DEFAULT_COUNT, available_cores())
    # this thread is runnable, too
    return max(1, cores - (count_runnable() - 1)) if can_switch() else cores
