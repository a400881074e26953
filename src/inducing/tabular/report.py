"""The report: one HTML file that needs nothing else, no network and no scripts.

Whatever comes from the data is escaped, and a policy in the page forbids scripts and anything from outside.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterable, Sequence
from html import escape
from importlib import metadata

import numpy as np
from matplotlib.figure import Figure

from inducing.arrays import as_tensor
from inducing.prediction import metrics
from inducing.prediction.predictive import Predictive
from inducing.tabular import figures
from inducing.tabular.fitting import Outcome
from inducing.tabular.scores import BINS, SEVERAL_TARGETS, shown

# rows in pictures, rows in the list of the most uncertain, columns in it, classes in the table of confusions
PICTURE_ROWS, UNCERTAIN_ROWS, SHOWN_COLUMNS, SHOWN_CLASSES = 1000, 10, 8, 30
LEVELS = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95])

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; }
body { margin: 0 auto; max-width: 1060px; padding: 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.15rem; margin-top: 2rem; }
h1, h2, p { overflow-wrap: anywhere; } p { max-width: 46rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 320px), 1fr)); gap: 1rem; }
figure { margin: 0; } figure img { width: 100%; height: auto; } figcaption { font-size: 0.875rem; color: #444; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid #ddd; text-align: right; vertical-align: top; }
td { white-space: nowrap; } td.right { background: #e5edf7; } tr.ours { font-weight: 600; }
th:first-child, td:first-child, .settings th, .settings td { text-align: left; padding-left: 0; }
.settings td { white-space: normal; overflow-wrap: anywhere; } .settings td:first-child { min-width: 8rem; }
@media (max-width: 600px) { table { font-size: 0.8rem; } th, td { padding: 0.3rem 0.35rem; } }
"""
ELBO_CAPTION = (
    "The evidence lower bound at each step, on the scale of the standardised data. It should have come to rest; if it "
    "still rises, allow more steps."
)
SCORE_NOTES = {
    "regression": "Log-likelihood in nats per row, higher is better; RMSE and CRPS in the units of the target, smaller is "
    "better; the last three are the shares of rows inside the 50, 90 and 95 % intervals. Constant: mean and variance of the "
    "training rows. Ridge: linear, with the same Gaussian noise everywhere.",
    "classification": "Log-likelihood in nats per row, higher is better. ECE: the expected calibration error in ten bins, 0 "
    "is perfect. Constant: the frequencies of the classes in the training rows. Logistic: linear logistic regression.",
}


def report_page(outcome: Outcome, source: str) -> str:
    """Make the report of a fit.

    Arguments:
        outcome: The fit.
        source: The name of the table.
    """
    problem = outcome.problem
    title = f"{', '.join(problem.targets)} from {source}"
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(type(outcome.estimator).__name__)}: {problem.task}, since {escape(problem.reason)}. "
        f"{len(problem.train)} rows to learn from, {len(problem.test)} rows, drawn at random, to test on. "
        "Scores and pictures are of the test rows, which the model has not seen.</p>",
        "<h2>Scores</h2>",
        _scores(outcome),
        *(_classes(outcome) if problem.task == "classification" else _targets(outcome)),
        "<h2>The most uncertain rows</h2>",
        "<p>Of the test rows, those where the prediction says least. Rows are counted from 0 below the heading.</p>",
        _most_uncertain(outcome),
        "<h2>Training</h2>",
        '<div class="figures">'
        + _picture(figures.elbo_curve(outcome.estimator.history_), "ELBO", ELBO_CAPTION)
        + "</div>",
        "<h2>Settings</h2>",
        _settings(outcome, source),
    ]
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
            *body,
            "</body></html>\n",
        ]
    )


def _scores(outcome: Outcome) -> str:
    names = list(next(iter(outcome.scores.values())))
    rows = [[model, *(shown(name, values[name]) for name in names)] for model, values in outcome.scores.items()]
    units = f" {SEVERAL_TARGETS}" if len(outcome.problem.targets) > 1 else ""
    return _table(["", *names], rows, first="ours") + f"<p>{SCORE_NOTES[outcome.problem.task]}{units}</p>"


def _targets(outcome: Outcome) -> Iterable[str]:
    """Pictures of each target."""
    rows = _some(len(outcome.y_test))
    predictive = _rows_of(outcome, rows)
    mean, std = predictive.mean.numpy(), predictive.stddev.numpy()
    y = outcome.y_test[rows].numpy()
    ends = predictive.quantile(as_tensor(np.concatenate([(1 - LEVELS) / 2, (1 + LEVELS) / 2]))).numpy()
    low, high = ends[: len(LEVELS)], ends[len(LEVELS) :]
    inside = ((low <= y) & (y <= high)).mean(1)
    ninety = int(np.flatnonzero(LEVELS == 0.9)[0])
    for k, name in enumerate(outcome.problem.targets):
        yield f"<h2>{escape(name)}</h2>"
        if len(rows) < len(outcome.y_test):
            yield f"<p>The pictures show {len(rows)} of the {len(outcome.y_test)} test rows.</p>"
        pictures = [
            _picture(
                figures.predicted_and_true(y[:, k], mean[:, k], low[ninety, :, k], high[ninety, :, k]),
                "predicted and true",
                "Predictions against true values, with 90 % intervals. On the dashed line they agree.",
            ),
            _picture(
                figures.interval_calibration(LEVELS, inside[:, k], len(rows)),
                "calibration",
                "Calibration: on the dashed line intervals hold what they say; below it they are too narrow, above it too "
                "wide. In the grey band chance explains the difference.",
            ),
            _picture(
                figures.residuals(mean[:, k], (y[:, k] - mean[:, k]) / std[:, k]),
                "residuals",
                "Residuals in standard deviations. About 95 % should lie between the dashed lines, without a trend.",
            ),
        ]
        yield '<div class="figures">' + "".join(pictures) + "</div>"


