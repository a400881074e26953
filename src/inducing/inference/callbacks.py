"""Callbacks for `fit`: their arguments, a JSON log and TensorBoard."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from inducing.extras import require
from inducing.files import write_atomically
from inducing.inference.history import Record
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network

# a function of the record, or of the record, the network and the likelihood; True stops training
Callback = Callable[[Record], bool | None] | Callable[[Record, Network, Likelihood], bool | None]


def as_functions_of_records(
    callbacks: Callback | Sequence[Callback], network: Network, likelihood: Likelihood
) -> list[Callable[[Record], bool | None]]:
    """Return callbacks as functions of the record alone. Those with three arguments also get the network and likelihood."""

    def convert(callback: Any) -> Callable[[Record], bool | None]:
        _check_arguments(callback)
        return (lambda record: callback(record, network, likelihood)) if _takes_three(callback) else callback

    return [convert(each) for each in ([callbacks] if callable(callbacks) else callbacks)]


def _check_arguments(callback: Any) -> None:
    try:
        signature = inspect.signature(callback)
    except ValueError:
        # functions written in C have no signature
        return
    try:
        signature.bind(*[None] * (3 if _takes_three(callback) else 1))
    except TypeError:
        wanted = "the record, or the record, the network and the likelihood"
        raise TypeError(f"the arguments of a callback are {wanted}, but one has {signature}") from None


def _takes_three(callback: Callable[..., Any]) -> bool:
    """Whether a function has three arguments without defaults."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(callback).parameters.values()
    except ValueError:
        # functions written in C have no signature
        return False
    return sum(each.kind in positional and each.default is each.empty for each in parameters) == 3


class JSONLog:
    """Log file with one JSON object per line: the fields of `Record`.

    Lines of repeated steps are replaced. So a continued run continues its log, and a new run replaces the log of an old run.

    Arguments:
        path: The file. Its folder is created if it does not exist.
        every: Interval between logged steps.
    """

    def __init__(self, path: str | Path, every: int = 1) -> None:
        self.path, self.every = Path(path), every
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # an existing file may end in an incomplete line, which is removed at the first step
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
    """Log of ELBO, log-likelihood, KL per layer, gradient norm, jitter, learning rate and temperature for TensorBoard.

    It needs an extra: ``pip install "inducing[tensorboard]"``.

    Arguments:
        folder: Log folder of TensorBoard.
        every: Interval between logged steps.
    """

    def __init__(self, folder: str | Path, every: int = 10) -> None:
        require("tensorboard")
        from torch.utils.tensorboard import SummaryWriter

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
    """Return the step of a log line, or 0 for an incomplete line."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return 0
