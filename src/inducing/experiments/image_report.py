"""Tables and figures of image classification."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from inducing.experiments.comparison import Cell, Comparison, Key, Measure
from inducing.experiments.experiment import write_figure
from inducing.experiments.paper import PRIORS, published
from inducing.files import write_atomically

POSTERIORS = ("factorised", "local", "factorised->global", "global")
COLOURS = {"factorised": "#888888", "local": "#b8a000", "factorised->global": "#c45a11", "global": "#3465a4"}
MEASURES = {
    "elbo_per_datapoint": ("ELBO", 2),
    "test_log_likelihood": ("test log-likelihood", 2),
    "accuracy": ("accuracy, %", 1),
    "ece": ("ECE", 3),
    "entropy_ratio": ("entropy ratio", 3),
    "auroc": ("AUROC", 3),
}
GUESSING = float(np.log(0.1))


def theirs(config: dict[str, Any], measure: str) -> float | None:
    """The published figure, one run."""
    tables = published()["cifar10"]
    if config["dataset"] != "cifar10":
        return None
    prior = PRIORS.get(config["prior"], "")
    table = tables.get(f"resnet18_tempered_augmented_{prior}" if config["model"] == "resnet18" else prior, {})
    name = {"entropy_ratio": "entropy_ratio_svhn"}.get(measure, measure)
    value: float | None = table.get(config["posterior"], {}).get(name)
    return value


def comparison(config: dict[str, Any]) -> Comparison:
    """The runs of a model and a set beside the paper's table of it."""
    measures = [
        Measure(
            (name,),
            heading,
            digits,
            name not in ("ece", "entropy_ratio"),
            name in ("elbo_per_datapoint", "test_log_likelihood"),
        )
        for name, (heading, digits) in MEASURES.items()
    ]

    def published_cell(key: Key, measure: Measure) -> Cell | None:
        value = theirs({**config, "prior": key[0], "posterior": key[1]}, str(measure.path[0]))
        return None if value is None else Cell(value, 0.0, 1)

    return Comparison({"prior": tuple(PRIORS), "posterior": POSTERIORS}, measures, published_cell)


def rows(results: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The table: for each prior and posterior our figures, and the paper's in brackets."""
    measures = [name for name in MEASURES if any(name in result["metrics"] for result in results)]
    lines = []
    for result in results:
        config, metrics = result["config"], result["metrics"]
        line = [config["prior"], config["posterior"]]
        for name in measures:
            digits, paper = MEASURES[name][1], theirs(config, name)
            line.append(f"{metrics[name]:.{digits}f}" + ("" if paper is None else f" ({paper:.{digits}f})"))
        lines.append(line)
    return ["prior", "posterior", *(MEASURES[name][0] for name in measures)], lines


def markdown(results: list[dict[str, Any]], name: str) -> str:
    """The table as a page."""
    headings, lines = rows(results)
    config = results[0]["config"]
    size = f"{config['num_data']:,} images, {config['channels']} channels, {config['num_inducing']} inducing images"
    text = [
        f"# {name}",
        "",
        f"Made by `inducing reproduce {name}`: {config['model']} on {config['dataset']}, {size},",
        f"{config['num_steps']:,} steps of {config['batch_size']} images; {config['num_test']:,} test images; one run each.",
        "ELBO in nats per image, of all training images and never tempered. In brackets: the paper, with 1,000 epochs of",
        "all 50,000 images. Guessing has an ELBO and a log-likelihood of -2.30. ECE with 20 bins. The entropy ratio is the",
        "mean entropy of predictions for test images over that for SVHN; the AUROC tells SVHN from test images by entropy.",
        "",
        "| " + " | ".join(headings) + " |",
        "|" + " --- |" * len(headings),
        *("| " + " | ".join(line) + " |" for line in lines),
        "",
    ]
    return "\n".join(text)


def figure(results: list[dict[str, Any]]) -> Figure:
    """For each prior the ELBOs, the test log-likelihoods and the calibration curves."""
    priors = list(dict.fromkeys(result["config"]["prior"] for result in results))
    fig = Figure(figsize=(10.5, 2.9 * len(priors)), layout="constrained")
    for prior, (bars, tests, curves) in zip(priors, fig.subplots(len(priors), 3, squeeze=False), strict=True):
        chosen = [result for result in results if result["config"]["prior"] == prior]
        _draw_bars(bars, chosen, "elbo_per_datapoint")
        _draw_bars(tests, chosen, "test_log_likelihood")
        bars.set_ylabel(PRIORS.get(prior, prior))
        for result in chosen:
            confidence, right, count = np.array(result["metrics"]["calibration"]).T
            seen = count >= 10
            posterior = result["config"]["posterior"]
            curves.plot(confidence[seen], right[seen], "o-", ms=3, color=COLOURS[posterior], label=posterior)
        curves.plot([0, 1], [0, 1], color="#bbbbbb", lw=1)
        curves.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="accuracy", aspect="equal")
        curves.spines[["top", "right"]].set_visible(False)
    top = fig.axes[:3]
    for axes, title in zip(top, ("ELBO per image", "test log-likelihood", "calibration"), strict=True):
        axes.set_title(title)
    top[2].legend(frameon=False, fontsize=7)
    top[0].annotate("dashed: guessing, open: the paper", (0.02, 0.96), xycoords="axes fraction", fontsize=7, va="top")
    return fig


def _draw_bars(axes: Axes, results: list[dict[str, Any]], measure: str) -> None:
    for place, result in enumerate(results):
        posterior, value = result["config"]["posterior"], result["metrics"][measure]
        axes.plot([place], [value], "o", ms=8, color=COLOURS[posterior])
        paper = theirs(result["config"], measure)
        if paper is not None:
            axes.plot([place + 0.15], [paper], "o", ms=8, mfc="white", color=COLOURS[posterior])
    axes.axhline(GUESSING, color="#bbbbbb", lw=1, ls="--")
    names = [result["config"]["posterior"].replace("->", "\n→ ") for result in results]
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.margins(x=0.2, y=0.15)
    axes.spines[["top", "right"]].set_visible(False)


def report(results: list[dict[str, Any]], path: Path, console: Console) -> None:
    """Print the table, write it as a page, write the figure."""
    name = path.stem.removesuffix("-smoke")
    headings, lines = rows(results)
    table = Table(title=name, title_justify="left", caption_justify="left")
    if any("(" in cell for line in lines for cell in line[2:]):
        table.caption = "In brackets: the paper."
    # what a terminal has room for; the page has all
    for heading in headings[:5]:
        table.add_column(heading, no_wrap=heading in ("prior", "posterior"))
    for line in lines:
        table.add_row(*line[:5])
    console.print(table)
    page = path.with_suffix(".md")
    write_atomically(page, markdown(results, name).encode())
    console.print(f"wrote {page}", highlight=False)
    write_figure(figure(results), path, console)
