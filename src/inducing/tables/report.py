"""The report of a fit: one page with scores, figures, uncertain rows and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import metadata
from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix

from inducing import plots
from inducing.arrays import as_tensor
from inducing.extras import require
from inducing.pages import Block, Cell, Heading, Image, Page, Table
from inducing.prediction import metrics
from inducing.tables.fitting import TableFit

# rows in figures; rows and columns in the list of uncertain rows; classes in the confusion matrix
FIGURE_ROWS, UNCERTAIN_ROWS, UNCERTAIN_COLUMNS, SHOWN_CLASSES = 1000, 10, 8, 30
SCORE_NOTES = {
    "regression": "Log-likelihood: nats per row, higher is better. RMSE and CRPS: units of the target, lower is better. The "
    "last three columns are the fractions of rows inside the 50, 90 and 95 % intervals. Constant: mean and variance of the "
    "training rows. Ridge: linear, with Gaussian noise of constant variance.",
    "classification": "Log-likelihood: nats per row, higher is better. ECE: expected calibration error in "
    f"{metrics.NUM_BINS} bins, 0 is best. Constant: class frequencies of the training rows. Logistic: linear logistic "
    "regression.",
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
        f"{type(fit.estimator).__name__}: {problem.task} ({problem.reason}). {len(problem.train)} training rows, "
        f"{len(problem.test)} test rows drawn at random. Scores and figures are of the test rows."
    )
    details = _classification if problem.task == "classification" else _regression
    blocks = [
        introduction,
        Heading("Scores"),
        fit.score_table(note=SCORE_NOTES[problem.task]),
        *(f"{loss}." for loss in fit.losses),
        *details(fit),
        Heading("Most uncertain rows"),
        "The test rows with the most uncertain predictions. Rows are numbered from 0.",
        _uncertain_rows(fit),
        Heading("Training"),
        _image("ELBO", ELBO_CAPTION, plots.plot_history, fit.estimator.history_, terms=False),
        Heading("Columns"),
        "What each column was read as, and what was done with it. All columns have the same weight, whatever the number of "
        "their inputs.",
        problem.encoded.schema.describe(),
        Heading("Settings"),
        _settings(fit, source),
    ]
    return Page(f"{', '.join(problem.targets)} from {source}", blocks)


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


def _uncertain_rows(fit: TableFit) -> Table:
    """The test rows with the largest entropy or standard deviation; targets are weighted by their mean deviation."""
    problem, predictive = fit.problem, fit.predictive
    truth = problem.y[problem.test].reshape(len(problem.test), -1)
    if problem.task == "classification":
        uncertainty = metrics.entropy(predictive).numpy()
        probability, predicted = predictive.mean.max(1)
        headings = [f"{problem.targets[0]}, true", "predicted", "probability"]
        cells = [*truth.T, fit.estimator.classes_[predicted], probability.tolist()]
    else:
        std = predictive.stddev.numpy()
        uncertainty = (std / np.maximum(std.mean(0), 1e-300)).mean(1)
        parts = [truth.astype(float), predictive.mean, std, predictive.epistemic.sqrt()]
        headings = [f for name in problem.targets for f in (f"{name}, true", "predicted", "± std", "epistemic std")]
        cells = [np.asarray(part)[:, k] for k in range(len(problem.targets)) for part in parts]
    inputs = problem.inputs.iloc[problem.test]
    names = list(inputs.columns[:UNCERTAIN_COLUMNS])
    columns = [inputs.index, *cells, *(inputs[name] for name in names)]
    order = np.argsort(-uncertainty, kind="stable")[:UNCERTAIN_ROWS]
    rows = [[_short(np.asarray(column)[row]) for column in columns] for row in order]
    hidden = inputs.shape[1] - len(names)
    note = f"{hidden} more columns are not shown." if hidden else ""
    return Table(["row", *map(_short, [*headings, *names])], rows, note=note)


def _settings(fit: TableFit, source: str) -> Table:
    problem, estimator = fit.problem, fit.estimator
    logs = [name for name, is_log in zip(problem.targets, problem.is_log, strict=False) if is_log]
    rows = [
        ["table", source],
        ["inputs", ", ".join(problem.inputs.columns)],
        ["excluded", ", ".join(problem.excluded) or "none"],
        ["targets on a log scale", ", ".join(logs) or "none"],
        ["model", f"{type(estimator).__name__}: {estimator.built}"],
        ["steps", str(len(estimator.history_))],
        ["ELBO per row after training", f"{estimator.elbo_:.4g}"],
        ["seconds", f"{fit.seconds:.1f}"],
        ["inducing", metadata.version("inducing")],
        *([name, str(value)] for name, value in estimator.get_params().items() if name not in ("schema", "verbose")),
    ]
    return Table(["setting", "value"], rows, text_columns=2)


def _image(alt: str, caption: str, plot: Callable[..., object], *arguments: Any, **options: Any) -> Image:
    require("matplotlib")
    from matplotlib.figure import Figure

    figure = Figure((4.4, 3.4), layout="constrained")
    plot(*arguments, **options, ax=figure.add_subplot())
    return Image(figure, alt, caption, "svg")


def _short(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 40 else text[:39] + "…"
