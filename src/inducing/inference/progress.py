"""A progress bar in the terminal, for training and sampling."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

# (steps done, text beside the bar) -> None
Update = Callable[[int, str], None]


@contextmanager
def progress_bar(description: str, total: int, done: int = 0, *, show: bool) -> Iterator[Update]:
    """Show a progress bar inside a ``with`` block, and yield the function that updates it.

    Without the package rich there is no bar.
    """
    if not show or find_spec("rich") is None:
        yield lambda done, text: None
        return
    # imported here, since training does not need it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns) as bar:
        task = bar.add_task(description, total=total, completed=done, text="")
        yield lambda done, text: bar.update(task, completed=done, text=text)
