"""Tables of our results and the published ones: means and standard errors over splits, and a mark."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from inducing.experiments.engine.store import Result
from inducing.experiments.paper import PRIORS, published
from inducing.pages import Cell, Style, Table

# nats: a smaller difference from the paper does not count, whatever the standard errors
TOLERANCE = 0.02

Key = tuple[Any, ...]


class Measure(NamedTuple):
    """A number among the metrics of a run.

    Arguments:
        name: Its name among the metrics.
        heading: Its heading in tables.
        digits: Decimals.
        higher_is_better: None for a number that is neither good nor bad.
        nats: Whether it is in nats, where `TOLERANCE` applies.
        tolerance: The smallest difference that counts, if there is another one.
        layer: The layer, if there is a number for each; layers count from 0.
    """

    name: str
    heading: str
    digits: int = 2
    higher_is_better: bool | None = True
    nats: bool = True
    layer: int | None = None
    tolerance: float | None = None

    def of(self, metrics: Mapping[str, Any]) -> Any:
        """Its value in the metrics of a run, or None if they do not have it."""
        found = metrics.get(self.name)
        return found if found is None or self.layer is None else found[self.layer]


ELBO = Measure("elbo_per_datapoint", "ELBO")
TEST = Measure("test_log_likelihood", "test log-likelihood")
RMSE = Measure("rmse", "RMSE", higher_is_better=False, nats=False)
LOG_LIKELIHOOD = Measure("log_likelihood", "log-lik.", higher_is_better=None)
KL = Measure("kl", "KL", higher_is_better=None)
ELBO_TERMS = (ELBO, LOG_LIKELIHOOD, KL)


def layer_variance(layer: int) -> Measure:
    """The mean variance of a layer's function; layers count from 0."""
    return Measure("layer_variance", f"V[F{layer + 1}]", higher_is_better=None, nats=False, layer=layer)


class Estimate(NamedTuple):
    """A mean over splits, its standard error, and the number of splits."""

    mean: float
    error: float = 0.0
    splits: int = 1

    def text(self, digits: int = 2) -> str:
        """The mean, with the standard error if there are several splits."""
        mean = f"{self.mean:.{digits}f}"
        return f"{mean} ± {self.error:.{digits}f}" if self.splits > 1 else mean


Estimates = dict[Key, Estimate]


def over_splits(values: Sequence[float]) -> Estimate:
    """The mean and its standard error, which is 0 for one split.

    Example:
        >>> over_splits([1.0, 2.0, 3.0]).text()
        '2.00 ± 0.58'
    """
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return Estimate(float(np.mean(values)), error, len(values))


# how a result compares with the paper's, and the style of its table cell; numbers that are neither good nor bad may differ
Verdict = Literal["better", "equal", "worse", "differs"]
STYLES: dict[Verdict, Style] = {"better": "good", "equal": "neutral", "worse": "bad", "differs": "neutral"}


def margin(ours: Estimate, paper: Estimate, measure: Measure = ELBO) -> float:
    """The smallest difference from the paper that counts: two standard errors of the difference.

    The spread of a few splits is uncertain. So the spread over splits is the larger one of ours and the paper's. In nats the
    difference is at least 0.02. Numbers without standard errors have the precision of the digits in the table.
    """
    # the paper's standard error is that of a mean over all its splits
    spread = paper.error * math.sqrt(paper.splits)
    error = math.hypot(max(ours.error, spread / math.sqrt(ours.splits)), paper.error)
    smallest = TOLERANCE if measure.nats else 0.5 * 10**-measure.digits
    return max(2 * error, smallest if measure.tolerance is None else measure.tolerance)


def judge(ours: Estimate, paper: Estimate, measure: Measure = ELBO) -> Verdict:
    """Better or worse than the paper if the difference is larger than its margin, else equal."""
    difference = ours.mean - paper.mean
    # the published numbers are decimals: 0.02 is 0.02
    if abs(difference) <= margin(ours, paper, measure) + 1e-9:
        return "equal"
    if measure.higher_is_better is None:
        return "differs"
    return "better" if (difference > 0) == measure.higher_is_better else "worse"


def mark(ours: Estimate, paper: Estimate, measure: Measure = ELBO) -> Cell:
    """The verdict as a table cell, with the difference unless it is equal."""
    verdict = judge(ours, paper, measure)
    by = "" if verdict == "equal" else f" by {abs(ours.mean - paper.mean):.{measure.digits}f}"
    return Cell(verdict + by, STYLES[verdict])


# states of runs (`Experiment.finished`) that count in no comparison
NOT_COUNTED = ("out of date", "not converged", "not checked", "smoke")


