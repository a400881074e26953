"""Handling of Ctrl-C and SIGTERM: the run stops after the current step, so that a checkpoint can be written first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


class Interrupts:
    """The received signal, or None."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None


@contextmanager
def interrupts(enabled: bool) -> Iterator[Interrupts]:
    """Catch the first Ctrl-C or SIGTERM. A second one acts at once. Outside the main thread no signal is caught."""
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


def leave(number: int, message: str) -> NoReturn:
    """End the process as the signal would do, with a message."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt(message)
    raise SystemExit(f"{message} (terminated)")
