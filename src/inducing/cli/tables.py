"""What the commands about tables share: checks of files, progress bars, and messages about columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from inducing.cli.messages import one_line_errors, one_line_warnings
from inducing.files import check_writable

Exclude = Annotated[list[str] | None, typer.Option(help="Column to ignore (repeatable).")]


@contextmanager
def table_messages(command: str) -> Iterator[None]:
    """Errors and warnings on one line; errors about tables name the options that help."""
    with one_line_errors(command), one_line_warnings(command):
        from inducing.tables.errors import TableError

        try:
            yield
        except TableError as error:
            impute = "leave out --no-impute" if command == "fit" else "fit again without --no-impute"
            raise ValueError(error.explain(impute, exclude=" (--exclude)")) from error


def check_files(inputs: dict[str, Path], outputs: dict[str, Path | None]) -> None:
    """Refuse files that cannot be written, and to overwrite a file that the same command reads or writes."""
    seen: dict[Path, str] = {}
    for name, path in (inputs | outputs).items():
        if path is None:
            continue
        if name in outputs:
            check_writable(path)
        other = seen.setdefault(path.resolve(), name)
        if other != name:
            raise ValueError(f"{path} is both {other} and {name}. Name two different files.")


@contextmanager
def row_bar(description: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A bar that is advanced by numbers of rows."""
    with progress_bar() as bar:
        yield partial(bar.advance, bar.add_task(description, total=total))


def progress_bar() -> Progress:
    """A bar on stderr, since stdout may be the predictions."""
    console = Console(stderr=True)
    columns = *Progress.get_default_columns(), MofNCompleteColumn(), TextColumn("rows"), TimeElapsedColumn()
    return Progress(*columns, console=console, disable=not console.is_terminal)
