"""Speed, side by side: ratios within one run, bigger is better.

    python -m benchmarks.bench                     # all workloads: results.json, results.md
    python -m benchmarks.bench toy dgp-2           # some of them; the others keep what was measured before
    python -m benchmarks.bench --profile           # where the time of our side goes: docs/speed.md
    python -m benchmarks.bench --growth            # how the cost grows: growth.md

Both sides run in the same process, one after the other and again, and the fastest of their runs is compared: absolute
times on shared machines are noise. A training step is forward, backward and optimiser, in float32 on two threads, which
wait for each other as torch has them do by default: where another program has taken a core, that costs both sides a slice
of the scheduler at every parallel operation (OMP_WAIT_POLICY=passive avoids it, and costs many short operations more than
few long ones). The large matrix product that the floor is measured by runs among them.
"""

from __future__ import annotations

import argparse
import json
import platform
import warnings
from pathlib import Path
from typing import Any

import torch

from benchmarks import growth, profiles
from benchmarks.measure import fastest, large_product, rate
from benchmarks.workloads import WORKLOADS
from inducing.files import write_atomically

ROOT = Path(__file__).parents[1]
RESULTS, TABLE = ROOT / "benchmarks" / "results.json", ROOT / "benchmarks" / "results.md"
GROWTH, PROFILES = ROOT / "benchmarks" / "growth.md", ROOT / "docs" / "speed.md"


def measure(name: str, seconds: float) -> dict[str, Any]:
    """The two sides of a workload and the large product, the fastest of each."""
    workload = WORKLOADS[name]
    ours, other, product = fastest([*workload.build(), large_product(workload.dtype)], seconds)
    return {
        "workload": name,
        "ratio": other / ours,
        "target": workload.target,
        "floor_ratio": workload.operations / rate(product) / ours,
        "milliseconds": 1e3 * ours,
        "other_milliseconds": 1e3 * other,
        "gigaflops": rate(product) / 1e9,
        "threads": torch.get_num_threads(),
    }


def page(results: list[dict[str, Any]]) -> str:
    """The table as Markdown."""
    lines = [
        "# Speed, side by side",
        "",
        f"Made by `make bench` with torch {torch.__version__} on {platform.machine()}. Ratio: time of the other side",
        "over ours, the fastest of runs that alternate. Floor: the time that the necessary operations would take at the",
        "rate of a large matrix product (last column, in the dtype that the work is done in), over ours; elementwise",
        "work, noise and the optimiser are not counted, so 1 cannot be reached. Deep Gaussian processes work in float64.",
        "",
        "| workload | against | ratio | target | reached | floor | ours, ms | other, ms | threads | Gflop/s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for r in results:
        workload = WORKLOADS[r["workload"]]
        lines.append(
            f"| `{r['workload']}`: {workload.what} | {workload.other} | {r['ratio']:.2f} | {r['target']} | "
            f"{'yes' if r['ratio'] >= r['target'] else 'no'} | {r['floor_ratio']:.3f} | {r['milliseconds']:.1f} | "
            f"{r['other_milliseconds']:.1f} | {r['threads']} | {r['gigaflops']:.0f} |"
        )
    return "\n".join([*lines, ""])


def run(names: list[str], seconds: float) -> None:
    """Measure workloads, and write each as soon as it is known."""
    stored = {r["workload"]: r for r in json.loads(RESULTS.read_text())} if RESULTS.exists() else {}
    for name in names:
        stored[name] = result = measure(name, seconds)
        verdict = "reached" if result["ratio"] >= result["target"] else "missed"
        print(f"{name:20} {result['ratio']:7.2f}  target {result['target']:5}  {verdict}", flush=True)  # noqa: T201
        ordered = [stored[key] for key in WORKLOADS if key in stored]
        write_atomically(RESULTS, (json.dumps(ordered, indent=1) + "\n").encode())
        write_atomically(TABLE, page(ordered).encode())


def main() -> None:
    """Measure, profile, or see how the cost grows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", help=f"which; the default is all: {', '.join(WORKLOADS)}")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each workload")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--profile", action="store_true", help="where the time goes, into docs/speed.md")
    parser.add_argument("--growth", action="store_true", help="step time against M, width, depth, S and data")
    arguments = parser.parse_args()
    unknown = set(arguments.workloads) - set(WORKLOADS)
    if unknown:
        parser.error(f"unknown workload {', '.join(sorted(unknown))}; known are {', '.join(WORKLOADS)}")
    torch.set_num_threads(arguments.threads)
    warnings.filterwarnings("ignore", message=".*inducing points for.*data points")
    names = arguments.workloads or list(WORKLOADS)
    if arguments.profile:
        write_atomically(PROFILES, profiles.page(names).encode())
    elif arguments.growth:
        write_atomically(GROWTH, growth.page(arguments.seconds).encode())
    else:
        run(names, arguments.seconds)


if __name__ == "__main__":
    main()
