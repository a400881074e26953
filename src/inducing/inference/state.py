"""The state of a training run: everything that one step changes, with the last good state kept for roll-back."""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from inducing.inference.history import History, Record

MAX_FAILURES = 10
MAX_THREADS = 4096
MOMENTS = ("step", "exp_avg", "exp_avg_sq")
# why a run is finished
StopReason = Literal["num_steps", "callback", "patience"]


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
        num_steps: Steps that the run is planned to take.
        num_layers: Number of Bayesian layers, each of which has a KL in the history.
    """

    def __init__(self, parameters: list[nn.Parameter], learning_rate: float, num_steps: int, num_layers: int) -> None:
        self.parameters = parameters
        self.optimizer = torch.optim.Adam(parameters, lr=learning_rate, fused=True)
        self.num_steps, self.num_layers = num_steps, num_layers
        self.step = 0
        self.damping = 1.0
        self.failures = 0
        self.failed_step = 0
        self.roll_backs = 0
        self.stopped: StopReason | None = None
        # threads of the run, once its work is known
        self.threads: int | None = None
        self.history = History()
        self.last_good: list[Tensor] | None = None
        self.last_good_step = 0

    def tensors(self) -> list[Tensor]:
        """The parameters, then Adam's counter and moments for each; empty tensors for what Adam has not met yet."""
        nothing = torch.zeros(0)
        moments = [
            self.optimizer.state.get(parameter, {}).get(name, nothing)
            for parameter in self.parameters
            for name in MOMENTS
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
                self.optimizer.state[parameter] = dict(zip(MOMENTS, moved, strict=True))

    def snapshot(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that a run needs to go on, as named tensors and JSON."""
        tensors = {f"state.{index:05d}": tensor.contiguous() for index, tensor in enumerate(self.tensors())}
        # the state before the last step, should the next one have to undo it
        tensors |= {f"before.{index:05d}": tensor for index, tensor in enumerate(self.last_good or [])}
        tensors["history"] = self.history.to_tensor()
        names = ("step", "num_steps", "damping", "failures", "failed_step", "stopped", "threads")
        return tensors, {name: getattr(self, name) for name in names}

    def restore(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """The inverse of `snapshot`; a ValueError says what does not fit, and then nothing has changed."""
        _check_numbers(numbers)
        state, before = self._group(tensors, "state"), self._group(tensors, "before")
        history = tensors.get("history")
        if len(tensors) != len(state) + len(before) + 1 or history is None:
            raise ValueError(
                f"it has the tensors {', '.join(sorted(tensors)[:5])}, ..., which are not those of this run"
            )
        if bool(before) != bool(numbers["step"]):
            raise ValueError(f"at step {numbers['step']} it has {len(before)} tensors of the state before")
        self._check(state, numbers["step"])
        if before:
            self._check(before, numbers["step"])
        restored = History.from_tensor(history, self.num_layers)
        if len(restored) != numbers["step"]:
            raise ValueError(f"its history has {len(restored)} steps, but {numbers['step']} were taken")
        self.load(state)
        self.last_good, self.last_good_step = before or None, numbers["step"] - 1
        self.step, self.num_steps, self.damping = numbers["step"], numbers["num_steps"], numbers["damping"]
        self.failures, self.failed_step = numbers["failures"], numbers["failed_step"]
        self.stopped, self.threads, self.history = numbers["stopped"], numbers["threads"], restored

    def _group(self, tensors: dict[str, Tensor], name: str) -> list[Tensor]:
        """Tensors as in `tensors`, from their numbered names."""
        names = [f"{name}.{index:05d}" for index in range((1 + len(MOMENTS)) * len(self.parameters))]
        return [tensors[each] for each in names if each in tensors]

    def _check(self, tensors: list[Tensor], step: int) -> None:
        """Refuse tensors that Adam would read or write beyond their ends, or that are not finite."""
        count = len(self.parameters)
        if len(tensors) != (1 + len(MOMENTS)) * count:
            raise ValueError(f"it has {len(tensors)} tensors for {count} parameters, which need {4 * count}")
        moments = [tensors[start : start + len(MOMENTS)] for start in range(count, len(tensors), len(MOMENTS))]
        for index, (parameter, value) in enumerate(zip(self.parameters, tensors[:count], strict=True)):
            _check_like(f"parameter {index}", value, parameter)
            counter, mean, square = moments[index]
            if all(each.shape == (0,) for each in moments[index]):
                continue
            _check_like(f"Adam's step counter of parameter {index}", counter, torch.empty((), dtype=torch.float32))
            _check_like(f"Adam's mean of parameter {index}", mean, parameter)
            _check_like(f"Adam's mean square of parameter {index}", square, parameter)
            if not 0 <= counter.item() <= step:
                raise ValueError(f"Adam's step counter of parameter {index} is {counter.item():g} at step {step}")
            if (square < 0).any():
                raise ValueError(f"Adam's mean square of parameter {index} is negative")

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


def _check_like(name: str, value: Tensor, wanted: Tensor) -> None:
    if value.shape != wanted.shape or value.dtype != wanted.dtype:
        found, needed = (f"{each.dtype} {tuple(each.shape)}" for each in (value, wanted))
        raise ValueError(f"{name} is {found}, but this run needs {needed}")
    if not torch.isfinite(value).all():
        raise ValueError(f"{name} contains NaN or inf")


def _check_numbers(numbers: dict[str, Any]) -> None:
    """Refuse numbers that no run has; they may come from a damaged or foreign file."""
    limits = {
        "step": (0, math.inf),
        "num_steps": (1, math.inf),
        "failures": (0, MAX_FAILURES),
        "failed_step": (0, numbers["step"] + 1 if type(numbers.get("step")) is int else 0),
    }
    for name, (low, high) in limits.items():
        value = numbers.get(name)
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"{name} cannot be {str(value)[:80]}")
    damping = numbers.get("damping")
    if not isinstance(damping, float) or not 2.0**-100 < damping <= 1:
        raise ValueError(f"damping cannot be {str(damping)[:80]}")
    threads = numbers.get("threads", 0)
    if threads is not None and (type(threads) is not int or not 1 <= threads <= MAX_THREADS):
        raise ValueError(f"threads cannot be {str(threads)[:80]}")
    if "stopped" not in numbers or numbers["stopped"] not in (None, *get_args(StopReason)):
        raise ValueError(f"stopped cannot be {str(numbers.get('stopped'))[:80]}")
