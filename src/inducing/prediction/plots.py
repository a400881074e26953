"""Pictures of predictions."""

from __future__ import annotations

import io

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

BLUE, ORANGE, BLACK = "#3465a4", "#c45a11", "#1a1a1a"


def plot_interval(
    axes: Axes,
    x: Float[np.ndarray, " N"],
    mean: Float[np.ndarray, " N"],
    std: Float[np.ndarray, " N"],
    num_std: float = 1.0,
) -> None:
    """Draw a predictive mean and a band of ``num_std`` standard deviations around it."""
    axes.fill_between(x, mean - num_std * std, mean + num_std * std, color=BLUE, alpha=0.25, linewidth=0)
    axes.plot(x, mean, color=BLUE, linewidth=1.6)


def as_png(figure: Figure, dpi: int = 150) -> bytes:
    """Render a figure without a screen."""
    FigureCanvasAgg(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()
