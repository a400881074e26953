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

The targets at the edge are `toy`, `uci-shared` and `uci-per-output`. In repeated runs on a quiet machine their ratios were
5.1 to 6.4, 4.6 to 5.9 and 2.7 to 3.5, with our side always at 7, 8 and 19 to 20 ms: the fastest run of the textbook varies
by a third with where its large matrices lie in memory. By medians instead of fastest runs they were 5.8 to 7.3, 5.7 to 6.9
and 3.4 to 3.7; on one thread 6.9 to 7.4, 6.1 to 6.6 and 3.8.

What was tried and gained nothing: a blocked factorisation of the batch (halves and quarters of 51, products in
between: 10.4 to 11.3 microseconds for a matrix against 10.1); a pool of two threads of Python for the batches of LAPACK
calls (8.4 ms to 6.0, 8 % of a step); the bias inside the product (`baddbmm`), and an affine map with a backward by hand;
perturbing the pseudo-outputs and solving, which needs noise for every row (7.2 ms for `toy` against 6.7); larger and
smaller pieces, and fewer copies, in `conv-gram`. Not tried: the symmetric half of the outer products alone, and
`torch.compile`, whose compilation takes longer than most of these networks take to train.
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
