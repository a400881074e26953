"""Plots of predictions, layers, training and calibration.

Every function draws on matplotlib axes and returns them. Without ``ax`` it creates a new figure with ``matplotlib.pyplot``.
Matplotlib is imported only in this case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from inducing.extras import require
from inducing.inference.history import History
from inducing.linalg.noise import seeded
from inducing.nn.draw import Chain, layer_functions
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.prediction import metrics
from inducing.prediction.predictive import Predictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
else:
    Axes = Any  # matplotlib is optional

BLUE, ORANGE, BLACK = "#3465a4", "#c45a11", "#1a1a1a"
# coverage of the central intervals in `plot_calibration`
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
# layers above the first are plotted over this central part of their input values
CENTRAL = 0.98


def plot_predictive(
    predictive: Predictive,
    x: Tensor | ArrayLike,
    *,
    data: tuple[Tensor | ArrayLike, Tensor | ArrayLike] | None = None,
    output: int = 0,
    coverage: float = 0.9,
    ax: Axes | None = None,
) -> Axes:
    """Plot predictions against one input: the mean and two central intervals.

    The light band is the interval of a target. The dark band is the interval of its mean over posterior draws, without the
    noise: the uncertainty about the function.

    Arguments:
        predictive: Predictions of `inducing.predict`; of numbers, not of classes.
        x: Their inputs, (N,) or (N, 1), in any order.
        data: Inputs and targets to show as dots.
        output: Index of the output to show.
        coverage: Probability of the intervals.
        ax: Axes to draw on. Default: a new figure.

    Example:
        >>> import inducing
        >>> toy = inducing.data.toy.cubic()
        >>> network = inducing.models.mlp(1, 1, num_inducing=5)
        >>> likelihood = inducing.Gaussian()
        >>> prediction = inducing.predict(network, likelihood, toy.x)
        >>> ax = inducing.plots.plot_predictive(prediction, toy.x, data=(toy.x, toy.y))
    """
    ax = _axes(ax)
    position = _column("x", x)
    order = np.argsort(position)
    tails = [(1 - coverage) / 2, (1 + coverage) / 2]
    functions = predictive.function_means
    bands = {
        "target": (predictive.quantile(tails), 0.25),
        "function": (functions.quantile(functions.new_tensor(tails), 0), 0.35),
    }
    for name, (ends, alpha) in bands.items():
        low, high = _array(ends[..., output])[:, order]
        ax.fill_between(position[order], low, high, color=BLUE, alpha=alpha, linewidth=0, label=name)
    ax.plot(position[order], _array(predictive.mean[:, output])[order], color=BLUE, linewidth=1.6)
    if data is not None:
        ax.plot(_column("x", data[0]), _targets(data[1], output), ".", color=BLACK, markersize=4, label="data")
    return ax


def plot_band(
    x: Tensor | ArrayLike,
    mean: Tensor | ArrayLike,
    std: Tensor | ArrayLike,
    *,
    draws: Tensor | ArrayLike | None = None,
    num_std: float = 1.0,
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot a mean and a band around it.

    Arguments:
        x: Inputs in ascending order, (N,) or (N, 1).
        mean: Mean at each input.
        std: Standard deviation at each input.
        draws: Sampled functions to plot as thin lines, (D, N).
        num_std: Half the width of the band, in standard deviations.
        label: Name of the band in a legend.
        ax: Axes to draw on. Default: a new figure.
    """
    ax = _axes(ax)
    x, mean, std = _column("x", x), _column("mean", mean), _column("std", std)
    if draws is not None:
        ax.plot(x, _array(draws).T, color=BLUE, linewidth=0.6, alpha=0.6)
    ax.fill_between(x, mean - num_std * std, mean + num_std * std, color=BLUE, alpha=0.25, linewidth=0, label=label)
    ax.plot(x, mean, color=BLUE, linewidth=1.6)
    return ax


