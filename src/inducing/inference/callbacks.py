"""Callbacks for `fit`: a log of JSON lines, and TensorBoard."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from inducing.files import write_atomically
from inducing.inference.history import Record


class JSONLog:
    """Write one JSON object a line: step, ELBO terms, gradient norm, jitter used, time.

    Lines of steps that are taken again are replaced: a run that continues goes on where it was, a new one begins anew.
    ELBO, log-likelihood and KL are nats per data point; see `Record`.

    Arguments:
        path: The file; its folder is made if it is not there.
        every: Write each so many steps.
    """

    def __init__(self, path: str | Path, every: int = 1) -> None:
        self.path, self.every = Path(path), every
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # a file that is there may end in half a line: look through it at the first step
        self._last = 0 if not self.path.exists() else sys.maxsize

    def __call__(self, record: Record) -> None:
        """Write the record of a step."""
        if record.step % self.every:
            return
        if record.step <= self._last:
            earlier = [line for line in self.path.read_text().splitlines() if 0 < _step(line) < record.step]
            write_atomically(self.path, "".join(f"{line}\n" for line in earlier).encode())
        with self.path.open("a") as file:
            file.write(json.dumps(record._asdict()) + "\n")
        self._last = record.step


class TensorBoard:
    """Write ELBO, log-likelihood, KL per layer, gradient norm, jitter and learning rate for TensorBoard.

    Needs the extra: ``pip install 'inducing[tensorboard]'``.

    Arguments:
        folder: Where TensorBoard looks.
        every: Write each so many steps.
    """

    def __init__(self, folder: str | Path, every: int = 10) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError("TensorBoard is an extra: pip install 'inducing[tensorboard]'") from error
        self.writer: Any = SummaryWriter(str(folder))
        self.every = every

    def __call__(self, record: Record) -> None:
        """Write the record of a step."""
        if record.step % self.every:
            return
        for name in ("elbo", "log_likelihood", "gradient_norm", "jitter", "learning_rate", "temperature"):
            self.writer.add_scalar(name, getattr(record, name), record.step)
        for layer, kl in enumerate(record.kl):
            self.writer.add_scalar(f"kl/{layer}", kl, record.step)
        self.writer.flush()


def _step(line: str) -> int:
    """The step of a line; 0 for one that was cut off."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return 0
