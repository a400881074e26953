"""Panels and colours of the figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from inducing.experiments.engine.comparison import ELBO, NOT_COUNTED, Comparison, Estimates, Key, margin
from inducing.experiments.engine.store import Result
from inducing.extras import require
from inducing.pages import Figure as Figure
from inducing.plots import Axes as Axes

COLOURS = {
    "factorised": "#888888",
    "dsvi": "#c45a11",
    "local": "#b8a000",
    "factorised->global": "#c45a11",
    "global": "#3465a4",
    "prior->global": "#4e9a06",
    "coupled": "#75507b",
    "plain": "#000000",
}


def panels(rows: int, columns: int, size: tuple[float, float], **settings: Any) -> tuple[Figure, np.ndarray]:
    """A figure with rows and columns of axes, each of a size in inches."""
    require("matplotlib")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **settings)
    for each in axes.flat:
        each.spines[["top", "right"]].set_visible(False)
    return figure, axes


def first_split(results: list[Result]) -> list[Result]:
    """Results of the lowest split that has any, for figures of single runs."""
    first = min(result["config"]["split"] for result in results)
    return [result for result in results if result["config"]["split"] == first]


def draw_estimates(axes: Axes, ours: Estimates, paper: Estimates, places: Mapping[Key, float], shift: float) -> None:
    """Draw our estimates at places on the x-axis as filled circles, and the paper's beside them as open circles."""
    for posterior in dict.fromkeys(key[-1] for key in places):
        own = [key for key in places if key[-1] == posterior]
        open_circle = {"markerfacecolor": "white", "alpha": 0.6}
        for estimates, offset, look in ((ours, 0.0, {"label": with_arrows(posterior)}), (paper, shift, open_circle)):
            shown = {places[key] + offset: estimates[key] for key in own if key in estimates}
            means, errors = [each.mean for each in shown.values()], [each.error for each in shown.values()]
            axes.errorbar(list(shown), means, errors, fmt="o", color=COLOURS[posterior], **look)


def draw_differences(runs: Mapping[str, tuple[Comparison, list[Result]]]) -> Figure:
    """A map of the difference of our ELBO from the paper's in each row of a table, divided by half of `margin`.

    Blue is better than the paper, red is worse. Differences below two do not count. Numbers in italics do not count either.
    """
    figure, panels_of = panels(1, len(runs), (4.6, 5.2))
    for (name, (comparison, results)), axes in zip(runs.items(), panels_of[0], strict=True):
        ours, paper = comparison.estimates(results, ELBO)
        states = comparison.states(results)
        rows, columns = (
            list(dict.fromkeys(part(key) for key in paper)) for part in (lambda key: key[:-1], lambda key: key[-1])
        )
        shown = np.full((len(rows), len(columns)), np.nan)
        for key in paper:
            place = rows.index(key[:-1]), columns.index(key[-1])
            shown[place] = 2 * (ours[key].mean - paper[key].mean) / margin(ours[key], paper[key])
            look = {"style": "italic" if states[key] in NOT_COUNTED else "normal", "ha": "center", "va": "center"}
            colour = "white" if abs(shown[place]) > 4 else "black"
            axes.text(*reversed(place), f"{shown[place]:+.1f}", fontsize=7, color=colour, **look)
        image = axes.imshow(shown, cmap="RdBu", vmin=-6, vmax=6, aspect="auto")
        axes.set_xticks(range(len(columns)), [with_arrows(column) for column in columns], fontsize=7, rotation=20)
        axes.set_yticks(range(len(rows)), [" ".join(map(str, row)) for row in rows], fontsize=7)
        axes.set_title(name, fontsize=9)
        figure.colorbar(image, ax=axes, shrink=0.6)
    return figure


def with_arrows(posterior: str) -> str:
    """The name of a posterior as figures show it."""
    return posterior.replace("->", " → ")
