"""The figures of a report that explain a model: bars of importances and curves of partial dependence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from inducing.plots import BLACK, BLUE, ORANGE
from inducing.tables.columns.dates import DateColumn
from inducing.tables.columns.text import TextColumn
from inducing.tables.explaining import Dependence, Importance
from inducing.tables.numbers import SEPARATED, format_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
else:
    Axes = Any  # matplotlib is optional

COLOURS = (BLUE, ORANGE, "#4e9a06", "#75507b", BLACK)
# characters of a name or a category in a figure
LONGEST_NAME, LONGEST_CATEGORY = 22, 10
# user text is shown as it is, also with dollar signs
PLAIN: dict[str, Any] = {"parse_math": False}


def plot_importances(importances: Sequence[Importance], write: Callable[[float], str], label: str, *, ax: Axes) -> None:
    """Plot bars with the mean importances, and the standard deviations over the repeats.

    Arguments:
        importances: The importances to show, the largest first.
        write: Writes a number.
        label: Of the axis.
        ax: Axes to draw on.
    """
    places, means = range(len(importances)), [importance.mean for importance in importances]
    spreads = [importance.spread for importance in importances]
    ax.barh(places, means, xerr=spreads, color=BLUE, alpha=0.7, height=0.6, error_kw={"elinewidth": 1})
    end = max(0.0, *(mean + spread for mean, spread in zip(means, spreads, strict=True)))
    for place, mean, spread in zip(places, means, spreads, strict=True):
        text = f" {write(mean)} ± {write(spread)}"
        ax.text(max(0.0, mean + spread), place, text, va="center", fontsize=8, **PLAIN)
    ax.set_yticks(places, [shorten(importance.name, LONGEST_NAME) for importance in importances], **PLAIN)
    ax.invert_yaxis()
    ax.axvline(0, color=BLACK, linewidth=0.8)
    # room for the numbers
    ax.set_xlim(right=1.6 * end or 1.0)
    ax.set_xlabel(label, **PLAIN)
    ax.spines[["top", "right"]].set_visible(False)


def plot_dependence(
    dependence: Dependence,
    outputs: Sequence[int],
    names: Sequence[str],
    label: str,
    limits: tuple[float, float],
    *,
    ax: Axes,
) -> None:
    """Plot the average prediction against the values of a column, with its band: curves, or points for categories.

    Arguments:
        dependence: The partial dependence.
        outputs: The outputs to show.
        names: Names of the outputs for a legend. Empty: no legend.
        label: Of the vertical axis.
        limits: Of the vertical axis.
        ax: Axes to draw on.
    """
    column, values = dependence.column, dependence.values
    is_text = isinstance(column, TextColumn)
    x: Any = np.arange(len(values)) if is_text else _to_axis(column, values)
    for colour, output in zip(COLOURS, outputs, strict=False):
        mean, low, high = (part[:, output] for part in (dependence.mean, dependence.low, dependence.high))
        name = names[outputs.index(output)] if names else None
        if is_text:
            # the mean of few draws may lie outside of their quantiles
            ends = np.maximum(mean - low, 0), np.maximum(high - mean, 0)
            ax.errorbar(x, mean, ends, fmt="o", color=colour, markersize=5, capsize=3, label=name)
        else:
            ax.fill_between(x, low, high, color=colour, alpha=0.25, linewidth=0)
            ax.plot(x, mean, ".-" if len(values) < 10 else "-", color=colour, linewidth=1.6, label=name)
    if isinstance(column, TextColumn):
        labels = [shorten(column.categories[code], LONGEST_CATEGORY) for code in values]
        tilted: dict[str, Any] = {"rotation": 35, "ha": "right"} if sum(map(len, labels)) > 30 else {}
        ax.set_xticks(x, labels, **tilted, **PLAIN)
        ax.set_xlim(-0.5, len(values) - 0.5)
    else:
        inside = dependence.deciles[(dependence.deciles >= values[0]) & (dependence.deciles <= values[-1])]  # type: ignore[index]
        marks = _to_axis(column, inside)
        ax.plot(marks, np.zeros(len(marks)), "|", color=BLACK, markersize=7, transform=ax.get_xaxis_transform())
        if isinstance(column, DateColumn):
            ax.tick_params(axis="x", rotation=30)
    ax.set_xlabel(shorten(column.name, 2 * LONGEST_NAME), **PLAIN)
    ax.set_ylabel(shorten(label, 2 * LONGEST_NAME), **PLAIN)
    ax.set_ylim(limits)
    if names:
        ax.legend(frameon=False, fontsize=8)
    ax.spines[["top", "right"]].set_visible(False)


def format_numbers(ax: Axes) -> None:
    """Write the numbers on both axes with thousands separators, and without powers of ten and offsets."""
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    for axis in (ax.xaxis, ax.yaxis):
        shown = axis.get_major_formatter()
        # dates and categories have others
        if not isinstance(shown, ScalarFormatter):
            continue
        if max(map(abs, axis.get_view_interval())) < SEPARATED:
            shown.set_useOffset(False)
        else:
            axis.set_major_formatter(lambda value, _: format_number(value))
            axis.set_major_locator(MaxNLocator(5))


def shorten(text: str, longest: int) -> str:
    """The beginning of a long text."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _to_axis(column: Any, values: Float[np.ndarray, " G"]) -> Any:
    if not isinstance(column, DateColumn):
        return values
    return np.array(pd.Timestamp(1970, 1, 1) + pd.to_timedelta(values, unit="D"), dtype="datetime64[ns]")
