"""The report of a fit: one page with scores, figures, uncertain rows and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import metadata
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import confusion_matrix

from inducing import plots
from inducing.arrays import as_tensor
from inducing.estimators.auto import Auto
from inducing.extras import require
from inducing.pages import Block, Cell, Heading, Image, Page, Table
from inducing.prediction import metrics
from inducing.tables.errors import counted
from inducing.tables.explaining import Importance, compute_dependence, measure_importances
from inducing.tables.figures import format_numbers, plot_dependence, plot_importances, shorten
from inducing.tables.fitting import TableFit
from inducing.tables.numbers import decimals_of, decimals_of_predictions, format_number

# columns with importances and with curves; classes with curves
SHOWN_IMPORTANCES, SHOWN_CURVES, CURVES_OF_CLASSES = 12, 6, 4
# the least height of an axis, of the range of the most important column
LEAST_HEIGHT = 0.1
# rows in figures; rows and columns in the list of uncertain rows; classes in the confusion matrix
FIGURE_ROWS, UNCERTAIN_ROWS, UNCERTAIN_COLUMNS, SHOWN_CLASSES = 1000, 10, 8, 30
SCORE_NOTES = {
    "regression": "Log-likelihood: nats per row, higher is better. RMSE and CRPS: units of the target, lower is better. The "
    "last three columns are the fractions of rows inside the 50, 90 and 95 % intervals. Constant: mean and variance of the "
    "training rows. Ridge: linear. Boosted trees: gradient boosting. Both have Gaussian noise of constant variance.",
    "classification": "Log-likelihood: nats per row, higher is better. ECE: expected calibration error in "
    f"{metrics.NUM_BINS} bins, 0 is best. Constant: class frequencies of the training rows. Logistic: linear logistic "
    "regression. Boosted trees: gradient boosting.",
}
ELBO_CAPTION = "ELBO of the standardised data at each step. If it still rises at the end, use more steps."
FIGURES: dict[str, tuple[Callable[..., object], str]] = {
    "predicted and true": (plots.plot_predicted, "Predictions with 90 % intervals against true values."),
    "calibration": (
        plots.plot_calibration,
        "Coverage of intervals. Below the dashed line they are too narrow, above it too wide. Grey: 95 % sampling error.",
    ),
    "residuals": (
        plots.plot_residuals,
        "Residuals in standard deviations. About 95 % should lie between the dashed lines, without a trend.",
    ),
}


def report_page(fit: TableFit, source: str) -> Page:
    """Make the report of a fit.

    Arguments:
        fit: The fit.
        source: The name of the table.
    """
    problem = fit.problem
    introduction = (
        f"{type(fit.estimator).__name__}: {problem.task} ({problem.reason}). {counted(fit.num_train, 'training row')}, "
        f"{counted(len(problem.test), 'test row')} drawn at random. Scores and figures are of the test rows."
    )
    details = _classification if problem.task == "classification" else _regression
    blocks = [
        introduction,
        Heading("Scores"),
        fit.score_table(note=SCORE_NOTES[problem.task]),
        *(f"{loss}." for loss in fit.losses),
        *details(fit),
        *_explanations(fit),
        Heading("Most uncertain rows"),
        "The test rows with the most uncertain predictions. Rows are numbered from 0.",
        _uncertain_rows(fit),
        Heading("Training"),
        *_histories(fit),
        Heading("Columns"),
        "What each column was read as, and what was done with it. All columns have the same weight, whatever the number of "
        "their inputs.",
        problem.encoded.schema.describe(),
        Heading("Settings"),
        _settings(fit, source),
    ]
    return Page(f"{', '.join(problem.targets)} from {source}", blocks)


def _histories(fit: TableFit) -> Iterator[Block]:
    for name, member in fit.members.items():
        caption = ELBO_CAPTION if len(fit.members) == 1 else f"{name}: {ELBO_CAPTION}"
        yield _image("ELBO", caption, plots.plot_history, member.history_, terms=False)


def _regression(fit: TableFit) -> Iterator[Block]:
    # test rows are in the order of the table; show evenly spaced ones if there are many
    count = len(fit.y_test)
    rows = as_tensor(np.unique(np.linspace(0, count - 1, min(count, FIGURE_ROWS)).round().astype(int)))
    predictive, y = replace(fit.predictive, outputs=fit.predictive.outputs[:, rows]), fit.y_test[rows]
    for output, name in enumerate(fit.problem.targets):
        yield Heading(name)
        if len(rows) < count:
            yield f"The figures show {len(rows)} of the {count} test rows."
        for alt, (plot, caption) in FIGURES.items():
            yield _image(alt, caption, plot, predictive, y, output=output)


def _classification(fit: TableFit) -> Iterator[Block]:
    classes = [str(label) for label in fit.estimator.classes_.tolist()]
    counts = confusion_matrix(fit.y_test, fit.predictive.mean.argmax(1), labels=range(len(classes)))
    shown = [_short(label) for label in classes[:SHOWN_CLASSES]]
    rows: list[list[str | Cell]] = [
        [label, *(Cell(str(counts[i, j]), "marked" if i == j else "plain") for j in range(len(shown)))]
        for i, label in enumerate(shown)
    ]
    rest = f" The first {len(shown)} of {len(classes)} classes are shown." if len(shown) < len(classes) else ""
    yield Heading("Confusion matrix")
    yield Table(["true \\ predicted", *shown], rows, note=f"Test rows by true and predicted class.{rest}")
    yield Heading("Calibration")
    caption = "On the dashed line, predictions are as accurate as their probabilities; below it, too confident."
    yield _image("calibration", caption, plots.plot_reliability, fit.predictive, fit.y_test)


def _explanations(fit: TableFit) -> Iterator[Block]:
    """The importances of columns, and the partial dependence on the most important ones."""
    importances, is_regression = measure_importances(fit), fit.problem.task == "regression"
    shown = importances[:SHOWN_IMPORTANCES]
    what = "the RMSE increases" if is_regression else "the log-likelihood of a row decreases, in nats,"
    units = ", in standard deviations of the targets" if len(fit.problem.targets) > 1 else ""
    rest = len(importances) - len(shown)
    yield Heading("Importance of columns")
    yield (
        f"By how much {what}{units} if the values of a column are shuffled among the test rows: mean and standard "
        "deviation of five repeats. Columns that carry the same information share their importance."
        + f" {rest} less important columns are not shown."
        * bool(rest)
    )
    label = "increase of the RMSE" if is_regression else "decrease of the log-likelihood"
    write = fit.write_error if is_regression else "{:.3f}".format
    size = (4.4, 0.9 + 0.32 * len(shown))
    yield _image("importances of columns", "", plot_importances, shown, write, label, size=size)
    yield Heading("Partial dependence")
    yield (
        "The average prediction if all test rows had the same value in a column, for the most important columns. It is not "
        "a causal effect. Bands: 90 % of the posterior draws of this average, without the noise. Marks on the axis: deciles "
        "of the training rows. The scales of the figures differ."
    )
    yield from _curves(fit, importances[:SHOWN_CURVES])


def _curves(fit: TableFit, importances: list[Importance]) -> Iterator[Block]:
    found = [compute_dependence(fit, importance.column) for importance in importances]
    groups: list[tuple[list[int], list[str], str]]
    if fit.problem.task == "regression":
        groups = [([output], [], name) for output, name in enumerate(fit.problem.targets)]
    else:
        classes = [str(label) for label in fit.estimator.classes_.tolist()]
        most_frequent = np.argsort(-fit.predictive.mean.mean(0).numpy(), kind="stable")[:CURVES_OF_CLASSES].tolist()
        two, names = len(classes) == 2, [shorten(classes[k], 20) for k in most_frequent]
        groups = [([1], [], f"probability of {classes[1]}") if two else (most_frequent, names, "probability")]
    for outputs, names, label in groups:
        ends = [(float(each.low[:, outputs].min()), float(each.high[:, outputs].max())) for each in found]
        widest = max(high - low for low, high in ends) or 1.0
        for each, (low, high) in zip(found, ends, strict=True):
            # a column without an effect looks flat
            half, centre = max(0.55 * (high - low), LEAST_HEIGHT / 2 * widest), (low + high) / 2
            alt, limits = f"partial dependence of {label} on {each.column.name}", (centre - half, centre + half)
            yield _image(alt, "", plot_dependence, each, outputs, names, label, limits)


def _uncertain_rows(fit: TableFit) -> Table:
    """The test rows with the largest entropy or standard deviation; targets are weighted by their mean deviation."""
    problem, predictive = fit.problem, fit.predictive
    truth = problem.y[problem.test].reshape(len(problem.test), -1)
    if problem.task == "classification":
        uncertainty = metrics.entropy(predictive).numpy()
        probability, predicted = predictive.mean.max(1)
        headings = [f"{problem.targets[0]}, true", "predicted", "probability"]
        cells = [*truth.T, fit.estimator.classes_[predicted], [f"{each:.3f}" for each in probability.tolist()]]
    else:
        std = predictive.stddev.numpy()
        uncertainty = (std / np.maximum(std.mean(0), 1e-300)).mean(1)
        parts = [truth.astype(float), predictive.mean, std, predictive.epistemic.sqrt()]
        headings = [f for name in problem.targets for f in (f"{name}, true", "predicted", "± std", "epistemic std")]
        written = [(decimals_of(column), *[decimals_of_predictions(column)] * 3) for column in truth.astype(float).T]
        cells = [
            _written(np.asarray(part)[:, k], decimals)
            for k in range(len(problem.targets))
            for part, decimals in zip(parts, written[k], strict=True)
        ]
    inputs = problem.inputs.iloc[problem.test]
    names = list(inputs.columns[:UNCERTAIN_COLUMNS])
    columns = [inputs.index, *cells, *(_written(inputs[name]) for name in names)]
    order = np.argsort(-uncertainty, kind="stable")[:UNCERTAIN_ROWS]
    rows = [[_short(column[row]) for column in columns] for row in order]
    hidden = inputs.shape[1] - len(names)
    note = f"{hidden} more columns are not shown." if hidden else ""
    return Table(["row", *map(_short, [*headings, *names])], rows, note=note)


def _settings(fit: TableFit, source: str) -> Table:
    problem, estimator = fit.problem, fit.estimator
    logs = [name for name, is_log in zip(problem.targets, problem.is_log, strict=False) if is_log]
    ignored = problem.encoded.schema.left_out
    rows = [
        ["table", source],
        ["inputs", ", ".join(name for name in problem.inputs.columns if name not in ignored)],
        ["left out", ", ".join(f"{name} ({reason})" for name, reason in ignored.items()) or "none"],
        ["excluded", ", ".join(problem.excluded) or "none"],
        ["targets on a log scale", ", ".join(logs) or "none"],
        ["seconds", f"{fit.seconds:.1f}"],
        ["inducing", metadata.version("inducing")],
    ]
    weights, scores = (estimator.weights_, estimator.scores_) if isinstance(estimator, Auto) else ({}, {})
    rows += [[f"{name}: log-likelihood of held-out rows", f"{score:.3f}"] for name, score in scores.items()]
    if isinstance(estimator, Auto) and estimator.noise_factor_ != 1:
        rows.append(["factor of all noise variances", f"{estimator.noise_factor_:.2f}"])
    for name, member in fit.members.items():
        model = f"{type(member).__name__}: {member.built}"
        parameters = {key: value for key, value in member.get_params().items() if key not in ("schema", "verbose")}
        prefix = f"{name}: " if name in weights else ""
        rows += [
            [f"{prefix}model", f"weight {weights[name]:.2f}, {model}" if name in weights else model],
            [f"{prefix}steps", str(len(member.history_))],
            [f"{prefix}ELBO per row after training", f"{member.elbo_:.4g}"],
            *([f"{prefix}{key}", str(value)] for key, value in parameters.items()),
        ]
    return Table(["setting", "value"], rows, text_columns=2)


def _image(
    alt: str,
    caption: str,
    plot: Callable[..., object],
    *arguments: Any,
    size: tuple[float, float] = (4.4, 3.4),
    **options: Any,
) -> Image:
    require("matplotlib")
    from matplotlib.figure import Figure

    figure = Figure(size, layout="constrained")
    ax = figure.add_subplot()
    plot(*arguments, **options, ax=ax)
    format_numbers(ax)
    return Image(figure, alt, caption, "svg")


def _written(values: Any, decimals: int | None = None) -> list[object]:
    """The numbers of a column as texts, with the same decimals. Default: those of the column. Other values stay."""
    array = np.asarray(values)
    if array.dtype.kind not in "iuf":
        return ["" if pd.isna(value) else value for value in array]
    places = decimals_of(array) if decimals is None else decimals
    return ["" if value != value else format_number(value, places) for value in array.tolist()]


def _short(value: object) -> str:
    text = format_number(value) if isinstance(value, float) else str(value)
    return shorten(text, 40)
