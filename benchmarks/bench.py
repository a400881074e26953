"""Speed, side by side: ratios within one run, bigger is better.

    python -m benchmarks.bench                     # all workloads: results.json, results.md
    python -m benchmarks.bench toy dgp-2           # some of them; the others keep what was measured before
    python -m benchmarks.bench toy --quick         # one run of each side, to see that it works; stores nothing
    python -m benchmarks.bench --profile           # where the time of our side goes: docs/speed.md
    python -m benchmarks.bench --growth            # how the cost grows: growth.md

Each workload is measured with one and with two threads, each in fresh processes that have their settings before torch
starts. In a process the two sides and a large matrix product alternate, so that all of them meet the same conditions. A
ratio is the median over all rounds, with its quartiles.

A busy machine makes the figures worthless, and not equally for both sides: threads that wait for each other lose a slice
of the scheduler at each parallel operation. Results are stored only if other processes used next to nothing of the machine
before, after and meanwhile, if no side waited for a core, and if the runs of a side are alike.
Otherwise the figures and the reason are printed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.machine import (
    IDLE_SECONDS,
    available_cores,
    describe,
    describe_other_work,
    other_cores_while_idle,
)
from benchmarks.measure import Timing
from benchmarks.processes import WorkerError, run_worker, threads
from benchmarks.workloads import WORKLOADS
from inducing.files import write_atomically

ROOT = Path(__file__).parents[1]
RESULTS, TABLE = ROOT / "benchmarks" / "results.json", ROOT / "benchmarks" / "results.md"
GROWTH, PROFILES = ROOT / "benchmarks" / "growth.md", ROOT / "docs" / "speed.md"
THREADS = (1, 2)
# where matrices lie in memory changes the time of a side by up to a third, and stays the same within a process
PROCESSES = 2

Files = dict[Path, str]


def measure(name: str, num_threads: int, seconds: float, *, quick: bool) -> tuple[dict[str, Any], list[str]]:
    """Measure a workload with a number of threads; the result, and why it does not count, if it does not."""
    timings, other_cores, wait_policy = [Timing(), Timing(), Timing()], [], ""
    processes, least = (1, 1) if quick else (PROCESSES, 3)
    options = [f"--seconds={seconds / processes}", f"--least={least}", f"--threads={num_threads}"]
    for _ in range(processes):
        found, cores = run_worker("compare", [name, *options], threads(num_threads))
        sides = [Timing(**found[side]) for side in ("ours", "other", "product")]
        timings = [old + new for old, new in zip(timings, sides, strict=True)]
        other_cores.append(cores)
        wait_policy = found["wait_policy"]
    ours, other, _ = timings
    reasons = [reason for cores in other_cores for reason in describe_other_work("meanwhile", cores)]
    reasons += [*ours.disturbances("our side"), *other.disturbances("the other side")]
    settings = {"other_cores": other_cores, "wait_policy": wait_policy}
    return results.summarise(name, *timings) | settings, reasons


def compare(names: list[str], seconds: float, *, quick: bool) -> tuple[Files, list[str]]:
    """Measure workloads; the files with those that count, and why the others do not."""
    stored = {result["workload"]: result for result in json.loads(RESULTS.read_text())}
    machine, all_reasons = describe(), []
    for name in names:
        found, reasons = {}, []
        for number in (number for number in THREADS if number <= available_cores()):
            found[str(number)], disturbances = measure(name, number, seconds, quick=quick)
            reasons += [f"{name}, threads {number}: {reason}" for reason in disturbances]
            ratio = "{:.2f} ({:.2f} to {:.2f})".format(
                found[str(number)]["ratio"], *found[str(number)]["ratio_quartiles"]
            )
            print(f"{name:22} threads {number}  ratio {ratio}  target {WORKLOADS[name].target}", flush=True)
        if not reasons:
            stored[name] = {"workload": name, "machine": machine, "threads": found}
        all_reasons += reasons
    ordered = [stored[name] for name in WORKLOADS if name in stored]
    return {RESULTS: json.dumps(ordered, indent=1) + "\n", TABLE: results.page(ordered)}, all_reasons


def make_page(module: str, arguments: list[str], path: Path) -> tuple[Files, list[str]]:
    """Have a worker make a page, on as many threads as there are; and why it does not count, if it does not."""
    found, cores = run_worker(module, arguments, threads(min(max(THREADS), available_cores())))
    print(found["page"], flush=True)
    return {path: found["page"]}, describe_other_work("meanwhile", cores)


def main(command_line: list[str] | None = None) -> int:
    """Measure, profile, or see how the cost grows; 1 if other work on the machine kept a result from being stored."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", help=f"which; the default is all: {', '.join(WORKLOADS)}")
    parser.add_argument("--seconds", type=float, default=6.0, help="for each workload and number of threads")
    parser.add_argument("--quick", action="store_true", help="a single run of everything; stores nothing")
    parser.add_argument("--profile", action="store_true", help="where the time goes, into docs/speed.md")
    parser.add_argument("--growth", action="store_true", help="step time against M, width, depth, S and data")
    arguments = parser.parse_args(command_line)
    unknown = set(arguments.workloads) - set(WORKLOADS)
    if unknown:
        parser.error(f"unknown workload {', '.join(sorted(unknown))}; known are {', '.join(WORKLOADS)}")
    if arguments.workloads and (arguments.growth or (arguments.profile and not arguments.quick)):
        parser.error("a page of all workloads is made; leave out their names")
    if arguments.seconds < 0:
        parser.error(f"--seconds must not be negative, got {arguments.seconds}")
    names, seconds = arguments.workloads or list(WORKLOADS), 0.0 if arguments.quick else arguments.seconds

    whole_run = describe_other_work("before the run", other_cores_while_idle(IDLE_SECONDS))
    try:
        if arguments.profile:
            files, reasons = make_page("profiles", names, PROFILES)
        elif arguments.growth:
            files, reasons = make_page("growth", [f"--seconds={seconds}"], GROWTH)
        else:
            files, reasons = compare(names, seconds, quick=arguments.quick)
    except WorkerError as error:
        parser.exit(2, f"{error}\n")
    whole_run += describe_other_work("after the run", other_cores_while_idle(IDLE_SECONDS, max(THREADS)))

    for reason in [*whole_run, *reasons]:
        print(f"disturbed: {reason}", flush=True)
    if arguments.quick:
        print("nothing was stored: --quick", flush=True)
        return 0
    # a page is stored as a whole, workloads one by one
    if whole_run or (reasons and TABLE not in files):
        print("nothing was stored: repeat this on a machine that does nothing else", flush=True)
        return 1
    for path, text in files.items():
        write_atomically(path, text.encode())
    if reasons:
        print("disturbed workloads were not stored: repeat them on a machine that does nothing else", flush=True)
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main())
