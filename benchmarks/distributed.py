"""What a step costs each process, and what the processes tell each other.

    python benchmarks/distributed.py
    torchrun --standalone --nproc-per-node 2 benchmarks/distributed.py

Machines are shared and noisy, so work is CPU time of this process, which another process does not change much; messages are
wall time, the smallest and the median of many. One JSON object a line; rank 0 prints.
"""

from __future__ import annotations

import itertools
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable

import torch

import inducing
from inducing.inference.parallel.ranks import Ranks, join

MESSAGES = (1_000, 100_000, 10_000_000)


def problem(name: str) -> tuple[inducing.Network, inducing.Categorical | inducing.Gaussian, tuple, dict]:
    """A network, a likelihood, data, and settings of the recipe."""
    torch.manual_seed(0)
    if name == "table":
        x = torch.randn(10_000, 9)
        y = x[:, :1].sin()
        network = inducing.models.mlp(9, 1, [50, 50], inducing_points=x[:100], inducing_targets=y[:100])
        return network, inducing.Gaussian(), (x, y), {"num_samples": 10, "batch_size": 10_000}
    x, y = torch.randn(500, 1, 28, 28), torch.randint(0, 10, (500,))
    network = inducing.models.lenet(channels=16, inducing_points=x[:20], inducing_targets=y[:20])
    return network, inducing.Categorical(), (x, y), {"num_samples": 2, "batch_size": 500}


def timed(repeats: int, work: Callable[[], None]) -> list[float]:
    """CPU milliseconds of each call, after one to warm up."""
    work()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(1e3 * (time.process_time() - start))
    return times


def steps(name: str, parallel: str, ranks: Ranks) -> dict:
    """CPU time of steps as `fit` takes them, and of that the part that is done for the inducing points alone."""
    network, likelihood, data, settings = problem(name)
    marks: list[float] = []
    inducing.fit(
        network,
        likelihood,
        data,
        num_steps=9,
        early_samples=None,
        parallel=parallel,
        progress=False,
        # rank 0 alone calls it, and rank 0 alone prints
        callbacks=lambda record: marks.append(time.process_time()),
        **settings,
    )

    def inducing_pass() -> None:
        share = -(-settings["num_samples"] // ranks.size) if parallel == "samples" else settings["num_samples"]
        sum(layer.kl.mean() for layer in network.draw(share, closed_form_kl=True).layers).backward()

    each = [1e3 * (b - a) for a, b in itertools.pairwise(marks)]
    count = sum(p.numel() for p in (*network.parameters(), *likelihood.parameters()) if p.requires_grad)
    return {
        "problem": name,
        "processes": ranks.size,
        "parallel": parallel,
        "parameters": count,
        "step_cpu_ms": round(statistics.median(each), 1) if each else None,
        "inducing_pass_cpu_ms": round(statistics.median(timed(5, inducing_pass)), 1),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def message(count: int, ranks: Ranks) -> dict:
    """Wall time of one sum over all ranks."""
    values, times = torch.ones(count), []
    for _ in range(30):
        ranks.maximum(0)
        start = time.perf_counter()
        ranks.sum(values)
        times.append(1e3 * (time.perf_counter() - start))
        values.fill_(1.0)
    return {"floats": count, "processes": ranks.size, "min_ms": min(times), "median_ms": statistics.median(times)}


def main() -> None:
    """Measure everything."""
    torch.set_num_threads(1)
    ranks = join()
    rows = [steps(name, way, ranks) for name in ("table", "images") for way in ("data", "samples")]
    if ranks.size > 1:
        rows += [message(count, ranks) for count in MESSAGES]
    if ranks.first:
        sys.stdout.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
