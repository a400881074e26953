"""Panels and colours of the figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from inducing.experiments.engine.comparison import Estimates, Key
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


def draw_estimates(axes: Axes, ours: Estimates, paper: Estimates, places: Mapping[Key, float], shift: float) -> None:
    """Draw our estimates at places on the x-axis as filled circles, and the paper's beside them as open circles."""
    for posterior in dict.fromkeys(key[-1] for key in places):
        own = [key for key in places if key[-1] == posterior]
        open_circle = {"markerfacecolor": "white", "alpha": 0.6}
        for estimates, offset, look in ((ours, 0.0, {"label": with_arrows(posterior)}), (paper, shift, open_circle)):
            shown = {places[key] + offset: estimates[key] for key in own if key in estimates}
            means, errors = [each.mean for each in shown.values()], [each.error for each in shown.values()]
            axes.errorbar(list(shown), means, errors, fmt="o", color=COLOURS[posterior], **look)


def with_arrows(posterior: str) -> str:
    """The name of a posterior as figures show it."""
    return posterior.replace("->", " → ")