def _classes(outcome: Outcome) -> Iterable[str]:
    """Confusions and calibration."""
    classes = [str(label) for label in outcome.estimator.classes_.tolist()]
    predicted = outcome.predictive.mean.argmax(1)
    counts = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(counts, (outcome.y_test.numpy(), predicted.numpy()), 1)
    yield "<h2>Confusions</h2>"
    number = min(len(classes), SHOWN_CLASSES)
    head = "".join(f'<th scope="col">{escape(_short(label))}</th>' for label in classes[:number])
    lines = [
        f'<tr><th scope="row">{escape(_short(classes[row]))}</th>'
        + "".join(
            f"<td{' class=right' if row == column else ''}>{counts[row, column]}</td>" for column in range(number)
        )
        + "</tr>"
        for row in range(number)
    ]
    yield f'<div class="wide"><table><tr><th>true \\ predicted</th>{head}</tr>{"".join(lines)}</table></div>'
    rest = f" The first {number} of {len(classes)} classes are shown." if number < len(classes) else ""
    yield f"<p>Test rows by their true class and the predicted one.{rest}</p><h2>Calibration</h2>"
    curve = metrics.calibration_curve(outcome.predictive, outcome.y_test, BINS)
    caption = "On the dashed line the model is right as often as it says; below it, it is too sure of itself."
    figure = figures.class_calibration(curve.confidence.numpy(), curve.accuracy.numpy())
    yield '<div class="figures">' + _picture(figure, "calibration", caption) + "</div>"


def _most_uncertain(outcome: Outcome) -> str:
    """The test rows with the largest standard deviation, of several targets in units of each, or entropy."""
    problem, predictive = outcome.problem, outcome.predictive
    truth = problem.y[problem.test].reshape(len(problem.test), -1)
    if problem.task == "classification":
        doubt = metrics.entropy(predictive).numpy()
        probability, predicted = predictive.mean.max(1)
        classes = outcome.estimator.classes_
        heads = [f"{problem.targets[0]}, true", "predicted", "with probability"]
        cells = [
            [_short(t[0]), _short(classes[p]), f"{q:.2f}"]
            for t, p, q in zip(truth, predicted, probability, strict=True)
        ]
    else:
        std, mean = predictive.stddev.numpy(), predictive.mean.numpy()
        doubt = (std / np.maximum(std.mean(0), 1e-300)).mean(1)
        epistemic = predictive.epistemic.sqrt().numpy()
        heads = [h for name in problem.targets for h in (f"{name}, true", "predicted", "± std", "epistemic std")]
        figures_of = np.stack([truth.astype(float), mean, std, epistemic], -1).reshape(len(truth), -1)
        cells = [[f"{value:.4g}" for value in row] for row in figures_of]
    inputs = problem.inputs.iloc[problem.test]
    columns = list(inputs.columns[:SHOWN_COLUMNS])
    order = np.argsort(-doubt, kind="stable")[:UNCERTAIN_ROWS]
    rows = [[str(inputs.index[r]), *cells[r], *(_short(inputs[name].iloc[r]) for name in columns)] for r in order]
    more = inputs.shape[1] - len(columns)
    note = f"<p>{more} more columns are not shown.</p>" if more > 0 else ""
    return _table(["row", *heads, *columns], rows) + note


def _settings(outcome: Outcome, source: str) -> str:
    problem, estimator = outcome.problem, outcome.estimator
    rows = [
        ["table", source],
        ["inputs", ", ".join(problem.inputs.columns)],
        ["excluded", ", ".join(problem.excluded) or "none"],
        ["model", f"{type(estimator).__name__}: {estimator.built}"],
        ["steps", str(len(estimator.history_))],
        ["ELBO per row after training", f"{estimator.elbo_:.4g}"],
        ["seconds", f"{outcome.seconds:.1f}"],
        ["inducing", metadata.version("inducing")],
        *([name, str(value)] for name, value in estimator.get_params().items() if name not in ("schema", "verbose")),
    ]
    imputed = [column.name for column in estimator.schema_.columns if column.fill is not None]  # type: ignore[union-attr]
    rows.append(["missing values", "imputed by median or most frequent category" if imputed else "refused"])
    return _table(["setting", "value"], rows, kind="settings")


def _rows_of(outcome: Outcome, rows: np.ndarray) -> Predictive:
    """The predictions of some of the test rows."""
    return dataclasses.replace(outcome.predictive, outputs=outcome.predictive.outputs[:, as_tensor(rows)])


def _some(number: int) -> np.ndarray:
    """At most so many rows as a picture can hold, evenly spaced: the split is random already."""
    return np.unique(np.linspace(0, number - 1, min(number, PICTURE_ROWS)).round().astype(int))


def _picture(figure: Figure, name: str, caption: str) -> str:
    image = f"data:image/svg+xml;base64,{base64.b64encode(figures.as_svg(figure)).decode()}"
    return f'<figure><img alt="{name}" src="{image}"><figcaption>{caption}</figcaption></figure>'


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], first: str = "", kind: str = "") -> str:
    """A table; everything in it is escaped."""
    head = "".join(f'<th scope="col">{escape(_short(name))}</th>' for name in heads)
    lines = []
    for number, row in enumerate(rows):
        mark = f' class="{first}"' if first and number == 0 else ""
        lines.append(f"<tr{mark}>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>")
    return f'<div class="wide"><table class="{kind}"><tr>{head}</tr>{"".join(lines)}</table></div>'


def _short(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 40 else text[:39] + "…"
