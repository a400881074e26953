"""Errors and warnings as one line on stderr. Exit codes: 2 for bad usage or data, 1 for internal errors, 130 for Ctrl-C."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from inducing.errors import CheckpointError, DivergenceError, RankError


@contextmanager
def one_line_errors(command: str, interrupted: str = "interrupted") -> Iterator[None]:
    """Print errors of usage and data as one line on stderr, without a traceback, and exit with code 2.

    Arguments:
        command: Name of the command.
        interrupted: Message after Ctrl-C, if the interrupt has none.
    """
    try:
        yield
    except BrokenPipeError:
        # the reader of our output has closed it; typer exits silently
        raise
    except (OSError, ValueError, ImportError, CheckpointError, DivergenceError, RankError) as error:
        typer.echo(f"inducing {command}: {_line(error)}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt as stopped:
        typer.echo(f"inducing {command}: {_line(stopped) or interrupted}", err=True)
        raise typer.Exit(130) from None


@contextmanager
def one_line_warnings(command: str) -> Iterator[None]:
    """Print each distinct warning once, as one line on stderr."""
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
    if isinstance(message, OSError) and message.filename and message.strerror:
        message = f"{message.filename}: {message.strerror}"
    return " ".join(str(message).split())
