"""Threads on an idle machine and beside a busy process: what the default costs against the best explicit setting.

    python -m benchmarks.threads                   # everything, about ten minutes: threads.json, threads.md
    python -m benchmarks.threads bnn-fit --quick   # a task with few steps, to see that it works; stores nothing

Each measurement is a fresh process with its settings made before torch starts. The busy process is a loop of Python that
this program starts itself. "default" is a process that imports inducing first and sets nothing. The explicit settings import
torch first and fix the number of threads. Without a wait policy, inducing still switches spinning by the load. Settings take
turns, and times are medians over all runs.
Results are stored only if other processes used next to nothing of the machine; otherwise the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import IDLE_SECONDS, describe, describe_other_work, heading, other_cores_while_idle
from benchmarks.measure import Timing, quartiles
from benchmarks.processes import WorkerError, run_worker, threads
from benchmarks.thread_tasks import TASKS, openmp_runtime
from inducing.files import write_atomically

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "threads.json", ROOT / "benchmarks" / "threads.md"
# the time of the default over that of the best explicit setting
WANTED = 1.3
# busy loops beside the task
CONDITIONS = {"idle machine": 0, "beside a busy process": 1}
# fresh processes for each measurement, and runs in each
ROUNDS, RUNS = 3, 3
DEFAULT = "default"


@dataclass(frozen=True)
class Setting:
    """How a process is started.

    Arguments:
        variables: The environment for threads.
        first: What is imported first.
        num_threads: What torch must have in the end; None where the library decides.
    """

    variables: dict[str, str] = field(default_factory=dict)
    first: str = "torch"
    num_threads: int | None = None


def settings() -> dict[str, Setting]:
    """The settings to compare."""
    return {
        "1 thread": Setting(threads(1), num_threads=1),
        "2 threads": Setting(threads(2), num_threads=2),
        "2 threads, OMP_WAIT_POLICY=passive": Setting(threads(2) | {"OMP_WAIT_POLICY": "passive"}, num_threads=2),
        DEFAULT: Setting(first="inducing"),
    }


def measure(task: str, setting: Setting, neighbours: int, *, quick: bool) -> tuple[Timing, list[str]]:
    """One process; and why its times do not count, if they do not."""
    arguments = [task, f"--runs={1 if quick else RUNS}", *(["--quick"] if quick else [])]
    found, cores = run_worker("thread_tasks", arguments, setting.variables, setting.first, neighbours)
    if setting.num_threads not in (None, found["threads"]):
        raise WorkerError(f"torch had {found['threads']} threads in {task} instead of {setting.num_threads}")
    return Timing(found["wall"], found["cpu"]), describe_other_work("meanwhile", cores)


def compare(tasks: list[str], *, quick: bool) -> tuple[dict[str, Any], list[str]]:
    """All tasks under all conditions with all settings."""
    choices = settings()
    results: dict[str, Any] = {condition: {task: {} for task in tasks} for condition in CONDITIONS}
    reasons = []
    for condition, neighbours in CONDITIONS.items():
        for task in tasks:
            timings = {name: Timing() for name in choices}
            for _ in range(1 if quick else ROUNDS):
                for name, setting in choices.items():
                    timing, disturbances = measure(task, setting, neighbours, quick=quick)
                    timings[name] += timing
                    reasons += [f"{condition}, {task}, {name}: {reason}" for reason in disturbances]
            for name, timing in timings.items():
                results[condition][task][name] = {
                    "median": timing.median,
                    "quartiles": quartiles(timing.wall),
                    "fastest": timing.fastest,
                    "cpu_share": timing.cpu_share,
                }
            print(
                f"{condition}, {task}: default over best {default_over_best(results[condition][task]):.2f}", flush=True
            )
    return {"machine": describe(), "openmp": openmp_runtime(), "seconds": results}, reasons


def default_over_best(times: dict[str, dict[str, Any]]) -> float:
    """The time of the default over that of the best explicit setting."""
    return times[DEFAULT]["median"] / min(time["median"] for name, time in times.items() if name != DEFAULT)


def page(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    tasks = "\n".join(f"- `{name}`: {task.__doc__}" for name, task in TASKS.items())
    lines = [
        "# Threads, on an idle machine and beside a busy process",
        "",
        "Made by `python -m benchmarks.threads` from `threads.json`. Seconds are medians, with quartiles, over runs in",
        "fresh processes. The default sets nothing; the other settings are made in the environment before torch starts.",
        f"Default over best: the default's time over that of the best other setting; wanted is at most {WANTED}.",
        "",
        tasks,
        "",
        f"{heading(results['machine'])}, OpenMP by {results['openmp']}.",
    ]
    for condition, times_by_task in results["seconds"].items():
        names = list(next(iter(times_by_task.values())))
        columns = ["task", *names, "default over best", "reached"]
        lines += ["", f"## {condition.capitalize()}", "", f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
        for task, times in times_by_task.items():
            cells = [
                "{:.2f} ({:.2f} to {:.2f})".format(times[name]["median"], *times[name]["quartiles"]) for name in names
            ]
            ratio = default_over_best(times)
            cells += [f"{ratio:.2f}", "yes" if ratio <= WANTED else "no"]
            lines.append(f"| `{task}` | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def main(command_line: list[str] | None = None) -> int:
    """Measure, print, and store what was measured on a machine without other work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", help=f"which; the default is all: {', '.join(TASKS)}")
    parser.add_argument("--quick", action="store_true", help="few steps and one run; stores nothing")
    arguments = parser.parse_args(command_line)
    unknown = set(arguments.tasks) - set(TASKS)
    if unknown:
        parser.error(f"unknown task {', '.join(sorted(unknown))}; known are {', '.join(TASKS)}")
    if arguments.tasks and not arguments.quick:
        parser.error("a page of all tasks is made; leave out their names, or add --quick")
    reasons = describe_other_work("before the run", other_cores_while_idle(IDLE_SECONDS))
    try:
        results, disturbances = compare(arguments.tasks or list(TASKS), quick=arguments.quick)
    except WorkerError as error:
        parser.exit(2, f"{error}\n")
    reasons += [*disturbances, *describe_other_work("after the run", other_cores_while_idle(IDLE_SECONDS, 2))]
    print(page(results), flush=True)
    for reason in reasons:
        print(f"disturbed: {reason}", flush=True)
    if arguments.quick:
        print("nothing was stored: --quick", flush=True)
        return 0
    if reasons:
        print("nothing was stored: repeat this on a machine that does nothing else", flush=True)
        return 1
    write_atomically(RESULTS, (json.dumps(results, indent=1) + "\n").encode())
    write_atomically(PAGE, page(results).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
