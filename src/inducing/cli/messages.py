"""Errors and warnings as one line on stderr, and exit codes: 2 for bad usage or data, 1 for errors of our own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from inducing.inference.checkpoint import CheckpointError
from inducing.inference.distributed import RankError
from inducing.inference.state import DivergenceError


@contextmanager
def one_line_errors(command: str, interrupted: str = "interrupted") -> Iterator[None]:
    """Bad usage and files that cannot be used are one line on stderr and exit code 2, without a traceback.

    Arguments:
        command: What the user called.
        interrupted: What to say after Ctrl-C, where nothing more is known.
    """
    try:
        yield
    except BrokenPipeError:
        # whoever reads our output has seen enough; typer leaves quietly
        raise
    except (OSError, ValueError, ImportError, CheckpointError, DivergenceError, RankError) as error:
        typer.echo(f"inducing {command}: {_line(error)}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt as stopped:
        typer.echo(f"inducing {command}: {_line(stopped) or interrupted}", err=True)
        raise typer.Exit(130) from None


@contextmanager
def one_line_warnings(command: str) -> Iterator[None]:
    """Each warning is shown once, as one line on stderr."""
    shown = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        line = _line(message)
        if line not in shown:
            shown.add(line)
            typer.echo(f"inducing {command}: warning: {line}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


def _line(message: object) -> str:
    return " ".join(str(message).split())
