"""Our figures beside the published ones: means and standard errors over splits, and a mark."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

# a figure in nats this near the paper's is the same, whatever the standard errors
TOLERANCE = 0.02

Key = tuple[Any, ...]


class Measure(NamedTuple):
    """A figure of a run.

    Arguments:
        path: Where it stands in the metrics, e.g. ``("layer_variance", 0)``.
        heading: What tables call it.
        digits: Decimals.
        higher_is_better: None for figures that are neither good nor bad.
        nats: Whether it is in nats, where `TOLERANCE` holds.
    """

    path: tuple[str | int, ...]
    heading: str
    digits: int = 2
    higher_is_better: bool | None = True
    nats: bool = True

    def of(self, metrics: Any) -> float | None:
        """The figure of one run; None if the run does not have it."""
        for part in self.path:
            if isinstance(metrics, dict) and part not in metrics:
                return None
            metrics = metrics[part]
        return float(metrics)


ELBO = Measure(("elbo_per_datapoint",), "ELBO")
TEST = Measure(("test_log_likelihood",), "test log-likelihood")
RMSE = Measure(("rmse",), "RMSE", higher_is_better=False, nats=False)


class Cell(NamedTuple):
    """A figure over splits: its mean, its standard error, and of how many."""

    mean: float
    error: float
    splits: int

    def text(self, digits: int = 2) -> str:
        """The mean, and the standard error where there is one."""
        mean = f"{self.mean:.{digits}f}"
        return f"{mean} ± {self.error:.{digits}f}" if self.splits > 1 else mean


def over_splits(values: Sequence[float]) -> Cell:
    """The mean and its standard error, which one split alone does not have: it counts as 0.

    Example:
        >>> over_splits([1.0, 2.0, 3.0]).text()
        '2.00 ± 0.58'
    """
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return Cell(float(np.mean(values)), error, len(values))


def mark(ours: Cell, paper: Cell, measure: Measure = ELBO) -> str:
    """Say "better" than the paper, "within" max(two combined standard errors, 0.02 nats) of it, or "short" by how much."""
    if measure.higher_is_better is None:
        return ""
    lead = (ours.mean - paper.mean) * (1 if measure.higher_is_better else -1)
    if lead >= 0:
        return "better"
    margin = max(2 * math.hypot(ours.error, paper.error), TOLERANCE if measure.nats else 0.0)
    # the published figures are decimals: 0.02 is 0.02
    return "within" if lead >= -margin - 1e-9 else f"short by {-lead:.{measure.digits}f}"


@dataclass(frozen=True)
class Comparison:
    """A table of the paper and how our runs stand beside it.

    Arguments:
        axes: The keys of a configuration that make a row, each with its values in the order of the table.
        measures: The columns.
        theirs: The published figure of a row, or None.
        note: What to say below the table.
    """

    axes: Mapping[str, Sequence[Any]]
    measures: Sequence[Measure]
    theirs: Callable[[Key, Measure], Cell | None]
    note: str = ""

    def cells(self, results: Sequence[Mapping[str, Any]], measure: Measure) -> dict[Key, Cell]:
        """Our figures, row by row."""
        groups: dict[Key, list[float]] = defaultdict(list)
        for result in results:
            value = measure.of(result["metrics"])
            if value is not None:
                groups[tuple(result["config"][axis] for axis in self.axes)].append(value)
        keys = sorted(
            groups, key=lambda key: [order.index(part) for part, order in zip(key, self.axes.values(), strict=True)]
        )
        return {key: over_splits(groups[key]) for key in keys}

    def rows(self, results: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
        """The table: for each row of ours the number of splits, and each figure with the paper's and a mark."""
        tables = {measure: self.cells(results, measure) for measure in self.measures}
        shown = {measure: table for measure, table in tables.items() if table}
        headings = [{"dataset": "set"}.get(axis, axis) for axis in self.axes] + ["splits"]
        for measure in shown:
            headings += [measure.heading, "the paper"] + ([] if measure.higher_is_better is None else ["mark"])
        lines = []
        for key in next(iter(shown.values()), {}):
            line = [*map(str, key), str(max(table[key].splits for table in shown.values() if key in table))]
            for measure, table in shown.items():
                ours, paper = table.get(key), self.theirs(key, measure)
                line += ["" if cell is None else cell.text(measure.digits) for cell in (ours, paper)]
                if measure.higher_is_better is not None:
                    line.append("" if ours is None or paper is None else mark(ours, paper, measure))
            lines.append(line)
        return headings, lines


def markdown_table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table of Markdown.

    Example:
        >>> print(markdown_table(["a", "b"], [["1", "2"]]))
        | a | b |
        | --- | --- |
        | 1 | 2 |
    """
    return "\n".join(
        ["| " + " | ".join(headings) + " |", "|" + " --- |" * len(headings)]
        + ["| " + " | ".join(line) + " |" for line in lines]
    )
