"""Reports of finished runs: the page of one experiment, and `inducing report`, all of them beside the paper."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from inducing.experiments.engine.comparison import NOT_COUNTED, STYLES, TOLERANCE, Verdict
from inducing.experiments.engine.experiment import CONVERGED, Experiment
from inducing.experiments.engine.figures import draw_differences
from inducing.experiments.engine.store import Result, Store
from inducing.experiments.paper import published
from inducing.files import check_writable
from inducing.pages import Block, Heading, Image, Page, Table, to_rich, write

INTRODUCTION = (
    "ELBO and log-likelihood are in nats per data point, as means over splits with standard errors; one split has no "
    "standard error. The paper's are over 20 splits (5 for protein). Marks: a result is better or worse than the "
    "paper's if the difference is larger than two standard errors of the difference, else equal. Where there are few "
    f"splits, the spread over the paper's splits is used if it is larger. A difference below {TOLERANCE} nats does not"
    " count. For numbers where neither larger nor smaller is better, the mark is equal or differs. Runs with one of "
    "these states have no marks and do not count: out of date (made before a change of the package that changes the "
    f"numbers), not converged (twice the steps change the ELBO of split 0 by {CONVERGED} nats or more), not checked "
    "(the preset wants this check, and its runs are missing)."
)
# the experiments with rows enough for a map of differences
TABLES = ("uci-bnn", "uci-dgp")
DIFFERENCES = (
    "Difference of our ELBO from the paper's, divided by half of the smallest difference that counts: beyond 2 it is better "
    "(blue) or worse (red). Numbers in italics are of runs that do not count."
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
    for table in experiment.tables(_shown(experiment, runs), brief=True):
        console.print(to_rich(table))
    write(Page(experiment.name, [INTRODUCTION, *describe(experiment, runs, page.stem)]), page)
    for path in (page, page.with_suffix(".png")):
        console.print(f"wrote {path}", highlight=False)
    for preset in runs:
        differences = experiment.differences(preset).values()
        if differences:
            console.print(f"[dim]preset {preset}: {'; '.join(differences)}[/dim]", highlight=False)


def report(folder: Path, out: Path) -> tuple[Path, Path]:
    """Write a page about all experiments, and beside it ``claims``, a page about the paper's claims. Return both paths.

    Arguments:
        folder: The folder of `inducing reproduce`, with a store ``NAME.jsonl`` for each experiment.
        out: The page, ``.html`` or ``.md``. HTML has its figures inside. For Markdown they are written to the folder of the
            results, and linked.
    """
    from inducing.experiments.claims import claims_page
    from inducing.experiments.engine.registry import EXPERIMENTS

    claims = out.with_name(f"claims{out.suffix}")
    if out.suffix not in (".html", ".md") or out == claims:
        raise ValueError(
            f"a report is an .html or .md file, and `claims` is a second page; got {out}. Try --out report.html"
        )
    stored = {name: Store(folder / f"{name}.jsonl").results() for name in EXPERIMENTS}
    if not any(stored.values()):
        raise ValueError(f"there are no runs in {folder}; `inducing reproduce NAME --out {folder}` makes them")
    out.parent.mkdir(parents=True, exist_ok=True)
    for path in (out, claims):
        check_writable(path)
    rows, sections, finished, num_shown = [], list[Block](), dict[str, list[Result]](), 0
    for name, experiment in EXPERIMENTS.items():
        runs = selected(experiment, stored[name])
        finished[name] = _all(experiment, runs)
        num_shown += sum(map(len, runs.values()))
        rows.append(_summarise(experiment, finished[name]))
        sections += [Heading(name), *describe(experiment, runs, name, len(stored[name]))]
    maps = {name: (EXPERIMENTS[name].comparison, finished[name]) for name in TABLES if finished[name]}
    # two experiments may have the same table
    cells = [_cells(EXPERIMENTS[name], results) for name, results in finished.items()]
    in_paper, with_runs, counted = (len(set().union(*sets)) for sets in zip(*cells, strict=True))
    summary: list[Block] = [
        Heading("Summary"),
        f"Of the paper's {in_paper} numbers, {with_runs} have one of ours beside them, {counted} of them from runs "
        "that count. (toy and compositional-bnn stand beside the same numbers of the paper.) A second page, `claims`, tests "
        "the paper's claims by these runs.",
        f"Made by `inducing report`, which shows {num_shown} of {sum(map(len, stored.values()))} stored runs; the others "
        "are of the preset smoke, of earlier versions of a preset, or of the cpu preset where there are runs with the "
        f"paper's settings. {INTRODUCTION}",
        "Rows show the runs with the paper's settings if there are any, or else those of the cpu preset. Each section "
        "lists the differences of its runs from the paper.",
        Table(
            ["experiment", "runs", "published", "ours", "that count", "ELBO beside the paper", "ELBO of global"], rows
        ),
        *([Image(draw_differences(maps), DIFFERENCES, file="differences.png", wide=True)] if maps else []),
        *(f"The paper's {subject}: {note}." for subject, note in published()["notes"].items()),
    ]
    write(Page("Results beside the paper's", [*summary, *sections]), out, folder)
    write(claims_page(finished), claims, folder)
    return out, claims


def selected(experiment: Experiment, results: Mapping[str, Result]) -> dict[str, list[Result]]:
    """The runs to show, by preset: for each row those with the paper's settings, or else those of the cpu preset.

    Variants of the cpu preset are shown, too. The choice depends only on settings, never on results.
    """
    presets = ("cpu", "paper", *experiment.variants)
    runs = {preset: experiment.finished(experiment.configs(preset), results) for preset in presets}
    rows = [experiment.row(result["config"]) for result in runs["paper"]]
    runs["cpu"] = [result for result in runs["cpu"] if experiment.row(result["config"]) not in rows]
    return {preset: chosen for preset, chosen in runs.items() if chosen}


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
        if preset not in experiment.variants or len(runs) == 1:
            blocks.append(_settings(experiment, preset, chosen))
    results = _shown(experiment, runs)
    paper = experiment.comparison.published_cells(experiment.configs("paper"))
    if paper:
        ours = {experiment.comparison.key(result["config"]) for result in results}
        rows = {key for key, _ in paper}
        blocks.append(f"{len(ours & rows)} of the {len(rows)} rows of the paper's table have runs.")
    blocks += experiment.tables(results)
    for preset in experiment.variants:
        if preset in runs and len(runs) > 1:
            blocks += [_settings(experiment, preset, runs[preset]), experiment.comparison.table(runs[preset])]
    blocks += [experiment.remarks] if experiment.remarks else []
    return [*blocks, Image(experiment.figure(results), experiment.title, file=f"{stem}.png", wide=True)]


def _settings(experiment: Experiment, preset: str, runs: list[Result]) -> str:
    """The number of runs of a preset, its differences from the paper, and how many runs do not count."""
    differences = experiment.differences(preset)
    # the table shows which part of the grid has runs, and the steps if convergence is checked and it has a row for each cell
    is_shown = "doublings" in differences and experiment.comparison.measures
    shown = {*experiment.grid, *(("num_steps", "doublings") if is_shown else ())}
    changes = [words for key, words in differences.items() if key not in shown]
    settings = f"with differences from the paper: {'; '.join(changes)}" if changes else "with the paper's settings"
    states = Counter(run.get("state") for run in runs)
    left_out = ", ".join(f"{number} {state}" for state, number in states.items() if state in NOT_COUNTED)
    return f"{len(runs)} {'run' if len(runs) == 1 else 'runs'} of preset {preset}, {settings}." + (
        f" These do not count: {left_out}." if left_out else ""
    )


def _summarise(experiment: Experiment, results: list[Result]) -> list[str]:
    """The row of an experiment in the summary."""
    verdicts = experiment.comparison.verdicts(results)
    of_global = (verdict for key, verdict in verdicts.items() if key[-1] == "global")
    runs, cells = str(len(results) or "missing"), (str(len(each)) for each in _cells(experiment, results))
    return [experiment.name, runs, *cells, _count(verdicts.values()), _count(of_global)]


def _cells(experiment: Experiment, results: list[Result]) -> tuple[set[Any], set[Any], set[Any]]:
    """The paper's numbers: all, those with one of ours beside them, and those with one of runs that count."""
    comparison = experiment.comparison
    paper = comparison.published_cells(experiment.configs("paper"))
    ours, counted = (comparison.cells(results, only_counted) for only_counted in (False, True))
    all_cells, with_runs, with_counted = (
        {(comparison.paper_table, *cell) for cell in found & paper} for found in (paper, ours, counted)
    )
    return all_cells, with_runs, with_counted


def _count(verdicts: Iterable[Verdict]) -> str:
    counts = Counter(verdicts)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in STYLES if counts[verdict])


def _all(experiment: Experiment, runs: Runs) -> list[Result]:
    """All runs that are not of a variant."""
    main = (results for preset, results in runs.items() if preset not in experiment.variants)
    return experiment.sort(itertools.chain(*main))


def _shown(experiment: Experiment, runs: Runs) -> list[Result]:
    """The runs in the main tables of a page: all that are not of a variant, or those of the variant on its own page."""
    return _all(experiment, runs) or experiment.sort(itertools.chain(*runs.values()))
