"""Where the time of a workload goes: the operations that take most of it, by torch's profiler."""

from __future__ import annotations

import os

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.workloads import WORKLOADS

NOTES = """# Where the time goes

Made by `python -m benchmarks.bench --profile`; the ratios are in [benchmarks/results.md](../benchmarks/results.md), and
how the cost grows in [benchmarks/growth.md](../benchmarks/growth.md). Shares are of the time inside torch's operations of
our side, profiled over five runs after two that are not counted.

What is fast, and where it is written down:

- `inducing.linalg.conditional`: draws from N(A^-1 c, A^-1) with a backward by hand. Autograd makes a gradient of the
  Cholesky factor for each of two solves and for the log-determinant, adds them up and sends the sum through the
  factorisation; here the factor has no gradient, and what is left is one small product and two solves from the right,
  which MKL does two to four times faster than solves from the left.
- `inducing.linalg.gram`: with a precision for each output, the Gram matrices of all outputs are one product of the
  precisions with the outer products of rows, 128 rows at a time, which stay in the cache.
- Samples that share their inputs, in the first layer, share one factorisation, and so do outputs that share a precision.
- The dual form where there are fewer inducing points than features (`wide`).
- Adam in one fused kernel.

What stays: LAPACK's factorisation of a 51 x 51 matrix takes about 10 microseconds, a thirtieth of the rate of a large
matrix product, and torch does a batch of them one after the other on one thread. Passes over S x O matrices of F x F
numbers are bound by memory. Small networks (`toy`, `uci-shared`) are hundreds of short calls of torch for a step.

Targets that were missed, on two cores with much other work: `toy`, `uci-shared` and `uci-per-output`. On one thread and by
processor time, which other work disturbs less, their ratios were 6.6, 5.0 to 6.9, and 2.4 to 2.8 in repeated runs: the
textbook's large operations gain from a second thread, our many small ones do not. Of the time of `uci-per-output` about
a quarter is the hand-written backward (two solves for each of 500 matrices), an eighth the factorisation, a fifth the
Gram matrices, forward and backward.

What was tried and gained nothing: a blocked factorisation of the batch (halves and quarters of 51, products in
between: 10.4 to 11.3 microseconds for a matrix against 10.1); the bias inside the product of `Affine` (`baddbmm`);
gradients of the precisions from outer products of rows. Not tried: the symmetric half of the outer products alone,
batches of LAPACK calls spread over threads of Python, `torch.compile`.
"""


def page(names: list[str], rows: int = 8) -> str:
    """The profiles of workloads as Markdown."""
    return "\n".join([NOTES, *(table(name, rows) for name in names)])


def table(name: str, rows: int) -> str:
    """The operations that take most of the time of our side."""
    # the profiler of torch writes about itself to the standard error
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")
    workload = WORKLOADS[name]
    ours, _ = workload.build()
    for _ in range(2):
        ours()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for _ in range(5):
            ours()
    events = sorted(profiled.key_averages(), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in events)
    lines = [f"## {name}", "", f"{workload.what}; {torch.get_num_threads()} threads.", ""]
    lines += ["| operation | share | calls in a run |", "| --- | --- | --- |"]
    for event in events[:rows]:
        lines.append(f"| `{event.key}` | {event.self_cpu_time_total / total:.0%} | {event.count / 5:.0f} |")
    return "\n".join([*lines, ""])
