"""The state of a training run: everything that one step changes, with the last good state kept for roll-back."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from inducing.inference.history import History, Record

MAX_FAILURES = 10


class DivergenceError(RuntimeError):
    """Training left the numbers and could not be brought back. The network holds the last good state.

    Arguments:
        message: What went wrong, where, and what to do.
        history: What happened until then.
    """

    def __init__(self, message: str, history: History | None = None) -> None:
        super().__init__(message)
        self.history = history or History()


class RollBackWarning(UserWarning):
    """A step of training was undone and is tried again, smaller."""


class TrainingState:
    """Parameters, optimiser, number of steps and history.

    Arguments:
        parameters: What is learned.
        learning_rate: First learning rate of Adam.
    """

    def __init__(self, parameters: list[nn.Parameter], learning_rate: float) -> None:
        self.parameters = parameters
        self.optimizer = torch.optim.Adam(parameters, lr=learning_rate, fused=True)
        self.step = 0
        self.damping = 1.0
        self.failures = 0
        self.failed_step = 0
        self.roll_backs = 0
        self.finished = False
        self.history = History()
        self.last_good: list[Tensor] | None = None
        self.last_good_step = 0

    def tensors(self) -> list[Tensor]:
        """The parameters, then Adam's counter and moments for each; empty tensors for what Adam has not met yet."""
        nothing = torch.zeros(0)
        moments = [
            self.optimizer.state.get(parameter, {}).get(name, nothing)
            for parameter in self.parameters
            for name in ("step", "exp_avg", "exp_avg_sq")
        ]
        return [*(parameter.detach() for parameter in self.parameters), *moments]

    def load(self, tensors: list[Tensor]) -> None:
        """Put values like those of `tensors` in place."""
        count = len(self.parameters)
        with torch.no_grad():
            for parameter, value in zip(self.parameters, tensors[:count], strict=True):
                parameter.copy_(value)
        self.optimizer.state.clear()
        moments = iter(tensors[count:])
        for parameter, step, mean, square in zip(self.parameters, moments, moments, moments, strict=True):
            if step.ndim == 0:
                moved = (each.to(parameter.device, copy=True) for each in (step, mean, square))
                self.optimizer.state[parameter] = dict(zip(("step", "exp_avg", "exp_avg_sq"), moved, strict=True))

    def snapshot(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that a run needs to go on, as named tensors and JSON."""
        tensors = {f"state.{index:05d}": tensor.contiguous() for index, tensor in enumerate(self.tensors())}
        # the state before the last step, should the next one have to undo it
        tensors |= {f"before.{index:05d}": tensor for index, tensor in enumerate(self.last_good or [])}
        tensors["history"] = self.history.to_tensor()
        names = ("step", "damping", "failures", "failed_step", "finished")
        return tensors, {name: getattr(self, name) for name in names}

    def restore(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """The inverse of `snapshot`."""
        self.load([tensors[name] for name in sorted(tensors) if name.startswith("state.")])
        self.last_good = [tensors[name] for name in sorted(tensors) if name.startswith("before.")] or None
        self.last_good_step = numbers["step"] - 1
        self.step, self.damping = numbers["step"], numbers["damping"]
        self.failures, self.failed_step = numbers["failures"], numbers["failed_step"]
        self.finished = numbers["finished"]
        self.history = History.from_tensor(tensors["history"])

    def advance(self, record: Record, learning_rate: float) -> None:
        """Take one step with the gradients at hand, after the present state has been kept."""
        if self.step >= self.failed_step:
            # the step that failed has been passed: let the damping wear off
            if not self.failures:
                self.damping = min(1.0, 1.1 * self.damping)
            self.failures = 0
        self.last_good, self.last_good_step = [tensor.clone() for tensor in self.tensors()], self.step
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()
        self.history.records.append(record)
        self.step += 1

    def roll_back(self, reason: Exception) -> None:
        """Undo the last step, so that it is taken again at half its size; give up after repeated failure."""
        failed = self.step + 1
        self.failures += 1
        self.failed_step = max(self.failed_step, self.step)
        if self.last_good is not None and self.step > self.last_good_step:
            self.load(self.last_good)
            self.step -= 1
            self.history.records.pop()
        self.optimizer.zero_grad()
        if self.last_good is None or self.failures > MAX_FAILURES:
            tried = (
                f", and taking the step before it again up to {MAX_FAILURES} times smaller" if self.last_good else ""
            )
            raise DivergenceError(f"step {failed}{tried}: {reason}", self.history) from reason
        self.damping /= 2
        self.roll_backs += 1
        # the first, second, fourth, eighth, ...: a run with many should not bury everything else
        if self.roll_backs & (self.roll_backs - 1) == 0:
            warnings.warn(
                f"step {failed}: {reason} The step before it was undone and is tried again at {self.damping:.2g} of its "
                f"size (roll-back number {self.roll_backs})",
                RollBackWarning,
                stacklevel=4,
            )
