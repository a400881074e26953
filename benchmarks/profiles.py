"""Where the time of a workload goes: the operations that take most of it, by torch's profiler."""

from __future__ import annotations

import argparse
import json
import os
import warnings

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.machine import describe, heading
from benchmarks.workloads import WORKLOADS

NOTES = """# Where the time goes

How fast the library is against other code is in [benchmarks/results.md](../benchmarks/results.md), how the cost grows in
[benchmarks/growth.md](../benchmarks/growth.md). This page says how that is measured, what makes the library fast, and which
operations take the time.

## How it is measured

- `make bench` writes `benchmarks/results.json` and makes the tables of `results.md` from it. Each
  result has the processor, its instruction set, the number of cores and the version of torch with it.
- Each workload is measured with one and with two threads, in two fresh processes each, which have their settings before
  torch starts. After a run of each that is not counted, our side, the other side and a large matrix product take turns.
  The ratio is the median over these rounds, with its quartiles.
- The textbook (`benchmarks/textbook.py`) is a careful plain implementation. It computes once what outputs or samples
  share, its solves are batched, and its optimiser is fused. It has no gradients by hand and no dual form.
- GPyTorch's deep Gaussian process is measured as its documentation builds it, with a kernel and inducing points for each
  output in float32; and with one kernel and one set of inducing points for each layer, as ours has, in float32 and in
  float64. Our processes work in float64. Layers, widths, data, inducing points and samples are the same.
- Results are stored only if the machine does nothing else. Before, after and during each measurement, other processes may
  use at most 0.1 cores (on Linux from `/proc/stat`, elsewhere by the load average before and after). CPU time must be
  at least 0.9 of wall time, and the median run at most 1.5 times the fastest. Otherwise the figures and the reason are
  printed, the disturbed workload is not stored, and the exit code is 1. `--quick` runs everything once and stores nothing.
- `python -m benchmarks.threads` times fits and predictions on an idle machine and beside a busy process, with explicit
  numbers of threads and ways of waiting and with nothing set, and writes `benchmarks/threads.md`.

## What is fast

- `inducing.linalg.reparameterisation`: the gradient of a regression follows the law of its draw, not the noise. A draw
  with mean m and precision A moves by A^-1 (dc - dA (m + w) / 2), which has the right mean and covariance, and the
  gradient of log Q is taken along w alone. There is no derivative of the factor of A, no F x F matrix for each output, and
  no gradient of Gram matrices: what is left costs as much as running the layer twice. It is also quieter. With two samples
  a step, after 1,000 to 1,500 steps and at half the cost of a step, the ELBO per data point was 0.651 and 0.649 against
  0.642 and 0.656 (two seeds) on yacht, -0.655 against -0.655 on boston, 0.826 against 0.751 on energy, where the other
  side is the exact gradient of draws at fixed noise and of the KL in closed form.
- `inducing.linalg.conditional`: where that is not used (convolutions with many patches, Gaussian processes, KLs in closed
  form with F <= n), a backward by hand through N(A^-1 c, A^-1) without a gradient of the factor: one small product and two
  solves from the right, which MKL does two to four times faster than solves from the left.
- `inducing.linalg.gram`: with a precision for each output, the Gram matrices of all outputs are one product of the
  precisions with the outer products of rows, 128 rows at a time, which stay in the cache.
- Samples that share their inputs, in the first layer, share one factorisation, and so do outputs that share a precision.
- The dual form where there are fewer inducing points than features (`wide`).
- The bias as a column of ones, one product instead of a product and a sum; Adam in one fused kernel.

What stays: LAPACK's factorisation of a 51 x 51 matrix takes about 10 microseconds, a thirtieth of the rate of a large
matrix product, and torch does a batch of them one after the other on one thread, then clears the upper triangles in
another pass: together a quarter of `uci-per-output`. Small networks (`toy`, `uci-shared`) are some 700 short calls of torch
for a step, a few microseconds each, and passes over S x B x O activations that are bound by memory: the product that sends
the gradient back through 455 rows takes 0.18 ms alone and 0.75 ms among the others, with its operands out of the cache.

What was tried and gained nothing: a blocked factorisation of the batch (halves and quarters of 51, products in
between: 10.4 to 11.3 microseconds for a matrix against 10.1); a pool of two threads of Python for the batches of LAPACK
calls (8.4 ms to 6.0, 8 % of a step); the bias inside the product (`baddbmm`), and an affine map with a backward by hand;
perturbing the pseudo-outputs and solving, which needs noise for every row (7.2 ms for `toy` against 6.7); larger and
smaller pieces, and fewer copies, in `conv-gram`. Not tried: the symmetric half of the outer products alone, and
`torch.compile`, whose compilation takes longer than most of these networks take to train.

## Which operations take the time

Made by `python -m benchmarks.bench --profile`. Shares are of the time inside torch's operations of our side, profiled over
five runs after two that are not counted.
"""


def page(names: list[str], rows: int = 8) -> str:
    """The profiles of workloads as Markdown."""
    return "\n".join([NOTES, f"Profiled on {heading(describe())}.\n", *(table(name, rows) for name in names)])


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
    lines = [f"### {name}", "", f"{workload.what}; {torch.get_num_threads()} threads.", ""]
    lines += ["| operation | share | calls in a run |", "| --- | --- | --- |"]
    for event in events[:rows]:
        lines.append(f"| `{event.key}` | {event.self_cpu_time_total / total:.0%} | {event.count / 5:.0f} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Print the page in JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="+", choices=WORKLOADS)
    names = parser.parse_args().workloads
    warnings.filterwarnings("ignore", message=".*inducing points for.*data points")
    print(json.dumps({"page": page(names)}))
