"""An experiment: the paper's settings, a grid, presets, a run function, tables and a figure.

Titles, grids, presets and remarks of all experiments are in ``experiments.toml``.
"""

from __future__ import annotations

import dataclasses
import itertools
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from inducing import experiments
from inducing.checks import check_known
from inducing.experiments.engine.comparison import Comparison
from inducing.experiments.engine.store import Result, config_key
from inducing.pages import Figure, Table

Metrics = dict[str, Any]
Run = Callable[[Any, Path | None, bool], Metrics]
Changes = Mapping[str, Any]

# for each experiment the arguments `title`, `grid`, `presets` and, if there are any, `remarks`, and changes of `paper`
DESCRIPTIONS: dict[str, Any] = tomllib.loads((resources.files(experiments) / "experiments.toml").read_text())


@dataclass(frozen=True)
class Experiment:
    """One figure or table of the paper.

    Arguments:
        name: Its name for `inducing reproduce`.
        paper: The paper's settings: an instance of a frozen dataclass with JSON values.
        grid: The fields to sweep over, with their values.
        run: Function that executes one run. Its arguments are a configuration, a folder for checkpoints, and whether to show
            progress. It returns metrics.
        figure: Function that draws the figure of finished runs.
        comparison: Our results beside the paper's.
        further_tables: Function that makes further tables from finished runs.
        exists: Function that returns whether a point of the grid is a run. Some datasets have fewer splits.
        trials: Function that lists the trial runs of a configuration with undecided settings. Trials use split 0. The
            settings of the trial with the best ELBO are used for all splits. Test scores are not used.
        title: One line about its content.
        presets: Changes to the paper's settings and grid, by preset. A field of the grid gets several values, other fields
            get one value. "parts" lists further changes, one dictionary for each grid of the preset.
        remarks: Text about the presets for the page of the experiment.
    """

    name: str
    paper: Any
    grid: Mapping[str, Sequence[Any]]
    run: Run
    figure: Callable[[list[Result]], Figure]
    comparison: Comparison
    further_tables: Callable[[list[Result]], list[Table]] = lambda results: []
    exists: Callable[[Any], bool] = lambda config: True
    trials: Callable[[Any], Sequence[Any]] = lambda config: ()
    title: str = ""
    presets: Mapping[str, Changes] = field(default_factory=dict)
    remarks: str = ""

    @classmethod
    def described(cls, name: str, paper: Any, *functions: Any, **settings: Any) -> Experiment:
        """An experiment of ``experiments.toml``.

        Arguments:
            name: Its name there.
            paper: The paper's settings, if the file has no other values for them.
            functions: `run`, `figure`, `comparison` and, if there are any, `further_tables`.
            settings: Other arguments by name.
        """
        description = dict(DESCRIPTIONS[name])
        paper = dataclasses.replace(paper, **description.pop("paper", {}))
        return cls(name, paper, description.pop("grid"), *functions, **description | settings)

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
        """The configuration with the settings of the trial with the best ELBO, or None if a trial is unfinished."""
        trials = {key_of(trial): trial for trial in self.trials(config)}
        if not trials:
            return config
        if not trials.keys() <= results.keys():
            return None
        best = max(trials, key=lambda key: results[key]["metrics"]["elbo_per_datapoint"])
        return dataclasses.replace(trials[best], split=config.split)

    def finished(self, configs: Sequence[Any], results: Mapping[str, Result]) -> list[Result]:
        """The stored results of these configurations, in the order of the grid."""
        settled = (self.settle(config, results) for config in configs)
        keys = (key_of(config) for config in settled if config is not None)
        return self.sort(results[key] for key in keys if key in results)

    def sort(self, results: Iterable[Result]) -> list[Result]:
        """Put results in the order of the grid, with the splits of a row together."""
        axes = sorted(self.grid, key=lambda axis: axis == "split")
        return sorted(results, key=lambda result: [self.grid[axis].index(result["config"][axis]) for axis in axes])

    def row(self, config: Mapping[str, Any]) -> tuple[Any, ...]:
        """The grid values of a configuration but its split: the row of its result in a table."""
        return tuple(config[axis] for axis in self.grid if axis != "split")

    def tables(self, results: list[Result], brief: bool = False) -> list[Table]:
        """The comparison with the paper, brief for a terminal, and the further tables."""
        compared = [self.comparison.table(results, brief)] if self.comparison.measures else []
        return compared + self.further_tables(results)

    def differences(self, preset: str) -> dict[str, str]:
        """Sentences about the differences of a preset from the paper, by field."""
        paper, parts = dataclasses.asdict(self.paper) | dict(self.grid), self._parts(preset)
        words = {}
        for key in dict.fromkeys(key for part in parts for key in part):
            values = dict.fromkeys(_words(part.get(key, paper[key])) for part in parts)
            words[key] = f"{key} {' or '.join(values)} instead of {_words(paper[key])}"
        return words

    def describe(self, config: Any) -> str:
        """The grid values of a configuration, e.g. "depth=1 posterior=global"."""
        return " ".join(f"{key}={getattr(config, key)}" for key in self.grid)

    def _parts(self, preset: str) -> list[Changes]:
        """The changes of each grid of a preset."""
        known = {"paper": {}, **self.presets}
        check_known("preset", preset, known)
        changes = dict(known[preset])
        parts = changes.pop("parts", [{}])
        return [{**changes, **part} for part in parts]


def key_of(config: Any) -> str:
    """The key of a configuration in the store."""
    return config_key(dataclasses.asdict(config))


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
