"""An experiment: the paper's settings, a grid, presets, how to do a run, and what to show of the results."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inducing.checks import check_known
from inducing.experiments.engine.comparison import Comparison
from inducing.experiments.engine.store import Result, config_key
from inducing.pages import Figure, Table

Metrics = dict[str, Any]
Run = Callable[[Any, Path | None, bool], Metrics]
Changes = Mapping[str, Any]


@dataclass(frozen=True)
class Experiment:
    """One figure or table of the paper.

    Arguments:
        name: Its name for `inducing reproduce`.
        title: What it shows, in one line.
        paper: The paper's settings: an instance of a frozen dataclass with JSON values.
        grid: The fields to sweep over, with their values.
        run: Do one run, given its configuration, a folder for checkpoints and whether to show progress.
        figure: Draw the figure of finished runs.
        presets: The differences of each preset from the paper's settings and grid: a value, or a tuple of values for a
            field of the grid. A preset may be a list of such differences, each with its own grid.
        comparison: The table of results beside the paper's.
        tables: Make further tables from finished runs.
        remarks: What the page of the experiment says about its presets.
        exists: Whether a point of the grid is a run; some datasets have fewer splits.
        trials: For a configuration that leaves settings open, the runs on split 0 that decide them. The settings of the run
            with the best ELBO are used for all splits. Test scores are not used.
    """

    name: str
    title: str
    paper: Any
    grid: Mapping[str, Sequence[Any]]
    run: Run
    figure: Callable[[list[Result]], Figure]
    presets: Mapping[str, Changes | Sequence[Changes]] = field(default_factory=dict)
    comparison: Comparison | None = None
    tables: Callable[[list[Result]], list[Table]] = lambda results: []
    remarks: str = ""
    exists: Callable[[Any], bool] = lambda config: True
    trials: Callable[[Any], Sequence[Any]] = lambda config: ()

    def configs(self, preset: str) -> list[Any]:
        """All configurations of a preset."""
        found: dict[Any, None] = {}
        for changes in self._parts(preset):
            grid = {key: changes.get(key, values) for key, values in self.grid.items()}
            for values in itertools.product(*grid.values()):
                config = dataclasses.replace(self.paper, **{**changes, **dict(zip(grid, values, strict=True))})
                if self.exists(config):
                    found[config] = None
        return list(found)

    def settle(self, config: Any, results: Mapping[str, Result]) -> Any | None:
        """The configuration with the settings of its best trial by the ELBO; None if trials are unfinished."""
        trials = self.trials(config)
        if not trials:
            return config
        finished = [results.get(key_of(trial)) for trial in trials]
        elbos = [result["metrics"]["elbo_per_datapoint"] for result in finished if result is not None]
        if len(elbos) < len(trials):
            return None
        return dataclasses.replace(trials[elbos.index(max(elbos))], split=config.split)

    def finished(self, configs: Sequence[Any], results: Mapping[str, Result]) -> list[Result]:
        """The results of the configurations that have one."""
        settled = (self.settle(config, results) for config in configs)
        keys = (key_of(config) for config in settled if config is not None)
        return [results[key] for key in keys if key in results]

    def differences(self, preset: str) -> dict[str, str]:
        """The differences of a preset from the paper, in words, by field."""
        paper, parts = dataclasses.asdict(self.paper) | dict(self.grid), self._parts(preset)
        words = {}
        for key in dict.fromkeys(key for part in parts for key in part):
            values = dict.fromkeys(_words(part.get(key, paper[key])) for part in parts)
            words[key] = f"{key} {' or '.join(values)} instead of {_words(paper[key])}"
        return words

    def describe(self, config: Any) -> str:
        """The point of the grid, e.g. "depth=1 posterior=global"."""
        return " ".join(f"{key}={getattr(config, key)}" for key in self.grid)

    def _parts(self, preset: str) -> Sequence[Changes]:
        known = {"paper": {}, **self.presets}
        check_known("preset", preset, known)
        parts = known[preset]
        return [parts] if isinstance(parts, Mapping) else parts


def key_of(config: Any) -> str:
    """The key of a configuration in the store."""
    return config_key(dataclasses.asdict(config))


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
