"""An experiment: the paper's settings, a grid, presets, a run function, tables and a figure.

Titles, grids, presets and remarks of all experiments are in ``experiments.toml``.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from inducing import experiments
from inducing.checks import check_known
from inducing.experiments.engine.comparison import Comparison
from inducing.experiments.engine.store import Result, config_key, revision_of
from inducing.pages import Figure, Table

Metrics = dict[str, Any]
Run = Callable[[Any, Path | None, bool], Metrics]
Changes = Mapping[str, Any]

# nats per data point: training has converged if twice the steps change the ELBO of split 0 by less
CONVERGED = 0.02

# by experiment: arguments of `Experiment`, and `paper`, changes of the paper's settings
DESCRIPTIONS: dict[str, Any] = tomllib.loads((resources.files(experiments) / "experiments.toml").read_text())


class Settled(NamedTuple):
    """A configuration whose undecided settings were decided by runs on split 0.

    Arguments:
        config: The configuration, or None as long as runs are missing.
        missing: The runs that must be finished first.
        converged: Whether twice the steps have nearly the same ELBO. None: not checked.
    """

    config: Any | None
    missing: tuple[Any, ...] = ()
    converged: bool | None = None

    @property
    def state(self) -> str:
        """The state of training in words."""
        if self.converged is None:
            return "not checked"
        return "converged" if self.converged else "not converged"


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
            get one value. "parts" lists further changes, one dictionary for each grid of the preset. Presets whose names
            begin with "cpu-" are variants of "cpu", with tables of their own.
        remarks: Text about the presets for the page of the experiment.
        since: The first revision of the package whose runs are up to date (`store.REVISION`).
        later: Exceptions to `since`. Each has lists of values of fields, and "since", the first revision whose runs with
            these values are up to date.
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
    since: int = 1
    later: Sequence[Mapping[str, Any]] = ()

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

    @property
    def variants(self) -> list[str]:
        """The presets with tables of their own."""
        return [name for name in self.presets if name.startswith("cpu-")]

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

    def settle(self, config: Any, results: Mapping[str, Result]) -> Settled:
        """Decide the settings of a configuration by runs on split 0: those of `trials`, then the number of steps.

        Runs that are out of date decide nothing. The number of steps is doubled until this changes the ELBO by less than
        `CONVERGED`, at most `doublings` times. If each doubling changes it by more, or an earlier ELBO was higher, training
        has not converged, and the number of steps with the highest ELBO is kept.
        """
        results = {key: result for key, result in results.items() if self.is_current(result)}
        trials = tuple(dataclasses.replace(trial, doublings=None) for trial in self.trials(config))
        missing = tuple(trial for trial in trials if key_of(trial) not in results)
        if missing:
            return Settled(None, missing)
        best = max(trials, key=lambda trial: _elbo(trial, results)) if trials else config
        if not config.doublings:
            return Settled(dataclasses.replace(best, split=config.split))
        first = dataclasses.replace(best, split=0, doublings=None)
        runs = [
            dataclasses.replace(first, num_steps=2**times * first.num_steps) for times in range(config.doublings + 1)
        ]
        highest = -math.inf
        for shorter, longer in itertools.pairwise(runs):
            missing = tuple(each for each in (shorter, longer) if key_of(each) not in results)
            if missing:
                return Settled(None, missing)
            highest = max(highest, _elbo(shorter, results))
            change = abs(_elbo(longer, results) - _elbo(shorter, results))
            if change < CONVERGED and _elbo(shorter, results) > highest - CONVERGED:
                return Settled(dataclasses.replace(shorter, split=config.split), converged=True)
        best = max(runs, key=lambda run: _elbo(run, results))
        return Settled(dataclasses.replace(best, split=config.split), converged=False)

    def finished(self, configs: Sequence[Any], results: Mapping[str, Result]) -> list[Result]:
        """The stored results of these configurations, in the order of the grid.

        As long as the number of steps is undecided, the result is that of the largest number with a run. Each result has a
        ``state``: "converged", "not converged", "not checked", "out of date", or nothing if the preset wants no check.
        Results that are out of date are left out of rows that have others.
        """
        found = {}
        for config in configs:
            settled = self.settle(config, results)
            key = key_of(settled.config or self._longest(config, results))
            if key in results:
                state = settled.state if config.doublings else ""
                found[key] = results[key] | {"state": state if self.is_current(results[key]) else "out of date"}
        current = {self.row(result["config"]) for result in found.values() if result["state"] != "out of date"}
        return self.sort(
            result
            for result in found.values()
            if result["state"] != "out of date" or self.row(result["config"]) not in current
        )

    def _longest(self, config: Any, results: Mapping[str, Result]) -> Any:
        """The configuration with the largest number of steps that has a run, or else the preset's."""
        first = dataclasses.replace(config, doublings=None)
        for doublings in range(config.doublings or 0, 0, -1):
            longer = dataclasses.replace(first, num_steps=2**doublings * first.num_steps)
            found = results.get(key_of(longer))
            if found is not None and self.is_current(found):
                return longer
        return first

    def is_current(self, result: Result) -> bool:
        """Whether a run was made by a version of the package with the present numbers."""
        return revision_of(result) >= self.since_of(result["config"])

    def since_of(self, config: Mapping[str, Any]) -> int:
        """The first revision of the package whose run with this configuration is up to date."""
        rules = [rule for rule in self.later if all(config.get(key) in rule[key] for key in rule.keys() - {"since"})]
        return max([self.since, *(rule["since"] for rule in rules)])

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
            given = [part.get(key, paper[key]) for part in parts]
            if key in self.grid:
                # the union over the parts
                used = [value for value in self.grid[key] if any(value in values for values in given)]
                if used == list(self.grid[key]):
                    continue
                given = [used]
            values = dict.fromkeys(map(_words, given))
            words[key] = f"{key} {' or '.join(values)}"
            # None: the paper's value depends on other settings
            words[key] += "" if paper[key] is None else f" instead of {_words(paper[key])}"
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


def _elbo(config: Any, results: Mapping[str, Result]) -> float:
    elbo = float(results[key_of(config)]["metrics"]["elbo_per_datapoint"])
    return -math.inf if math.isnan(elbo) else elbo


def key_of(config: Any) -> str:
    """The key of a configuration in the store."""
    return config_key(dataclasses.asdict(config))


def _words(value: Any) -> str:
    if value is None or value == "":
        return "the default" if value is None else "none"
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
