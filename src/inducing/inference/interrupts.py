"""Ctrl-C and SIGTERM as a request to stop at the end of the step, so that nothing is lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """Which signal asked for a stop, if any."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    def leave(self, message: str) -> None:
        """Leave as the signal would have had it, with a message."""
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt(message)
        raise SystemExit(f"{message} (terminated)")


@contextmanager
def interrupts(enabled: bool) -> Iterator[Interrupts]:
    """Catch the first Ctrl-C or SIGTERM; a second one acts at once. Outside the main thread nothing is caught."""
    caught = Interrupts()
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield caught
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def receive(number: int, frame: FrameType | None) -> None:
        caught.received = signal.Signals(number)
        signal.signal(number, before[caught.received])

    for number in before:
        signal.signal(number, receive)
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
