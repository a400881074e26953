"""Reports of finished runs: the page of one experiment, and `inducing report`, all of them beside the paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.console import Console

from inducing.experiments.engine.comparison import STYLES, TOLERANCE, Verdict
from inducing.experiments.engine.experiment import Experiment
from inducing.experiments.engine.store import Result, Store
from inducing.experiments.paper import published
from inducing.files import check_writable
from inducing.pages import Block, Heading, Image, Page, Table, to_rich, write

INTRODUCTION = (
    "ELBO and log-likelihood are in nats per data point, as means over splits with standard errors; one split has no "
    "standard error. The paper's are over 20 splits (5 for protein). Marks: a result is better or worse than the paper's if "
    "the difference is larger than two standard errors of the difference, else equal. Where there are few splits, the "
    f"spread over the paper's splits is used if it is larger. A difference below {TOLERANCE} nats does not count. Numbers "
    "that are neither good nor bad are equal, or differ."
)
# the finished runs of an experiment by preset
Runs = Mapping[str, list[Result]]


def show(experiment: Experiment, runs: Runs, page: Path, console: Console) -> None:
    """Print the tables of an experiment, and write its page with the figure.

    Arguments:
        experiment: The experiment.
        runs: Its finished runs by preset.
        page: The file to write, ``NAME.md``; the figure is ``NAME.png`` beside it.
        console: Where to print.
    """
    for table in experiment.tables(_all(experiment, runs), brief=True):
        console.print(to_rich(table))
    write(Page(experiment.name, [INTRODUCTION, *describe(experiment, runs, page.stem)]), page)
    for path in (page, page.with_suffix(".png")):
        console.print(f"wrote {path}", highlight=False)
    for preset in runs:
        differences = experiment.differences(preset).values()
        if differences:
            console.print(f"[dim]preset {preset}: {'; '.join(differences)}[/dim]", highlight=False)


def report(results: Path, out: Path) -> None:
    """Write one page about all experiments.

    Arguments:
        results: The folder of `inducing reproduce`, with a store ``NAME.jsonl`` for each experiment.
        out: The page, ``.html`` or ``.md``. HTML has its figures inside. For Markdown they are written to the folder of the
            results, and linked.
    """
    from inducing.experiments.engine.registry import EXPERIMENTS

    if out.suffix not in (".html", ".md"):
        raise ValueError(f"a report is .html or .md, got {out}; try --out report.html")
    stored = {name: Store(results / f"{name}.jsonl").results() for name in EXPERIMENTS}
    if not any(stored.values()):
        raise ValueError(f"there are no runs in {results}; `inducing reproduce NAME --out {results}` makes them")
    out.parent.mkdir(parents=True, exist_ok=True)
    check_writable(out)
    rows, sections = [], list[Block]()
    for name, experiment in EXPERIMENTS.items():
        runs = selected(experiment, stored[name])
        rows.append(_summarise(experiment, _all(experiment, runs)))
        sections += [Heading(name), *describe(experiment, runs, name, len(stored[name]))]
    summary: list[Block] = [
        Heading("Summary"),
        f"Made by `inducing report` from the stored runs. {INTRODUCTION}",
        "Rows show the runs with the paper's settings if there are any, or else those of the cpu preset. Each section "
        "lists the differences of its runs from the paper.",
        Table(["experiment", "runs", "ELBO beside the paper", "of global"], rows),
        *(f"The paper's {subject}: {note}." for subject, note in published()["notes"].items()),
    ]
    write(Page("Results beside the paper's", [*summary, *sections]), out, results)


def selected(experiment: Experiment, results: Mapping[str, Result]) -> dict[str, list[Result]]:
    """The runs to show, by preset: for each row those with the paper's settings, or else those of the cpu preset.

    The choice depends only on settings, never on results.
    """
    cpu, paper = (experiment.finished(experiment.configs(preset), results) for preset in ("cpu", "paper"))
    rows = [experiment.row(result["config"]) for result in paper]
    cpu = [result for result in cpu if experiment.row(result["config"]) not in rows]
    return {preset: chosen for preset, chosen in (("cpu", cpu), ("paper", paper)) if chosen}


def describe(experiment: Experiment, runs: Runs, stem: str, num_stored: int = 0) -> list[Block]:
    """The settings, tables and figure of finished runs.

    Arguments:
        experiment: The experiment.
        runs: Its finished runs by preset.
        stem: The name of the figure's file, without ".png".
        num_stored: The number of stored runs of all presets.
    """
    blocks: list[Block] = [f"{experiment.title[0].upper()}{experiment.title[1:]}."]
    if not runs:
        # stored runs may be of the smoke preset, or of an earlier version of a preset
        number = f"None of the {num_stored} stored runs has the settings of the preset paper or cpu"
        found = number if num_stored else "No runs are stored"
        return [*blocks, f"{found}: `inducing reproduce {experiment.name}` makes them."]
    for preset, chosen in runs.items():
        # the table shows which part of the grid has runs
        changes = [words for key, words in experiment.differences(preset).items() if key not in experiment.grid]
        settings = f"with differences from the paper: {'; '.join(changes)}" if changes else "with the paper's settings"
        blocks.append(f"{len(chosen)} runs of preset {preset}, {settings}.")
    results, comparison = _all(experiment, runs), experiment.comparison
    paper = comparison.published_rows(experiment.configs("paper"))
    if paper:
        ours = {comparison.key(result["config"]) for result in results}
        blocks.append(f"{len(ours & paper)} of the {len(paper)} rows of the paper's table have runs.")
    blocks += experiment.tables(results)
    blocks += [experiment.remarks] if experiment.remarks else []
    return [*blocks, Image(experiment.figure(results), experiment.title, file=f"{stem}.png", wide=True)]


def _summarise(experiment: Experiment, results: list[Result]) -> list[str]:
    """The row of an experiment in the summary."""
    verdicts = experiment.comparison.verdicts(results)
    of_global = (verdict for key, verdict in verdicts.items() if key[-1] == "global")
    return [experiment.name, str(len(results) or "missing"), _count(verdicts.values()), _count(of_global)]


def _count(verdicts: Iterable[Verdict]) -> str:
    counts = Counter(verdicts)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in STYLES if counts[verdict])


def _all(experiment: Experiment, runs: Runs) -> list[Result]:
    return experiment.sort(result for results in runs.values() for result in results)
