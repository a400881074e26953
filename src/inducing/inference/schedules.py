"""How the learning rate and the weight of the KL change over training, as factors between 0 and 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

Schedule = Literal["constant", "cosine"] | Callable[[float], float]


def check_schedule(schedule: object) -> None:
    """Refuse a schedule that is not known."""
    if not callable(schedule) and schedule not in ("constant", "cosine"):
        raise ValueError(
            f'unknown schedule {schedule!r}; known are "constant", "cosine", or a function of the progress'
        )


def learning_rate_factor(schedule: Schedule, progress: float) -> float:
    """Factor of the learning rate when the fraction ``progress`` of all steps is done."""
    if callable(schedule):
        return schedule(progress)
    return 1.0 if schedule == "constant" else 0.5 * (1.0 + math.cos(math.pi * progress))


def stepwise_warmup(step: int, num_steps: int, stairs: int = 10) -> float:
    """Factor of the KL that climbs from 0 to 1 in equal stairs.

    With ten stairs over 100 epochs it is 0 in the first ten epochs, 0.1 in the next ten, ..., and 1 from the hundredth
    on: the paper's scheme for CIFAR-10.
    """
    if step >= num_steps:
        return 1.0
    return math.floor(stairs * step / num_steps) / stairs
