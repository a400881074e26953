"""Progress of training and sampling: a bar in a terminal, and lines elsewhere, e.g. in a log file.

Lines come every few seconds, and less often the longer a run takes: a run of three hours has about 250.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

# (steps done, text beside the bar) -> None
Update = Callable[[int, str], None]

# seconds between lines, or this fraction of the time so far
INTERVAL, INTERVAL_FRACTION = 5.0, 0.02


@contextmanager
def progress_bar(description: str, total: int, done: int = 0, *, show: bool) -> Iterator[Update]:
    """Show progress inside a ``with`` block, and yield the function that updates it.

    Without the package rich nothing is shown.
    """
    if not show or find_spec("rich") is None:
        yield lambda done, text: None
        return
    # imported here, since training does not need it
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    if not Console().is_terminal:
        lines = Lines(description, total, done)
        yield lines.update
        lines.finish()
        return
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


class Lines:
    """Progress in lines of text, with the time of a step and the time left.

    Arguments:
        description: Name of the run.
        total: Number of steps.
        done: Steps that were done before.
        clock: Returns the time in seconds.
    """

    def __init__(
        self, description: str, total: int, done: int = 0, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.description, self.total, self.first, self.done, self.clock = description, total, done, done, clock
        self.text = ""
        self.start = self.printed = clock()

    def update(self, done: int, text: str) -> None:
        """Note the progress, and print it if the last line is old."""
        self.done, self.text = done, text
        now = self.clock()
        if now - self.printed >= max(INTERVAL, INTERVAL_FRACTION * (now - self.start)):
            self._print(f"{max(0, self.total - done) * self._step_seconds():.0f} s left")

    def finish(self) -> None:
        """Print the last state, with the whole time."""
        self._print(f"{self.clock() - self.start:.0f} s")

    def _step_seconds(self) -> float:
        return (self.clock() - self.start) / max(1, self.done - self.first)

    def _print(self, when: str) -> None:
        self.printed = self.clock()
        step = f"{self._step_seconds():.2g} s per step"
        sys.stdout.write(f"{self.description} {self.done}/{self.total} {self.text}, {step}, {when}\n")
        sys.stdout.flush()
