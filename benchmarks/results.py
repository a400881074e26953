"""What is kept of a benchmark's runs, and results.md, the page made of it."""

from __future__ import annotations

from typing import Any

from benchmarks.machine import heading
from benchmarks.measure import Timing, quartiles, rate
from benchmarks.workloads import WORKLOADS

INTRODUCTION = """# Speed, side by side

Made by `make bench` from `results.json`. Our side and the other side run in turn on the same machine.

- **ratio**: time of the other side divided by ours, above 1 if ours is faster. Median over rounds, with quartiles.
- **of fastest**: ratio of the fastest runs.
- **target**: the ratio aimed at; **reached** compares the median with it.
- **floor**: the time of the necessary operations at the rate of a large matrix product (last column, in the dtype of the
  work), divided by our time. Elementwise work, noise and the optimiser are not counted, so 1 cannot be reached.
- **ours, other**: median times in milliseconds, with quartiles.

Networks work in float32, our Gaussian processes in float64 except for products with the covariance of the inducing
values. The textbook is `benchmarks/textbook.py`; GPyTorch's model is in `benchmarks/deep_gp.py`.

## Workloads

M is the number of inducing points, S the number of posterior samples. A workload that is missing from the table of a
machine has no stored result.
"""
COLUMNS = (
    *("workload", "threads", "ratio", "of fastest", "target", "reached", "floor", "ours, ms", "other, ms"),
    "Gflop/s",
)


def summarise(name: str, ours: Timing, other: Timing, product: Timing) -> dict[str, Any]:
    """What is stored of the runs of a workload."""
    ratios = Timing([b / a for a, b in zip(ours.wall, other.wall, strict=True)])
    return {
        "ratio": ratios.median,
        "ratio_quartiles": quartiles(ratios.wall),
        "ratio_of_fastest": other.fastest / ours.fastest,
        "floor_ratio": WORKLOADS[name].operations / rate(product.fastest) / ours.median,
        "gigaflops": rate(product.fastest) / 1e9,
        "rounds": len(ours.wall),
        "ours": _times(ours),
        "other": _times(other),
    }


def _times(timing: Timing) -> dict[str, Any]:
    return {
        "median_ms": 1e3 * timing.median,
        "quartiles_ms": [1e3 * value for value in quartiles(timing.wall)],
        "fastest_ms": 1e3 * timing.fastest,
        "cpu_share": timing.cpu_share,
    }


def page(results: list[dict[str, Any]]) -> str:
    """The results as Markdown, a table for each machine."""
    lines = [INTRODUCTION, "| workload | our side | other side |", "| --- | --- | --- |"]
    lines += [f"| `{name}` | {workload.what} | {workload.other} |" for name, workload in WORKLOADS.items()]
    lines.append("")
    if not results:
        lines += ["No results are stored: run `make bench` on a machine that does nothing else.", ""]
    for machine in dict.fromkeys(heading(result["machine"]) for result in results):
        lines += [
            f"## {machine}",
            "",
            f"| {' | '.join(COLUMNS)} |",
            "| --- " + "| ---: " * (len(COLUMNS) - 1) + "|",
        ]
        for result in results:
            if heading(result["machine"]) == machine:
                lines += [_row(result["workload"], number, found) for number, found in result["threads"].items()]
        lines.append("")
    return "\n".join(lines)


def _row(name: str, num_threads: str, found: dict[str, Any]) -> str:
    workload = WORKLOADS[name]
    times = []
    for side in ("ours", "other"):
        median, low, high = (_rounded(time) for time in (found[side]["median_ms"], *found[side]["quartiles_ms"]))
        times.append(f"{median} ({low} to {high})")
    cells = [
        f"`{name}`",
        num_threads,
        "{:.2f} ({:.2f} to {:.2f})".format(found["ratio"], *found["ratio_quartiles"]),
        f"{found['ratio_of_fastest']:.2f}",
        str(workload.target),
        "yes" if found["ratio"] >= workload.target else "no",
        f"{found['floor_ratio']:.3f}",
        *times,
        f"{found['gigaflops']:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _rounded(milliseconds: float) -> str:
    """A time with three digits or to the millisecond, never in scientific notation."""
    return f"{milliseconds:,.0f}" if milliseconds >= 999.5 else f"{milliseconds:.3g}"
