"""The command line: `inducing demo`."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


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
    steps: Annotated[int, typer.Option(min=1, help="Gradient steps for each posterior.")] = 5000,
    seed: Annotated[int, typer.Option(help="Seed of the data, the first parameters and the samples.")] = 0,
) -> None:
    """Fit four posteriors to a toy problem, and see which of them knows what it does not know."""
    from inducing.experiments import toy  # matplotlib and torch take a second: not for --help

    try:
        toy.demo(out, toy.Settings(num_steps=steps, seed=seed), Console())
    except OSError as error:
        typer.echo(f"inducing demo: {error}", err=True)
        raise typer.Exit(2) from None
