"""Sweeps: run those configurations of an experiment that the store does not hold yet.

They run here, in one process or several, or on a cluster (`inducing.experiments.cluster`).
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from joblib import Parallel, delayed
from rich.console import Console

from inducing.experiments import cluster
from inducing.experiments.experiment import Experiment
from inducing.experiments.registry import EXPERIMENTS
from inducing.experiments.store import Store, config_key
from inducing.files import check_writable
from inducing.inference.distributed import Ranks, join, quiet
from inducing.inference.state import DivergenceError


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
) -> list[dict[str, Any]]:
    """Run an experiment and report it; return the results of its configurations.

    Under `torchrun` all processes do each run together. The first decides what is run, writes and reports; the others
    follow, and return nothing.

    Arguments:
        experiment: Which one.
        preset: "smoke", "cpu" or "paper".
        out: Folder for the store, the checkpoints of unfinished runs, and the figure.
        jobs: Runs to do at a time, each in a process of its own if there are several.
        resume: Whether to keep what the store holds; otherwise the runs asked for are done again.
        only: Values of configuration keys to keep.
        dask: Address of the scheduler of a Dask cluster that does the runs, e.g. "tcp://10.0.0.1:8786".
        console: Where to print.
    """
    console = console or Console()
    if dask is not None and jobs > 1:
        raise ValueError("the runs are either jobs here or on a Dask cluster; give one of --jobs and --dask")
    ranks = join()
    if ranks.size > 1 and (jobs > 1 or dask is not None):
        raise ValueError(f"the {ranks.size} processes of torchrun do each run together; leave out --jobs and --dask")
    everything = experiment.configs(preset)
    configs = [config for config in everything if _matches(dataclasses.asdict(config), only or {})]
    if not configs:
        there = {key: dict.fromkeys(str(getattr(config, key)) for config in everything) for key in experiment.grid}
        values = "; ".join(f"{key} {', '.join(known)}" for key, known in there.items())
        raise ValueError(f"no run of {experiment.name} in preset {preset} has {only}; there are {values}")
    if not ranks.first:
        _follow(experiment, ranks)
        return []
    store = Store(out / f"{experiment.name}.jsonl")
    out.mkdir(parents=True, exist_ok=True)
    # a quick look does not overwrite the figure of whole runs
    figure = out / f"{experiment.name}{'-smoke' if preset == 'smoke' else ''}.png"
    for path in (store.path, figure):
        check_writable(path)
    before = store.results() if resume else {}
    trials = list(dict.fromkeys(trial for config in configs for trial in experiment.trials(config)))
    console.print(f"[bold]{experiment.name}[/bold]: {experiment.title}")
    console.print(f"{len(configs)} runs, {len(finished(experiment, configs, before))} finished before", highlight=False)
    failed: list[str] = []
    # trials first: they decide the settings of the others, and are often one of them
    for stage in (trials, configs):
        known = store.results()
        settled = [experiment.settle(config, known) for config in stage]
        todo = [dataclasses.asdict(config) for config in settled if config is not None]
        todo = [config for config in todo if config_key(config) not in before]
        if stage is trials and todo:
            console.print(f"{len(todo)} runs on split 0 to choose settings by the ELBO", highlight=False)
        failed += _run_all(experiment.name, todo, store, jobs, resume, dask, console)
        before = store.results() if resume else {config_key(config): config for config in todo}
    ranks.broadcast(None)
    results = store.results()
    if failed:
        waiting = sum(experiment.settle(config, results) is None for config in configs)
        others = f"{waiting} runs wait for their trials" if waiting else "all others are finished"
        raise DivergenceError(f"{len(failed)} runs failed, {others}: " + "; ".join(failed))
    # the figure shows all that is finished, also what was not asked for this time
    experiment.report(finished(experiment, everything, results), figure, console)
    deviations = experiment.deviations(preset)
    if deviations:
        console.print(f"[dim]preset {preset}: " + "; ".join(deviations) + "[/dim]", highlight=False)
    return finished(experiment, configs, results)


def _follow(experiment: Experiment, ranks: Ranks) -> None:
    """Do each run that rank 0 does, until there are no more."""
    while (task := ranks.broadcast(None)) is not None:
        config, checkpoint = task
        # all ranks diverge together, and the first one tells
        with suppress(DivergenceError), quiet(True):
            experiment.run(experiment.config(**config), Path(checkpoint), False)


def finished(
    experiment: Experiment, configs: Sequence[Any], results: Mapping[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """The results of those configurations that have one."""
    settled = [experiment.settle(config, results) for config in configs]
    keys = [config_key(dataclasses.asdict(config)) for config in settled if config is not None]
    return [results[key] for key in keys if key in results]


def _run_all(
    name: str,
    configs: list[dict[str, Any]],
    store: Store,
    jobs: int,
    resume: bool,
    dask: str | None,
    console: Console,
) -> list[str]:
    """Do all runs, those that another process is at last; go on after one that diverges, and return what failed."""
    failed = []
    for wait in (False, True):
        left = []
        for done, (config, outcome) in enumerate(_run_each(name, configs, store, jobs, resume, wait, dask, console), 1):
            if outcome == "busy":
                left.append(config)
                continue
            console.print(
                f"[{done}/{len(configs)}] {_describe(name, config)}: {outcome}", highlight=False, markup=False
            )
            if not outcome.endswith(" s"):
                failed.append(f"{_describe(name, config)}: {outcome}")
        configs = left
    return failed


def _run_each(
    name: str,
    configs: list[dict[str, Any]],
    store: Store,
    jobs: int,
    resume: bool,
    wait: bool,
    dask: str | None,
    console: Console,
) -> Iterator[tuple[dict[str, Any], str]]:
    if not configs:
        return
    if dask is not None:
        yield from cluster.run_each(dask, name, configs, store, resume, wait)
        return
    if jobs == 1:
        for config in configs:
            yield _run_one(name, config, store.path, resume, wait, threads=None, progress=console.is_terminal)
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    yield from Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)(
        delayed(_run_one)(name, config, store.path, resume, wait, threads, False) for config in configs
    )


def _run_one(
    name: str, config: dict[str, Any], path: Path, resume: bool, wait: bool, threads: int | None, progress: bool
) -> tuple[dict[str, Any], str]:
    """Do one run and put it into the store, unless another process has done so; say how long it took, or what happened.

    Its checkpoints go when it is finished.
    """
    if threads is not None:
        torch.set_num_threads(threads)
        threading.Thread(target=_leave_with_parent, args=(os.getppid(),), daemon=True).start()
    experiment = EXPERIMENTS[name]
    checkpoint = Store(path).checkpoint(config)
    try:
        with FileLock(checkpoint.with_suffix(".lock"), timeout=-1 if wait else 0):
            if resume and config_key(config) in Store(path).results():
                return config, "0 s"
            if not resume:
                shutil.rmtree(checkpoint, ignore_errors=True)
            start = time.perf_counter()
            join().broadcast([config, str(checkpoint)])
            metrics = experiment.run(experiment.config(**config), checkpoint, progress)
            seconds = time.perf_counter() - start
            Store(path).add(config, metrics, seconds)
            shutil.rmtree(checkpoint, ignore_errors=True)
    except Timeout:
        return config, "busy"
    except DivergenceError as error:
        return config, str(error)
    checkpoint.with_suffix(".lock").unlink(missing_ok=True)
    return config, f"{seconds:.0f} s"


def _leave_with_parent(parent: int) -> None:
    """A worker whose parent was killed must not go on by itself: it would hold the locks of its run."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _describe(name: str, config: dict[str, Any]) -> str:
    return " ".join(f"{key}={config[key]}" for key in EXPERIMENTS[name].grid)


def parse_only(text: str | None, experiment: Experiment) -> dict[str, Any]:
    """Read ``key=value,key=value``; values are JSON, or else strings."""
    known = [field.name for field in dataclasses.fields(experiment.config)]
    wanted = {}
    for part in (text or "").split(",") if text else []:
        key, separator, value = part.partition("=")
        if not separator or key.strip() not in known or key.strip() in wanted:
            raise ValueError(
                f"--only takes key=value,... once each, with keys of {experiment.name}: {', '.join(known)}; got {part!r}"
            )
        try:
            wanted[key.strip()] = json.loads(value)
        except ValueError:
            wanted[key.strip()] = value.strip()
    return wanted


def _matches(config: Mapping[str, Any], only: Mapping[str, Any]) -> bool:
    return all(config[key] == value for key, value in only.items())
