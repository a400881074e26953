"""Sweeps: execute the runs of an experiment that are not in the store yet, and report the results.

Runs are executed in this process, in several processes, or on a Dask cluster (cluster.py).
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from inducing.errors import DivergenceError
from inducing.experiments.engine.cluster import connect
from inducing.experiments.engine.experiment import Experiment, key_of
from inducing.experiments.engine.report import show
from inducing.experiments.engine.runs import Task, processes, run_each, this_process
from inducing.experiments.engine.store import Result, Store
from inducing.files import check_writable
from inducing.inference.parallel.ranks import Ranks, hide_warnings, join
from inducing.threads import available_cores


def reproduce(
    experiment: Experiment,
    preset: str,
    out: Path,
    *,
    jobs: int = 1,
    resume: bool = True,
    only: Mapping[str, Any] | None = None,
    dask: str | None = None,
    console: Console | None = None,
) -> list[Result]:
    """Execute the runs of an experiment, report them and return their results.

    Under `torchrun` all processes execute each run together. Rank 0 chooses the runs and writes the results. The other ranks
    return no results.

    Arguments:
        experiment: The experiment.
        preset: Name of a preset of the experiment.
        out: Folder for the store, the checkpoints of unfinished runs, the page and the figure.
        jobs: Number of runs at a time, each in its own process.
        resume: Whether to keep finished runs. Otherwise they are executed again.
        only: Values of configuration fields. Runs with other values are left out.
        dask: Address of a Dask scheduler whose workers execute the runs, e.g. "tcp://10.0.0.1:8786".
        console: Where to print.
    """
    console = console or Console()
    ranks = join()
    if sum((jobs > 1, dask is not None, ranks.size > 1)) > 1:
        raise ValueError("give only one of --jobs and --dask, and none of them under torchrun")
    everything = experiment.configs(preset)
    configs = [config for config in everything if vars(config).items() >= (only or {}).items()]
    if not configs:
        known = {key: dict.fromkeys(str(getattr(config, key)) for config in everything) for key in experiment.grid}
        values = "; ".join(f"{key} {', '.join(known[key])}" for key in known)
        raise ValueError(f"no run of {experiment.name} in preset {preset} has {only}; available are {values}")
    if not ranks.first:
        _follow(experiment, ranks)
        return []
    store = Store(out / f"{experiment.name}.jsonl")
    out.mkdir(parents=True, exist_ok=True)
    # smoke runs and variants do not replace the page of complete runs
    page = out / f"{experiment.name}{f'-{preset}' if preset in ('smoke', *experiment.variants) else ''}.md"
    for path in (store.path, page, page.with_suffix(".png")):
        check_writable(path)
    console.print(f"[bold]{experiment.name}[/bold]: {experiment.title}")
    executed: set[str] = set()

    def usable() -> dict[str, Result]:
        """Finished runs that are not executed again."""
        found = store.results().items()
        return {key: run for key, run in found if key in executed or (resume and experiment.is_current(run))}

    finished = Counter(run["state"] != "not checked" for run in experiment.finished(configs, usable()))
    unchecked = f", {finished[False]} finished without a check of convergence" if finished[False] else ""
    console.print(f"{len(configs)} runs, {finished[True]} finished before{unchecked}", highlight=False)
    old = sum(not experiment.is_current(run) for run in store.results().values())
    if old and resume:
        console.print(f"{old} stored runs are out of date and do not count", highlight=False)
    failed: list[str] = []
    while True:
        results = usable()
        settled = [experiment.settle(config, results) for config in configs]
        # runs that decide the settings of others come first
        trials = dict.fromkeys(trial for each in settled for trial in each.missing)
        others = dict.fromkeys(each.config for each in settled if each.config is not None)
        done = executed | results.keys()
        deciding = [config for config in trials if key_of(config) not in done]
        todo = deciding or [config for config in others if key_of(config) not in done]
        if not todo:
            break
        if deciding:
            console.print(f"{len(todo)} runs on split 0 to choose settings by the ELBO", highlight=False)
        tasks = [Task(experiment.run, config, store, resume, experiment.since_of(vars(config))) for config in todo]
        failed += _run_all(experiment, tasks, jobs, dask, console)
        executed |= {key_of(config) for config in todo}
    ranks.broadcast(None)
    if failed:
        waiting = sum(each.config is None for each in settled)
        rest = f"{waiting} runs wait for their trials" if waiting else "all others are finished"
        raise DivergenceError(f"{len(failed)} runs failed, {rest}: " + "; ".join(failed))
    # finished runs that `only` leaves out are shown too
    results = store.results()
    shown = experiment.finished(everything, results)
    if preset == "smoke":
        # a test of the program, whose numbers mean nothing
        shown = [result | {"state": "smoke"} for result in shown]
    show(experiment, {preset: shown}, page, console)
    return experiment.finished(configs, results)


def parse_only(text: str | None, experiment: Experiment) -> dict[str, Any]:
    """Parse ``field=value,field=value``. A value is JSON or a string."""
    known = [field.name for field in dataclasses.fields(experiment.paper)]
    only: dict[str, Any] = {}
    for part in text.split(",") if text else []:
        key, separator, value = map(str.strip, part.partition("="))
        if not separator or key not in known or key in only:
            keys = f"{experiment.name}: {', '.join(known)}"
            raise ValueError(f"--only takes key=value,... once each, with keys of {keys}; got {part!r}")
        only[key] = value
        with suppress(ValueError):
            only[key] = json.loads(value)
    return only


def _follow(experiment: Experiment, ranks: Ranks) -> None:
    """Take part in each run of rank 0, until there are no more."""
    while (task := ranks.broadcast(None)) is not None:
        config, checkpoint = task
        # all ranks diverge together, and rank 0 reports it
        with suppress(DivergenceError), hide_warnings(True):
            experiment.run(dataclasses.replace(experiment.paper, **config), Path(checkpoint), False)


def _run_all(experiment: Experiment, tasks: list[Task], jobs: int, dask: str | None, console: Console) -> list[str]:
    """Execute all runs and return the failed ones. Runs of other processes are retried until those end."""
    here = this_process() if jobs == 1 else processes(jobs, max(1, available_cores() // jobs))
    executing = here if dask is None else connect(dask)
    failed = []
    with executing as pool:
        for number, outcome in enumerate(run_each(tasks, pool), 1):
            line = f"{experiment.describe(outcome.config)}: {outcome.detail}"
            console.print(f"[{number}/{len(tasks)}] {line}", highlight=False, markup=False)
            failed += [line] if outcome.failed else []
    return failed