@dataclass(frozen=True)
class Comparison:
    """A table of our results and the paper's.

    Arguments:
        axes: The fields of a configuration that identify a row.
        measures: The numbers in the columns. If there are none, there is no table.
        paper_table: The name of the paper's table in the published numbers. Default: the paper has none.
        note: Text below the table.
        num_brief: The number of measures in a brief table. Default: all.
    """

    axes: Sequence[str]
    measures: Sequence[Measure]
    paper_table: str = ""
    note: str = ""
    num_brief: int | None = None

    def paper(self, key: Key, measure: Measure) -> Estimate | None:
        """The published number of a row, or None. Numbers with a standard error are means over all splits."""
        numbers = published()[self.paper_table] if self.paper_table else {}
        for part in key:
            numbers = numbers.get(PRIORS.get(part, str(part)), {})
        number = measure.of(numbers)
        if isinstance(number, list):
            mean, error = number
            return Estimate(mean, error, splits=5 if "protein" in key else 20)
        return None if number is None else Estimate(number)

    def published_cells(self, configs: Iterable[Any]) -> set[tuple[Key, Measure]]:
        """The rows and measures of these configurations for which the paper has a number."""
        keys = dict.fromkeys(self.key(vars(config)) for config in configs)
        return {(key, measure) for key in keys for measure in self.measures if self.paper(key, measure)}

    def cells(self, results: Sequence[Result], only_counted: bool = False) -> set[tuple[Key, Measure]]:
        """The rows and measures for which we have a number, or one of runs that count."""
        left_out = [key for key, state in self.states(results).items() if only_counted and state in NOT_COUNTED]
        ours = ((measure, self.estimates(results, measure)[0]) for measure in self.measures)
        return {(key, measure) for measure, found in ours for key in found if key not in left_out}

    def estimates(self, results: Sequence[Result], measure: Measure) -> tuple[Estimates, Estimates]:
        """Our numbers and the paper's, by row, in the order of the results."""
        groups: dict[Key, list[float]] = defaultdict(list)
        for result in results:
            value = measure.of(result["metrics"])
            if value is not None:
                groups[self.key(result["config"])].append(value)
        ours = {key: over_splits(values) for key, values in groups.items()}
        return ours, {key: found for key in ours if (found := self.paper(key, measure))}

    def key(self, config: Mapping[str, Any]) -> Key:
        """The row of a configuration."""
        return tuple(config[axis] for axis in self.axes)

    def verdicts(self, results: Sequence[Result]) -> dict[Key, Verdict]:
        """The verdict on the ELBO of each row where the paper has one, if the runs of the row count."""
        ours, paper = self.estimates(results, ELBO)
        states = self.states(results)
        return {key: judge(ours[key], paper[key]) for key in paper if states[key] not in NOT_COUNTED}

    def states(self, results: Iterable[Result]) -> dict[Key, str]:
        """The state of the runs of each row. One run that does not count is enough for its row."""
        found: dict[Key, str] = {}
        for result in results:
            key, state = self.key(result["config"]), result.get("state", "")
            if found.get(key) not in NOT_COUNTED:
                found[key] = state
        return found

    def table(self, results: Sequence[Result], brief: bool = False) -> Table:
        """For each measure our number, the paper's and a mark.

        Arguments:
            results: The runs.
            brief: A narrow table for a terminal: the main measures, with the paper's means in brackets.
        """
        measures = self.measures[: self.num_brief] if brief else self.measures
        found = {measure: self.estimates(results, measure) for measure in measures}
        found = {measure: (ours, paper) for measure, (ours, paper) in found.items() if ours}
        splits = Counter(self.key(result["config"]) for result in results)
        states = self.states(results)
        columns: list[tuple[str, Mapping[Key, str | Cell]]] = [
            (axis, {key: str(key[place]) for key in splits}) for place, axis in enumerate(self.axes)
        ]
        if not brief:
            columns.append(("splits", {key: str(number) for key, number in splits.items()}))
            if any(states.values()):
                steps = {self.key(result["config"]): str(result["config"].get("num_steps", "")) for result in results}
                columns.append(("steps", steps))
        if any(states.values()):
            columns.append(("state", states))
        for measure, (ours, paper) in found.items():
            texts = {key: estimate.text(measure.digits) for key, estimate in ours.items()}
            if brief:
                texts |= {key: f"{texts[key]} ({each.mean:.{measure.digits}f})" for key, each in paper.items()}
            columns.append((measure.heading, texts))
            if paper and not brief:
                columns.append(("the paper", {key: each.text(measure.digits) for key, each in paper.items()}))
                counted = [key for key in paper if states[key] not in NOT_COUNTED]
                columns.append(("mark", {key: mark(ours[key], paper[key], measure) for key in counted}))
        rows = [[cells.get(key, "") for _, cells in columns] for key in splits]
        note = f"In brackets: the paper. {self.note}" if brief and self.paper_table else self.note
        return Table([heading for heading, _ in columns], rows, note=note, text_columns=len(self.axes))