def plot_layer(
    network: Network,
    layer: int,
    x: Tensor,
    *,
    output: int = 0,
    num_samples: int = 100,
    num_draws: int = 6,
    num_std: float = 2.0,
    seed: int = 0,
    likelihood: Likelihood | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the function of one layer: its mean, a band, and a few sampled functions.

    Only the Bayesian layers in the network's own list are counted, not those inside residual blocks. The function of a layer
    includes the modules between it and the layer below, e.g. an activation or a residual block. The first layer is plotted
    over the range of ``x``. Other layers are plotted over the central 98 % of their input values for inputs ``x``.

    Arguments:
        network: A network.
        layer: Index among the Bayesian layers outside of residual blocks, starting at 0. -1 is the last of them.
        x: Inputs of the network.
        output: Index of the layer's output to show.
        num_samples: Number of posterior draws for the mean and the band.
        num_draws: Number of sampled functions to plot.
        num_std: Half the width of the band, in standard deviations.
        seed: Seed of the draws. The same seed draws the same functions for all layers.
        likelihood: The likelihood. Only a last layer with an `OptimalInducing` posterior needs it.
        ax: Axes to draw on. Default: a new figure.

    Example:
        >>> import inducing, torch
        >>> network = inducing.models.deep_gp(1, 1, num_layers=2, num_inducing=5)
        >>> ax = inducing.plots.plot_layer(network, 0, torch.linspace(-2, 2, 50)[:, None])
    """
    with torch.no_grad():
        draw = network.draw(num_samples, seeded(seed, "functions"), consistent=True, likelihood=likelihood)
        functions = layer_functions(draw)
        if not -len(functions) <= layer < len(functions):
            raise ValueError(
                f"the network has {len(functions)} Bayesian layers outside of residual blocks, got layer={layer}"
            )
        index = layer % len(functions)
        inputs = Chain(tuple(functions[:index]))(x[None])
        if inputs.ndim != 3 or inputs.shape[-1] != 1:
            raise ValueError(
                f"layer {layer} has {inputs[0, 0].numel()} inputs. Only layers with one input can be plotted"
            )
        tails = inputs.new_tensor([0.0, 1.0] if index == 0 else [(1 - CENTRAL) / 2, (1 + CENTRAL) / 2])
        low, high = inputs.flatten().quantile(tails).tolist()
        grid = torch.linspace(low, high, 200, dtype=x.dtype, device=x.device)
        values = functions[index](grid[None, :, None])[..., output]
    std = values.std(0, correction=0)
    return plot_band(grid, values.mean(0), std, draws=values[:num_draws], num_std=num_std, ax=ax)


def plot_history(history: History, *, terms: bool = True, ax: Axes | None = None) -> Axes:
    """Plot the ELBO, or another bound by its name, during training, in nats per data point, with its terms.

    The axis is scaled to the second half of the steps, since the ELBO of the first steps is often far lower.

    Arguments:
        history: The result of `inducing.fit`.
        terms: Whether to plot also the log-likelihood and the KL.
        ax: Axes to draw on. Default: a new figure.
    """
    ax = _axes(ax)
    ax.set(xlabel="step", ylabel="nats per data point")
    steps = np.array([record.step for record in history.records])
    lines = {history.bound: (np.array(history.elbo), BLUE)}
    if terms:
        log_likelihood = np.array([record.log_likelihood for record in history.records])
        lines["log-likelihood"] = (log_likelihood, BLACK)
        lines["KL"] = (np.array([sum(record.kl) + sum(record.prior_kl) for record in history.records]), ORANGE)
    for name, (values, color) in lines.items():
        ax.plot(steps, values, color=color, linewidth=1, label=name)
    later = np.concatenate([values[len(values) // 2 :] for values, _ in lines.values()])
    low, high = float(later.min(initial=np.inf)), float(later.max(initial=-np.inf))
    if high > low:
        ax.set_ylim(low - 0.5 * (high - low), high + 0.2 * (high - low))
    if terms:
        ax.legend(frameon=False)
    return ax


def plot_calibration(
    predictive: Predictive,
    y: Tensor | ArrayLike,
    *,
    output: int = 0,
    levels: Sequence[float] = LEVELS,
    ax: Axes | None = None,
) -> Axes:
    """Plot the observed coverage of central intervals against their nominal coverage.

    Below the dashed line the intervals are too narrow, above it too wide. Inside the grey band the difference is within the
    95 % sampling error of a calibrated model.

    Arguments:
        predictive: Predictions of numbers (not of classes) for held-out rows.
        y: Targets of these rows.
        output: Index of the output to show.
        levels: Nominal coverages, between 0 and 1.
        ax: Axes to draw on. Default: a new figure.
    """
    if predictive.likelihood.support == "classes":
        raise TypeError("class labels have no intervals. Use plot_reliability")
    ax = _axes(ax)
    targets, p = predictive.check_targets(y)[:, output], np.array(levels)
    ends = predictive.quantile([*((1 - p) / 2), *((1 + p) / 2)])[..., output]
    inside = ((ends[: len(p)] <= targets) & (targets <= ends[len(p) :]))[:, ~targets.isnan()]
    grid = np.linspace(0, 1, 101)
    # +- 1.96 sqrt(p (1 - p) / n)
    error = 1.96 * np.sqrt(grid * (1 - grid) / inside.shape[1])
    ax.fill_between(grid, grid - error, grid + error, color=BLACK, alpha=0.1, linewidth=0)
    _plot_diagonal(ax, 0, 1)
    observed = _array(inside.double().mean(1))
    ax.plot(p, observed, "o-", color=BLUE, markersize=4, linewidth=1)
    ax.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="nominal coverage", ylabel="observed coverage")
    return ax


def plot_reliability(
    predictive: Predictive, y: Tensor, *, num_bins: int = metrics.NUM_BINS, ax: Axes | None = None
) -> Axes:
    """Plot a reliability diagram: the accuracy of predicted classes against their predicted probability.

    Below the dashed line the model is overconfident. The bars are 95 % sampling errors. Bins without rows are left out. The
    title is the expected calibration error (ECE).

    Arguments:
        predictive: Predictions of class labels for held-out rows.
        y: Labels of these rows.
        num_bins: Number of bins of equal width between 0 and 1.
        ax: Axes to draw on. Default: a new figure.
    """
    ax = _axes(ax)
    curve = metrics.calibration_curve(predictive, y, num_bins)
    filled = curve.num_rows > 0
    confidence, accuracy, rows = (_array(values[filled]) for values in curve)
    _plot_diagonal(ax, 0, 1)
    error = 1.96 * np.sqrt(accuracy * (1 - accuracy) / rows)
    ax.errorbar(confidence, accuracy, error, fmt="o-", color=ORANGE, markersize=4, linewidth=1, elinewidth=0.8)
    error_of_calibration = metrics.expected_calibration_error(predictive, y, num_bins)
    ax.set(xlim=(0, 1.02), ylim=(0, 1.02), xlabel="probability of the predicted class", ylabel="accuracy")
    ax.set_title(f"ECE {error_of_calibration:.3f}", fontsize=10)
    return ax


def plot_predicted(
    predictive: Predictive,
    y: Tensor | ArrayLike,
    *,
    output: int = 0,
    coverage: float = 0.9,
    ax: Axes | None = None,
) -> Axes:
    """Plot predictive means against true values, with central intervals.

    Arguments:
        predictive: Predictions of numbers (not of classes) for held-out rows.
        y: Targets of these rows.
        output: Index of the output to show.
        coverage: Nominal coverage of the intervals.
        ax: Axes to draw on. Default: a new figure.
    """
    ax = _axes(ax)
    true, mean = _array(predictive.check_targets(y)[:, output]), _array(predictive.mean[:, output])
    ends = predictive.quantile([(1 - coverage) / 2, (1 + coverage) / 2])
    low, high = _array(ends[..., output])
    # the mean of a skewed distribution can be outside of its interval
    below, above = np.maximum(mean - low, 0), np.maximum(high - mean, 0)
    ax.errorbar(true, mean, [below, above], fmt="none", ecolor=BLUE, alpha=0.3, elinewidth=1)
    ax.plot(true, mean, ".", color=BLUE, markersize=5)
    _plot_diagonal(ax, min(np.nanmin(true), mean.min()), max(np.nanmax(true), mean.max()))
    ax.set(xlabel="true", ylabel="predicted")
    return ax


def plot_residuals(predictive: Predictive, y: Tensor | ArrayLike, *, output: int = 0, ax: Axes | None = None) -> Axes:
    """Plot (true - predicted) / standard deviation against the prediction.

    For Gaussian predictive distributions about 95 % of the rows should lie between the dashed lines, without a trend.

    Arguments:
        predictive: Predictions of numbers (not of classes) for held-out rows.
        y: Targets of these rows.
        output: Index of the output to show.
        ax: Axes to draw on. Default: a new figure.
    """
    ax = _axes(ax)
    for line in (-2, 0, 2):
        ax.axhline(line, color=BLACK, linewidth=0.8, linestyle="-" if line == 0 else "--")
    mean = predictive.mean[:, output]
    residuals = (predictive.check_targets(y)[:, output] - mean) / predictive.stddev[:, output]
    ax.plot(_array(mean), _array(residuals), ".", color=BLUE, markersize=5)
    ax.set(xlabel="predicted", ylabel="(true - predicted) / std")
    return ax


def _axes(ax: Axes | None) -> Axes:
    if ax is None:
        require("matplotlib")
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(4.4, 3.4), layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _plot_diagonal(ax: Axes, low: float, high: float) -> None:
    ax.plot([low, high], [low, high], color=BLACK, linewidth=0.8, linestyle="--")


def _array(values: Tensor | ArrayLike) -> np.ndarray:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _column(name: str, values: Tensor | ArrayLike) -> Float[np.ndarray, " N"]:
    array = _array(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"{name} must be (N,) or (N, 1), got {array.shape}")
    return array


def _targets(y: Tensor | ArrayLike, output: int) -> Float[np.ndarray, " N"]:
    array = _array(y)
    return array if array.ndim == 1 else array[:, output]
