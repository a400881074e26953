"""The pictures of a report, as SVG. No text in them comes from the data."""

from __future__ import annotations

import io

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from inducing.inference.history import History
from inducing.prediction.plots import BLACK, BLUE, ORANGE

SIZE = (4.4, 3.4)


def as_svg(figure: Figure) -> bytes:
    """Render a figure; letters become paths, so that it needs no fonts, and the same figure gives the same bytes."""
    buffer = io.BytesIO()
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "inducing"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def elbo_curve(history: History) -> Figure:
    """The ELBO at each step; the first steps, which are far below, are left out of the axis."""
    figure, axes = _figure("step", "ELBO per row (nats)")
    elbo = np.array(history.elbo)
    axes.plot(np.arange(1, len(elbo) + 1), elbo, color=BLUE, linewidth=1)
    later = elbo[len(elbo) // 20 :]
    low, high = float(later.min()), float(elbo.max())
    if high > low:
        axes.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    return figure


def predicted_and_true(
    y: Float[np.ndarray, " H"],
    mean: Float[np.ndarray, " H"],
    low: Float[np.ndarray, " H"],
    high: Float[np.ndarray, " H"],
) -> Figure:
    """Predictive means against true values, with intervals."""
    figure, axes = _figure("true", "predicted")
    # the mean of a skewed prediction may lie outside of its interval
    below, above = np.maximum(mean - low, 0), np.maximum(high - mean, 0)
    axes.errorbar(y, mean, [below, above], fmt="none", ecolor=BLUE, alpha=0.3, elinewidth=1)
    axes.plot(y, mean, ".", color=BLUE, markersize=5)
    _diagonal(axes, min(y.min(), mean.min()), max(y.max(), mean.max()))
    return figure


def interval_calibration(levels: Float[np.ndarray, " L"], observed: Float[np.ndarray, " L"], rows: int) -> Figure:
    """The share of rows inside central intervals against the share that should be; the band is chance, 95 %."""
    figure, axes = _figure("share of rows that should be inside", "share that is")
    grid = np.linspace(0, 1, 101)
    # +- 1.96 sqrt(p (1 - p) / n)
    error = 1.96 * np.sqrt(grid * (1 - grid) / rows)
    axes.fill_between(grid, grid - error, grid + error, color=BLACK, alpha=0.1, linewidth=0)
    _diagonal(axes, 0, 1)
    axes.plot(levels, observed, "o-", color=BLUE, markersize=4, linewidth=1)
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    return figure


def residuals(mean: Float[np.ndarray, " H"], scaled: Float[np.ndarray, " H"]) -> Figure:
    """(true - predicted) / standard deviation against the prediction: about 95 % should lie between the lines."""
    figure, axes = _figure("predicted", "(true - predicted) / std")
    for line in (-2, 0, 2):
        axes.axhline(line, color=BLACK, linewidth=0.8, linestyle="-" if line == 0 else "--")
    axes.plot(mean, scaled, ".", color=BLUE, markersize=5)
    return figure


def class_calibration(confidence: Float[np.ndarray, " B"], accuracy: Float[np.ndarray, " B"]) -> Figure:
    """How often the most probable class is right, by how probable it is said to be; empty bins are NaN."""
    figure, axes = _figure("probability of the predicted class", "share that is right")
    _diagonal(axes, 0, 1)
    there = ~np.isnan(confidence)
    axes.plot(confidence[there], accuracy[there], "o-", color=ORANGE, markersize=4, linewidth=1)
    axes.set(xlim=(0, 1.02), ylim=(0, 1.02))
    return figure


def _figure(x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(SIZE, layout="constrained")
    axes = figure.add_subplot(xlabel=x, ylabel=y)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _diagonal(axes: Axes, low: float, high: float) -> None:
    axes.plot([low, high], [low, high], color=BLACK, linewidth=0.8, linestyle="--")
