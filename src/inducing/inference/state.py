"""The state of a training run: all values that a step changes, and the state before the last step for roll-back."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from inducing.errors import DivergenceError, RollBackWarning
from inducing.inference.held_out import Scores
from inducing.inference.history import History, Record
from inducing.inference.optimizers import adam

MAX_FAILURES = 10
MAX_THREADS = 4096
# state of Adam for each parameter
MOMENTS = ("step", "exp_avg", "exp_avg_sq")


class StopReason(StrEnum):
    """The reason why a run is finished."""

    NUM_STEPS = "num_steps"
    CALLBACK = "callback"
    PATIENCE = "patience"
    HELD_OUT = "held_out"


class TrainingState:
    """Parameters, optimiser, step and history.

    Arguments:
        parameters: Learned parameters.
        learning_rate: Initial learning rate of Adam.
        num_steps: Planned number of steps.
        num_layers: Number of Bayesian layers, each of which has a KL in the history.
        optimizer: An optimiser of the user. Default: Adam. Only Adam's state is in snapshots.
    """

    def __init__(
        self,
        parameters: list[nn.Parameter],
        learning_rate: float,
        num_steps: int,
        num_layers: int,
        optimizer: Optimizer | None = None,
    ) -> None:
        self.parameters = parameters
        self.optimizer = optimizer or adam(parameters, learning_rate)
        self.has_own_optimizer = optimizer is not None
        # learning rates of the groups, relative to the first
        self.relative_rates = [
            group["lr"] / self.optimizer.param_groups[0]["lr"] for group in self.optimizer.param_groups
        ]
        self.num_steps, self.num_layers = num_steps, num_layers
        self.step = 0
        # factor of the learning rate after roll-backs
        self.damping = 1.0
        # failures in a row, and the last step that failed
        self.failures = 0
        self.failed_step = 0
        self.roll_backs = 0
        self.stopped: StopReason | None = None
        # number of threads; None until the work of a step is known
        self.threads: int | None = None
        self.history = History()
        self.held_out = Scores()
        self.last_good: list[Tensor] | None = None
        self.last_good_step = 0
        # state of an optimiser of the user before the last step
        self.last_optimizer: dict[str, Any] | None = None

    def tensors(self) -> list[Tensor]:
        """Return the parameters, then Adam's counter and moments for each.

        The moments are empty before Adam's first step, and with an optimiser of the user.
        """
        nothing = torch.zeros(0)
        state = {} if self.has_own_optimizer else self.optimizer.state
        moments = [state.get(parameter, {}).get(name, nothing) for parameter in self.parameters for name in MOMENTS]
        return [*(parameter.detach() for parameter in self.parameters), *moments]

    def load(self, tensors: list[Tensor]) -> None:
        """Set parameters and optimiser to the values that `tensors` returned."""
        count = len(self.parameters)
        with torch.no_grad():
            for parameter, value in zip(self.parameters, tensors[:count], strict=True):
                parameter.copy_(value)
        if self.has_own_optimizer:
            return
        self.optimizer.state.clear()
        moments = iter(tensors[count:])
        for parameter, step, mean, square in zip(self.parameters, moments, moments, moments, strict=True):
            if step.ndim == 0:
                moved = (each.to(parameter.device, copy=True) for each in (step, mean, square))
                self.optimizer.state[parameter] = dict(zip(MOMENTS, moved, strict=True))

    def snapshot(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the state as named tensors and JSON values, so that the run can be continued."""
        tensors = {f"state.{index:05d}": tensor.contiguous() for index, tensor in enumerate(self.tensors())}
        # the next step may have to undo the last one
        tensors |= {f"before.{index:05d}": tensor for index, tensor in enumerate(self.last_good or [])}
        tensors["history"] = self.history.to_tensor()
        tensors |= {f"best.{index:05d}": tensor for index, tensor in enumerate(self.held_out.best or [])}
        if self.held_out.scores:
            tensors["held_out"] = self.held_out.to_tensor()
        return tensors, {name: getattr(self, name) for name in VALID}

    def restore(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Inverse of `snapshot`. Raise ValueError for a snapshot of another run, before the state is changed."""
        _check_numbers(numbers)
        step = numbers["step"]
        scores = self._take_scores(tensors)
        state, before = self._group(tensors, "state"), self._group(tensors, "before")
        if "history" not in tensors or len(tensors) != len(state) + len(before) + 1:
            raise ValueError(f"the tensors {', '.join(sorted(tensors)[:5])}, ... are not those of this run")
        if bool(before) != bool(step):
            raise ValueError(f"there are {len(before)} tensors of the state before step {step}")
        for group in (state, before) if before else (state,):
            self._check(group, step)
        history = History.from_tensor(tensors["history"], self.num_layers)
        if len(history) != step:
            raise ValueError(f"the history has {len(history)} steps, but the run has taken {step}")
        self.load(state)
        self.last_good, self.last_good_step = before or None, step - 1
        self.history, self.held_out = history, scores
        for name, value in numbers.items():
            setattr(self, name, value)
        self.stopped = numbers["stopped"] and StopReason(numbers["stopped"])

    def load_best(self) -> None:
        """Set the parameters to those with the best score on held-out rows, if there are scores."""
        with torch.no_grad():
            for parameter, value in zip(self.parameters, self.held_out.best or [], strict=False):
                parameter.copy_(value)
        self.history.held_out = list(self.held_out.scores)

    def advance(self, record: Record) -> None:
        """Take one step of the optimiser with the current gradients, and keep the state before it."""
        if self.step >= self.failed_step:
            # after the failed step, the learning rate is restored gradually
            if not self.failures:
                self.damping = min(1.0, 1.1 * self.damping)
            self.failures = 0
        self.last_good, self.last_good_step = [tensor.clone() for tensor in self.tensors()], self.step
        if self.has_own_optimizer:
            self.last_optimizer = copy.deepcopy(self.optimizer.state_dict())
        for group, relative_rate in zip(self.optimizer.param_groups, self.relative_rates, strict=True):
            group["lr"] = record.learning_rate * relative_rate
        self.optimizer.step()
        self.history.records.append(record)
        self.step += 1

    def roll_back(self, reason: Exception) -> None:
        """Undo the last step, so that it is repeated with half the step size. Raise DivergenceError after many failures."""
        failed = self.step + 1
        self.failures += 1
        self.failed_step = max(self.failed_step, self.step)
        if self.last_good is not None and self.step > self.last_good_step:
            self.load(self.last_good)
            if self.last_optimizer is not None:
                self.optimizer.load_state_dict(copy.deepcopy(self.last_optimizer))
            self.step -= 1
            self.history.records.pop()
        self.optimizer.zero_grad()
        if self.last_good is None:
            raise DivergenceError(f"step {failed}: {reason}", self.history) from reason
        if self.failures > MAX_FAILURES:
            tried = f"after {MAX_FAILURES} roll-backs with decreasing step sizes"
            raise DivergenceError(f"step {failed}, {tried}: {reason}", self.history) from reason
        self.damping /= 2
        self.roll_backs += 1
        # warn at roll-backs 1, 2, 4, 8, ..., so that many of them do not hide other messages
        if self.roll_backs & (self.roll_backs - 1) == 0:
            warnings.warn(
                f"step {failed}: {reason} The previous step was undone and is repeated with {self.damping:.2g} of its "
                f"size (roll-back {self.roll_backs})",
                RollBackWarning,
                stacklevel=4,
            )

    def _take_scores(self, tensors: dict[str, Tensor]) -> Scores:
        """Remove the scores of held-out rows from the tensors of a snapshot, and return them."""
        table = tensors.pop("held_out", None)
        if table is None:
            return Scores()
        names = [f"best.{index:05d}" for index in range(len(self.parameters))]
        best = [tensors.pop(name) for name in names if name in tensors]
        if len(best) not in (0, len(names)) or table.ndim != 2 or table.shape[1] != 2 or not len(table):
            raise ValueError("the scores of held-out rows are not those of this run")
        for index, (value, parameter) in enumerate(zip(best, self.parameters, strict=False)):
            _check_like(f"the best parameter {index}", value, parameter)
        return Scores([(int(step), score) for step, score in table.tolist()], best or None)

    def _group(self, tensors: dict[str, Tensor], name: str) -> list[Tensor]:
        """Return the tensors of a group in the order of their numbered names."""
        names = [f"{name}.{index:05d}" for index in range((1 + len(MOMENTS)) * len(self.parameters))]
        return [tensors[each] for each in names if each in tensors]

    def _check(self, tensors: list[Tensor], step: int) -> None:
        """Raise an error for wrong shapes, which Adam would access out of bounds, and for non-finite values."""
        count = len(self.parameters)
        if len(tensors) != (1 + len(MOMENTS)) * count:
            raise ValueError(f"there are {len(tensors)} tensors for {count} parameters, which need {4 * count}")
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


def _check_like(name: str, value: Tensor, wanted: Tensor) -> None:
    if value.shape != wanted.shape or value.dtype != wanted.dtype:
        found, needed = (f"{each.dtype} {tuple(each.shape)}" for each in (value, wanted))
        raise ValueError(f"{name} is {found}, but this run needs {needed}")
    if not torch.isfinite(value).all():
        raise ValueError(f"{name} contains NaN or inf")


def _is_whole(value: object, low: float, high: float) -> bool:
    return type(value) is int and low <= value <= high


# the numbers of a snapshot, and whether their values are valid
VALID: dict[str, Callable[[dict[str, Any]], bool]] = {
    "step": lambda numbers: _is_whole(numbers["step"], 0, math.inf),
    "num_steps": lambda numbers: _is_whole(numbers["num_steps"], 1, math.inf),
    "damping": lambda numbers: isinstance(numbers["damping"], float) and 2.0**-100 < numbers["damping"] <= 1,
    "failures": lambda numbers: _is_whole(numbers["failures"], 0, MAX_FAILURES),
    "failed_step": lambda numbers: _is_whole(numbers["failed_step"], 0, numbers["step"] + 1),
    "stopped": lambda numbers: numbers["stopped"] in (None, *StopReason),
    "threads": lambda numbers: numbers["threads"] is None or _is_whole(numbers["threads"], 1, MAX_THREADS),
}


def _check_numbers(numbers: dict[str, Any]) -> None:
    """Raise an error for the numbers of a damaged or foreign file."""
    if numbers.keys() != VALID.keys():
        raise ValueError(f"the header has the entries {str(sorted(numbers))[:200]}")
    for name, is_valid in VALID.items():
        if not is_valid(numbers):
            raise ValueError(f"{name} cannot be {str(numbers[name])[:80]}")
