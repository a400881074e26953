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
            of the grid.
        run: Does one run, with a folder for its checkpoints and whether to show progress; returns its metrics.
        report: Prints the table and writes the figure to a path, from the finished runs.
        exists: Whether a point of the grid is a run at all: not all sets have as many splits.
    """

    name: str
    title: str
    config: type
    grid: Mapping[str, Sequence[Any]]
    run: Callable[[Any, Path | None, bool], Metrics]
    report: Callable[[list[dict[str, Any]], Path, Console], None]
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    exists: Callable[[Any], bool] = lambda config: True

    def configs(self, preset: str) -> list[Any]:
        """All configurations of a preset."""
        changes = self._changes(preset)
        grid = {key: changes.get(key, values) for key, values in self.grid.items()}
        fixed = {key: value for key, value in changes.items() if key not in self.grid}
        points = (dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values()))
        return [config for point in points if self.exists(config := self.config(**fixed, **point))]

    def deviations(self, preset: str) -> list[str]:
        """What a preset does otherwise than the paper, in words."""
        defaults = {each.name: each.default for each in dataclasses.fields(self.config)} | dict(self.grid)
        return [
            f"{key} {_words(value)} instead of {_words(defaults[key])}" for key, value in self._changes(preset).items()
        ]

    def _changes(self, preset: str) -> Mapping[str, Any]:
        known = ["paper", *self.changes]
        if preset not in known:
            raise ValueError(f"unknown preset {preset!r}; {self.name} has {', '.join(known)}")
        return self.changes.get(preset, {})


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def write_figure(figure: Figure, path: Path, console: Console) -> None:
    """Write a figure atomically, and say so."""
    write_atomically(path, as_png(figure))
    console.print(f"wrote {path}", highlight=False)
