"""What an experiment is: a typed configuration whose defaults are the paper's settings, a grid, a run, a report."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console

from inducing.experiments.comparison import Comparison
from inducing.experiments.store import config_key
from inducing.files import write_atomically
from inducing.prediction.plots import as_png

Metrics = dict[str, Any]


@dataclass(frozen=True)
class Experiment:
    """One figure or table of the paper.

    Arguments:
        name: What `inducing reproduce` calls it.
        title: What it shows, in a line.
        config: A frozen dataclass of JSON values; its defaults are the paper's settings.
        grid: The values that are swept over, by key.
        changes: For each preset, what differs from the paper's settings and grid: a value, or a tuple of values for a key
            of the grid; or a list of such changes, each with a grid of its own.
        run: Does one run, with a folder for its checkpoints and whether to show progress; returns its metrics.
        report: Prints the table and writes the figure to a path, from the finished runs.
        exists: Whether a point of the grid is a run at all: not all sets have as many splits.
        trials: For a configuration that leaves settings open, the runs on split 0 that decide them: the settings of the
            one with the best ELBO are taken for all splits. Test figures decide nothing.
        comparison: The table of the paper that its runs stand beside, if there is one.
    """

    name: str
    title: str
    config: type
    grid: Mapping[str, Sequence[Any]]
    run: Callable[[Any, Path | None, bool], Metrics]
    report: Callable[[list[dict[str, Any]], Path, Console], None]
    changes: Mapping[str, Mapping[str, Any] | Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    exists: Callable[[Any], bool] = lambda config: True
    trials: Callable[[Any], Sequence[Any]] = lambda config: ()
    comparison: Comparison | None = None

    def configs(self, preset: str) -> list[Any]:
        """All configurations of a preset."""
        found: dict[Any, None] = {}
        for changes in self._changes(preset):
            grid = {key: changes.get(key, values) for key, values in self.grid.items()}
            fixed = {key: value for key, value in changes.items() if key not in self.grid}
            for values in itertools.product(*grid.values()):
                config = self.config(**fixed, **dict(zip(grid, values, strict=True)))
                if self.exists(config):
                    found[config] = None
        return list(found)

    def settle(self, config: Any, results: Mapping[str, Any]) -> Any | None:
        """The configuration with the settings of its best trial, by the ELBO; None while trials are not finished."""
        trials = self.trials(config)
        if not trials:
            return config
        keys = [config_key(dataclasses.asdict(trial)) for trial in trials]
        if any(key not in results for key in keys):
            return None
        elbos = [results[key]["metrics"]["elbo_per_datapoint"] for key in keys]
        return dataclasses.replace(trials[elbos.index(max(elbos))], split=config.split)

    def deviations(self, preset: str) -> list[str]:
        """What a preset does otherwise than the paper, in words."""
        defaults = {each.name: each.default for each in dataclasses.fields(self.config)} | dict(self.grid)
        parts = self._changes(preset)
        words = []
        for key in dict.fromkeys(key for part in parts for key in part):
            values = dict.fromkeys(_words(part.get(key, defaults[key])) for part in parts)
            words.append(f"{key} {' or '.join(values)} instead of {_words(defaults[key])}")
        return words

    def _changes(self, preset: str) -> Sequence[Mapping[str, Any]]:
        known = ["paper", *self.changes]
        if preset not in known:
            raise ValueError(f"unknown preset {preset!r}; {self.name} has {', '.join(known)}")
        changes = self.changes.get(preset, {})
        return [changes] if isinstance(changes, Mapping) else changes


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def write_figure(figure: Figure, path: Path, console: Console) -> None:
    """Write a figure atomically, and say so."""
    write_atomically(path, as_png(figure))
    console.print(f"wrote {path}", highlight=False)
