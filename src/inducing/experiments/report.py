"""`inducing report`: all experiments on one page, ours beside the paper's, from a folder of results."""

from __future__ import annotations

import io
import os
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from inducing.experiments.comparison import ELBO, TOLERANCE, Comparison, Key, mark
from inducing.experiments.experiment import Experiment
from inducing.experiments.pages import Figure, Section, as_html, as_markdown
from inducing.experiments.paper import published
from inducing.experiments.registry import EXPERIMENTS
from inducing.experiments.store import Store
from inducing.experiments.sweep import finished
from inducing.files import check_writable, write_atomically

TITLE = "Results beside the paper's"
# what the notes of the published numbers are about, in words; the others are on the format of that file
NOTES = {
    "uci_dgp wine rmse": "RMSE of deep Gaussian processes on wine",
    "toy_compositional_bnn": "ELBOs of compositional-bnn",
}
Results = list[dict[str, Any]]


def report(results: Path, out: Path) -> None:
    """Write the page.

    Arguments:
        results: The folder of `inducing reproduce`, with a store ``NAME.jsonl`` for each experiment.
        out: The page, ``.html`` or ``.md``. The figures of the first are inside it; those of the second are renewed in the
            folder of the results, and linked.
    """
    if out.suffix not in (".html", ".md"):
        raise ValueError(f"a report is .html or .md, got {out}; try --out report.html")
    if not results.is_dir():
        raise ValueError(f"there is no folder {results}; `inducing reproduce NAME --out {results}` makes it")
    stored = {name: Store(results / f"{name}.jsonl").results() for name in EXPERIMENTS}
    if not any(stored.values()):
        raise ValueError(f"{results} holds no runs; `inducing reproduce NAME --out {results}` makes them")
    out.parent.mkdir(parents=True, exist_ok=True)
    check_writable(out)
    with tempfile.TemporaryDirectory() as temporary:
        figures = results if out.suffix == ".md" else Path(temporary)
        runs = {name: selected(EXPERIMENTS[name], stored[name]) for name in EXPERIMENTS}
        sections = [_summary(runs)]
        for name, by_preset in runs.items():
            sections.append(_section(EXPERIMENTS[name], by_preset, len(stored[name]), figures, out.parent))
    page = as_markdown(TITLE, sections) if out.suffix == ".md" else as_html(TITLE, sections)
    write_atomically(out, page.encode())


def selected(experiment: Experiment, results: Mapping[str, dict[str, Any]]) -> dict[str, Results]:
    """The runs to show, by preset: for each row those with the paper's settings if there are any, else the cpu preset's.

    The choice looks at settings only, never at figures.
    """
    axes = [key for key in experiment.grid if key != "split"]
    rows: dict[Key, tuple[str, Results]] = {}
    for preset in ("cpu", "paper"):
        found: dict[Key, tuple[str, Results]] = {}
        for result in finished(experiment, experiment.configs(preset), results):
            found.setdefault(tuple(result["config"][axis] for axis in axes), (preset, []))[1].append(result)
        rows |= found
    by_preset: dict[str, Results] = {"cpu": [], "paper": []}
    for preset, row in rows.values():
        by_preset[preset] += row
    return {preset: chosen for preset, chosen in by_preset.items() if chosen}


def _summary(runs: Mapping[str, Mapping[str, Results]]) -> Section:
    lines = []
    for name, by_preset in runs.items():
        comparison, results = EXPERIMENTS[name].comparison, _all(by_preset)
        counts = ["", ""]
        if comparison is not None:
            marks = elbo_marks(comparison, results)
            last = [word for key, word in marks.items() if key[-1] == "global"]
            counts = [_count(list(marks.values())), _count(last)]
        lines.append([name, str(len(results)) if results else "missing", *counts])
    text = [
        "Made by `inducing report` from the stored runs. ELBO and log-likelihood in nats per data point, means over splits "
        "with standard errors; one split alone has none. The paper's are over 20 splits (5 for protein). Marks: better than "
        f"the paper; within max(2 combined standard errors, {TOLERANCE} nats) of it; short, and by how much. Figures that "
        "are not in nats have no such least margin.",
        "Where a row has runs with the paper's settings, those are shown, else those of the cpu preset; each table says "
        "what that does otherwise than the paper.",
    ]
    headings = ["experiment", "runs", "ELBO beside the paper", "of global"]
    notes = [f"The paper's {NOTES[key]}: {note}." for key, note in published()["notes"].items() if key in NOTES]
    return Section("Summary", text, (headings, lines), notes)


def elbo_marks(comparison: Comparison, results: Results) -> dict[Key, str]:
    """The mark of each row's ELBO, where the paper has one."""
    found = {}
    for key, ours in comparison.cells(results, ELBO).items():
        paper = comparison.theirs(key, ELBO)
        if paper is not None:
            found[key] = mark(ours, paper).split(" ")[0]
    return found


def _count(marks: list[str]) -> str:
    counts = Counter(marks)
    return ", ".join(f"{counts[word]} {word}" for word in ("better", "within", "short") if counts[word])


def _section(
    experiment: Experiment, by_preset: Mapping[str, Results], stored: int, figures: Path, page: Path
) -> Section:
    results, comparison = _all(by_preset), experiment.comparison
    text = [f"{experiment.title[0].upper()}{experiment.title[1:]}."]
    if not results:
        # those of the smoke preset, or of presets as they once were
        found = (
            f"None of the {stored} stored runs has the settings of the preset paper or cpu"
            if stored
            else "No runs are stored"
        )
        text.append(f"{found}: `inducing reproduce {experiment.name}` makes them.")
        return Section(experiment.name, text)
    for preset, chosen in by_preset.items():
        # which part of the grid has been run is seen in the table
        changed = [words for words in experiment.deviations(preset) if words.split(" ")[0] not in experiment.grid]
        settings = f"otherwise than the paper: {'; '.join(changed)}" if changed else "with the paper's settings"
        text.append(f"{len(chosen)} runs of preset {preset}, {settings}.")
    printed, figure = _shown(experiment, results, figures, page)
    if comparison is None:
        return Section(experiment.name, text, printed=printed, figure=figure)
    paper = {tuple(getattr(config, axis) for axis in comparison.axes) for config in experiment.configs("paper")}
    paper = {key for key in paper if any(comparison.theirs(key, measure) for measure in comparison.measures)}
    ours = {tuple(result["config"][axis] for axis in comparison.axes) for result in results}
    text.append(f"{len(ours & paper)} of the {len(paper)} rows of the paper's table have runs.")
    notes = [comparison.note] if comparison.note else []
    return Section(experiment.name, text, comparison.rows(results), notes, figure=figure)


def _shown(experiment: Experiment, results: Results, figures: Path, page: Path) -> tuple[str, Figure]:
    """What the experiment prints, and its figure."""
    printed = io.StringIO()
    path = figures / f"{experiment.name}.png"
    experiment.report(results, path, Console(file=printed, width=110))
    lines = [line.rstrip() for line in printed.getvalue().splitlines() if not line.startswith("wrote ")]
    link = Path(os.path.relpath(path, page)).as_posix()
    return "\n".join(lines).strip("\n"), Figure(path.read_bytes(), link, experiment.title)


def _all(by_preset: Mapping[str, Results]) -> Results:
    return [result for results in by_preset.values() for result in results]
