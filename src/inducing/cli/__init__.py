"""The command line: `inducing fit`, `predict`, `export`, `demo`, `reproduce`, `report`, `data` and `bench`.

`fit`, `predict` and `export` are in files of these names.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from inducing.checks import check_known
from inducing.cli import export, fit, predict
from inducing.cli.messages import one_line_errors
from inducing.data import catalogue
from inducing.experiments.demo import demo as run_demo
from inducing.experiments.engine import report as reports
from inducing.experiments.engine import sweep
from inducing.experiments.engine.registry import EXPERIMENTS

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
data_app = typer.Typer(add_completion=False, help="List, download and check datasets.")
for command in (fit.fit, predict.predict, export.export):
    app.command()(command)
app.add_typer(data_app, name="data")

Names = Annotated[list[str], typer.Argument(help=f"Datasets: {', '.join(catalogue.NAMES)}.", metavar="NAME")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"inducing {version('inducing')}")
        raise typer.Exit


@app.callback()
def main(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Bayesian neural networks with global inducing points."""


@app.command()
@one_line_errors("demo")
def demo(
    out: Annotated[Path | None, typer.Option(help="Folder for toy.png and toy.json.", file_okay=False)] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of each posterior. Default: 600 to 2,000.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the data, the initial parameters and the samples.")] = 0,
) -> None:
    """Fit four posteriors to a toy problem and compare their error bars."""
    run_demo(out, steps, seed, Console())


@app.command()
@one_line_errors("reproduce", "interrupted; the same command continues")
def reproduce(
    name: Annotated[str, typer.Argument(help=f"Experiment: {', '.join(EXPERIMENTS)}.")],
    preset: Annotated[str, typer.Option(help="smoke (seconds), cpu (minutes to hours), gpu (images), paper.")] = "cpu",
    jobs: Annotated[int, typer.Option(min=1, help="Number of runs at a time.")] = 1,
    dask: Annotated[str | None, typer.Option(help="Dask scheduler that does the runs.", metavar="ADDRESS")] = None,
    resume: Annotated[bool, typer.Option(help="Keep finished runs; --no-resume repeats them.")] = True,
    only: Annotated[str | None, typer.Option(help="Only these runs, e.g. 'depth=2,posterior=prior->global'.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for results and figures.", file_okay=False)] = Path("results"),
) -> None:
    """Run an experiment of the paper. Finished runs are kept: the same command continues an interrupted one."""
    check_known("experiment", name, EXPERIMENTS)
    experiment = EXPERIMENTS[name]
    chosen = sweep.parse_only(only, experiment)
    sweep.reproduce(experiment, preset, out, jobs=jobs, resume=resume, only=chosen, dask=dask)


@app.command()
@one_line_errors("report")
def report(
    results: Annotated[Path, typer.Option(help="Folder of finished runs.", file_okay=False)] = Path("results"),
    out: Annotated[Path, typer.Option(help="The page, .html or .md.", dir_okay=False)] = Path("report.html"),
) -> None:
    """Write a page of all finished runs beside the paper's results, and a second page, claims, on the paper's claims."""
    before = set(out.parent.glob(f"*{out.suffix}"))
    for page in reports.report(results, out):
        typer.echo(f"wrote {page}{' (replaced)' if page in before else ''}")


@app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
@one_line_errors("bench")
def bench(context: typer.Context) -> None:
    """Measure the speed beside other implementations, in a clone of the repository.

    The options are those of benchmarks/bench.py. Results are stored only if the machine is otherwise idle; if not, the exit
    code is 1.
    """
    if not Path("benchmarks/bench.py").is_file():
        raise ValueError("there is no benchmarks/bench.py here; run this at the root of a clone of the repository")
    command = [sys.executable, "-m", "benchmarks.bench", *context.args]
    raise typer.Exit(subprocess.run(command).returncode)


@data_app.callback(invoke_without_command=True)
@one_line_errors("data")
def list_data(context: typer.Context) -> None:
    """List the datasets and their folders; `fetch` downloads datasets, `verify` checks them."""
    if context.invoked_subcommand is None:
        _print_each(catalogue.locate, catalogue.NAMES)


@data_app.command("fetch")
@one_line_errors("data fetch")
def fetch_data(names: Names) -> None:
    """Download missing datasets to the folder INDUCING_DATA, or to the cache."""
    _print_each(catalogue.fetch, names)


@data_app.command("verify")
@one_line_errors("data verify")
def verify_data(names: Names) -> None:
    """Check downloaded datasets: shapes, labels and, if known, checksums."""
    _print_each(catalogue.verify, names)


def _print_each(describe: Callable[[str], str], names: Sequence[str]) -> None:
    """Describe each dataset. All names are checked first."""
    for name in names:
        check_known("dataset", name, catalogue.NAMES)
    for name in names:
        typer.echo(describe(name))
