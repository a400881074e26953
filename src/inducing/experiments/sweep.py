"""Sweeps: run those configurations of an experiment that the store does not hold yet."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed
from rich.console import Console

from inducing.experiments.experiment import Experiment
from inducing.experiments.registry import EXPERIMENTS
from inducing.experiments.store import Store, config_key


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
    configs = [dataclasses.asdict(config) for config in experiment.configs(preset)]
    configs = [config for config in configs if _matches(config, only or {})]
    if not configs:
        raise ValueError(f"no configuration of {experiment.name} has {only}")
    store = Store(out / f"{experiment.name}.jsonl")
    out.mkdir(parents=True, exist_ok=True)
    finished = store.results() if resume else {}
    missing = [config for config in configs if config_key(config) not in finished]
    console.print(f"[bold]{experiment.name}[/bold]: {experiment.title}")
    console.print(f"{len(configs)} runs, {len(configs) - len(missing)} finished before", highlight=False)
    _run_all(experiment.name, missing, store, jobs, resume, console)
    results = store.results()
    chosen = [results[config_key(config)] for config in configs]
    experiment.report(chosen, out, console)
    deviations = experiment.deviations(preset)
    if deviations:
        console.print(f"[dim]preset {preset}: " + "; ".join(deviations) + "[/dim]", highlight=False)
    return chosen


def _run_all(name: str, configs: list[dict[str, Any]], store: Store, jobs: int, resume: bool, console: Console) -> None:
    if jobs == 1:
        for config in configs:
            _run_one(name, config, store.path, resume, threads=None, progress=console.is_terminal)
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    runs = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)(
        delayed(_run_one)(name, config, store.path, resume, threads, False) for config in configs
    )
    for done, (config, seconds) in enumerate(runs, 1):
        console.print(
            f"[{done}/{len(configs)}] {_describe(name, config)}: {seconds:.0f} s", highlight=False, markup=False
        )


def _run_one(
    name: str, config: dict[str, Any], path: Path, resume: bool, threads: int | None, progress: bool
) -> tuple[dict[str, Any], float]:
    """Do one run and put it into the store. Its checkpoints go when it is finished."""
    if threads is not None:
        torch.set_num_threads(threads)
    experiment = EXPERIMENTS[name]
    checkpoint = path.parent / "checkpoints" / f"{name}-{config_key(config)}"
    if not resume:
        shutil.rmtree(checkpoint, ignore_errors=True)
    start = time.perf_counter()
    metrics = experiment.run(experiment.config(**config), checkpoint, progress)
    seconds = time.perf_counter() - start
    Store(path).add(config, metrics, seconds)
    shutil.rmtree(checkpoint, ignore_errors=True)
    return config, seconds


def _describe(name: str, config: dict[str, Any]) -> str:
    return " ".join(f"{key}={config[key]}" for key in EXPERIMENTS[name].grid)


def parse_only(text: str | None, experiment: Experiment) -> dict[str, Any]:
    """Read ``key=value,key=value``; values are JSON, or else strings."""
    known = [field.name for field in dataclasses.fields(experiment.config)]
    wanted = {}
    for part in (text or "").split(",") if text else []:
        key, separator, value = part.partition("=")
        if not separator or key.strip() not in known:
            raise ValueError(
                f"--only takes key=value,... with keys of {experiment.name}: {', '.join(known)}; got {part!r}"
            )
        try:
            wanted[key.strip()] = json.loads(value)
        except ValueError:
            wanted[key.strip()] = value.strip()
    return wanted


def _matches(config: Mapping[str, Any], only: Mapping[str, Any]) -> bool:
    return all(config[key] == value for key, value in only.items())
