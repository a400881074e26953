"""Sweeps: run those configurations of an experiment that the store does not hold yet."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from joblib import Parallel, delayed
from rich.console import Console

from inducing.experiments.experiment import Experiment
from inducing.experiments.registry import EXPERIMENTS
from inducing.experiments.store import Store, config_key
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
        console: Where to print.
    """
    console = console or Console()
    ranks = join()
    if ranks.size > 1 and jobs > 1:
        raise ValueError(
            f"--jobs {jobs} under torchrun: its {ranks.size} processes do each run together; leave --jobs out"
        )
    everything = [dataclasses.asdict(config) for config in experiment.configs(preset)]
    configs = [config for config in everything if _matches(config, only or {})]
    if not configs:
        there = {key: dict.fromkeys(str(config[key]) for config in everything) for key in experiment.grid}
        values = "; ".join(f"{key} {', '.join(known)}" for key, known in there.items())
        raise ValueError(f"no run of {experiment.name} in preset {preset} has {only}; there are {values}")
    if not ranks.first:
        _follow(experiment, ranks)
        return []
    store = Store(out / f"{experiment.name}.jsonl")
    out.mkdir(parents=True, exist_ok=True)
    before = store.results() if resume else {}
    missing = [config for config in configs if config_key(config) not in before]
    console.print(f"[bold]{experiment.name}[/bold]: {experiment.title}")
    console.print(f"{len(configs)} runs, {len(configs) - len(missing)} finished before", highlight=False)
    try:
        _run_all(experiment.name, missing, store, jobs, resume, console)
    except DivergenceError:
        ranks.broadcast(None)
        raise
    ranks.broadcast(None)
    results = store.results()
    # the figure shows all that is finished, also what was not asked for this time; a quick look does not overwrite it
    finished = [results[config_key(config)] for config in everything if config_key(config) in results]
    experiment.report(finished, out / f"{experiment.name}{'-smoke' if preset == 'smoke' else ''}.png", console)
    deviations = experiment.deviations(preset)
    if deviations:
        console.print(f"[dim]preset {preset}: " + "; ".join(deviations) + "[/dim]", highlight=False)
    return [results[config_key(config)] for config in configs]


def _follow(experiment: Experiment, ranks: Ranks) -> None:
    """Do each run that rank 0 does, until there are no more."""
    while (task := ranks.broadcast(None)) is not None:
        config, checkpoint = task
        # all ranks diverge together, and the first one tells
        with suppress(DivergenceError), quiet(True):
            experiment.run(experiment.config(**config), Path(checkpoint), False)


def _run_all(name: str, configs: list[dict[str, Any]], store: Store, jobs: int, resume: bool, console: Console) -> None:
    """Do all runs, those that another process is at last; go on after one that diverges, and tell in the end."""
    failed = []
    for wait in (False, True):
        left = []
        for done, (config, outcome) in enumerate(_run_each(name, configs, store, jobs, resume, wait, console), 1):
            if outcome == "busy":
                left.append(config)
                continue
            console.print(
                f"[{done}/{len(configs)}] {_describe(name, config)}: {outcome}", highlight=False, markup=False
            )
            if not outcome.endswith(" s"):
                failed.append(f"{_describe(name, config)}: {outcome}")
        configs = left
    if failed:
        raise DivergenceError(f"{len(failed)} runs failed, all others are finished: " + "; ".join(failed))


def _run_each(
    name: str, configs: list[dict[str, Any]], store: Store, jobs: int, resume: bool, wait: bool, console: Console
) -> Iterator[tuple[dict[str, Any], str]]:
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
    checkpoint = path.parent / "checkpoints" / f"{name}-{config_key(config)}"
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
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
