"""The command line: `inducing fit`, `predict`, `demo`, `reproduce`, `report`, `data` and `bench`."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from inducing.checks import did_you_mean
from inducing.cli import tables
from inducing.cli.messages import one_line_errors
from inducing.data import catalogue
from inducing.experiments import report as reports
from inducing.experiments import sweep, toy
from inducing.experiments.registry import EXPERIMENTS

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
data_app = typer.Typer(add_completion=False, help="List, download and check data sets.")
app.command("fit")(tables.fit)
app.command("predict")(tables.predict)
app.add_typer(data_app, name="data")

Names = Annotated[list[str], typer.Argument(help=f"Data sets: {', '.join(catalogue.NAMES)}.", metavar="NAME")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"inducing {version('inducing')}")
        raise typer.Exit


@app.callback()
def main(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Bayesian neural networks with global inducing points."""


@app.command()
def demo(
    out: Annotated[Path | None, typer.Option(help="Folder for toy.png and toy.json.", file_okay=False)] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Gradient steps for each posterior. Default: 600 to 2,000.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the data, the first parameters and the samples.")] = 0,
) -> None:
    """Fit four posteriors to a toy problem, and see which of them knows what it does not know."""
    with one_line_errors("demo"):
        toy.demo(out, steps, seed, Console())


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help=f"Experiment: {', '.join(EXPERIMENTS)}.")],
    preset: Annotated[str, typer.Option(help="smoke (seconds), cpu (at most an hour), or paper.")] = "cpu",
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 1,
    dask: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler whose workers do the runs.", metavar="ADDRESS")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Keep what is finished; --no-resume does it again.")] = True,
    only: Annotated[str | None, typer.Option(help="Part of the runs, e.g. 'depth=2,posterior=prior->global'.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for results and figures.", file_okay=False)] = Path("results"),
) -> None:
    """Run an experiment of the paper, or go on with one: what is finished is never repeated."""
    with one_line_errors("reproduce", "interrupted; the same command goes on"):
        if name not in EXPERIMENTS:
            raise ValueError(
                f"unknown experiment {name!r}{did_you_mean(name, EXPERIMENTS)}; known are {', '.join(EXPERIMENTS)}"
            )
        experiment = EXPERIMENTS[name]
        sweep.reproduce(
            experiment,
            preset,
            out,
            jobs=jobs,
            resume=resume,
            only=sweep.parse_only(only, experiment),
            dask=dask,
            console=Console(),
        )


@app.command()
def report(
    results: Annotated[Path, typer.Option(help="Folder of finished runs.", file_okay=False)] = Path("results"),
    out: Annotated[Path, typer.Option(help="The page, .html or .md.", dir_okay=False)] = Path("report.html"),
) -> None:
    """Put all finished runs on one page, beside the paper's figures."""
    with one_line_errors("report"):
        reports.report(results, out)
        typer.echo(f"wrote {out}")


@app.command()
def bench(
    workloads: Annotated[list[str] | None, typer.Argument(help="Workloads; the default is all.")] = None,
    seconds: Annotated[float, typer.Option(min=0.0, help="Time for each workload and number of threads.")] = 6.0,
    quick: Annotated[bool, typer.Option("--quick", help="A single run of everything; stores nothing.")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Where the time goes, into docs/speed.md.")] = False,
    growth: Annotated[bool, typer.Option("--growth", help="How the cost grows, into benchmarks/growth.md.")] = False,
) -> None:
    """Measure the speed against other implementations, side by side, in a clone of the repository.

    Results are stored only if the machine does nothing else; otherwise the exit code is 1.
    """
    with one_line_errors("bench"):
        if not Path("benchmarks/bench.py").is_file():
            raise ValueError(
                "the other sides of the benchmarks are not part of the package: run this at the root of a clone of the "
                "repository, in an environment with GPyTorch (pip install -e '.[test]'), or use `make bench` there"
            )
        chosen = {"quick": quick, "profile": profile, "growth": growth}
        flags = [f"--{name}" for name, wanted in chosen.items() if wanted]
        command = [sys.executable, "-m", "benchmarks.bench", *(workloads or []), f"--seconds={seconds}", *flags]
        raise typer.Exit(subprocess.run(command).returncode)


@data_app.callback(invoke_without_command=True)
def list_data(context: typer.Context) -> None:
    """List the data sets and where they are found; `fetch` downloads them, `verify` checks them."""
    if context.invoked_subcommand is None:
        with one_line_errors("data"):
            for name in catalogue.NAMES:
                typer.echo(f"{name:14} {catalogue.where(name)}")


@data_app.command("fetch")
def fetch_data(names: Names) -> None:
    """Download what is not here, into the folder that INDUCING_DATA names or into the cache."""
    with one_line_errors("data fetch"):
        catalogue.check_names(names)
        for name in names:
            catalogue.download(name)
            typer.echo(f"{name:14} {catalogue.where(name)}")


@data_app.command("verify")
def verify_data(names: Names) -> None:
    """Read what is here: shapes, labels, and checksums where they are known."""
    with one_line_errors("data verify"):
        catalogue.check_names(names)
        for name in names:
            for line in catalogue.verify(name):
                typer.echo(line)
