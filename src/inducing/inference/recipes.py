"""Recipes: the settings of a training run, with the learning rate and the weight of the KL at each step.

`PAPER` has the settings of the paper's appendices, one recipe for each experiment. `FAST` is the default: it reaches the
same ELBOs in less time.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from inducing.checks import check_whole

# a name, or a function from the fraction of steps done to a factor of the learning rate
Schedule = Literal["constant", "cosine"] | Callable[[float], float]
# number of equal steps in which the weight of the KL increases during warm-up
WARMUP_STAGES = 10


@dataclass(frozen=True)
class Recipe:
    """Settings of a training run.

    Arguments:
        num_steps: Number of gradient steps.
        batch_size: Number of rows in a batch, at most the number of rows in the data.
        learning_rate: Initial learning rate of Adam.
        schedule: Factor of the learning rate over time: "constant", "cosine", or a function of the fraction of steps done.
        num_samples: Number of posterior samples in each step.
        early_samples: Number of posterior samples in the first steps. Default: ``num_samples``.
        early_fraction: Fraction of all steps that use ``early_samples``.
        temperature: Weight of the KL, below 1 for a cold posterior. The reported ELBO is never tempered.
        kl_warmup_epochs: Epochs over which the weight of the KL increases from 0 to the temperature, in ten equal steps.
        kl_warmup_fraction: The same as a fraction of all steps, in place of a number of epochs.
        whole_last_kl: Whether temperature and warm-up apply to all layers except the last, whose KL has weight 1. This is
            always so for an optimal last layer.
        closed_form_kl: Whether to use the closed-form KL of a layer given its inputs if its gradient has a smaller variance
            than that of samples of log Q - log P. See `Network.draw`.
        optimal_start: Whether to initialise the last layer at its exact conditional posterior. This applies to a Gaussian
            likelihood and inducing points with targets.
        patience: Stop when the objective has not increased for this number of steps. Default: never.
        micro_batch_size: Number of rows of a batch that are run at a time, forward and backward. Default: the whole batch.
            This bounds the memory of a step. The gradient is the same, up to the noise of layers that sample each row.
    """

    num_steps: int = 2000
    batch_size: int = 10_000
    learning_rate: float = 1e-2
    schedule: Schedule = "cosine"
    num_samples: int = 10
    early_samples: int | None = None
    early_fraction: float = 0.5
    temperature: float = 1.0
    kl_warmup_epochs: int = 0
    whole_last_kl: bool = False
    closed_form_kl: bool = False
    optimal_start: bool = False
    patience: int | None = None
    micro_batch_size: int | None = None
    kl_warmup_fraction: float = 0.0

    def __post_init__(self) -> None:
        for name in ("num_steps", "batch_size", "num_samples", "early_samples", "patience", "micro_batch_size"):
            # NumPy scalars are not JSON-serialisable
            if getattr(self, name) is not None:
                object.__setattr__(self, name, check_whole(name, getattr(self, name)))
        for name in ("learning_rate", "early_fraction", "temperature", "kl_warmup_fraction"):
            object.__setattr__(self, name, float(getattr(self, name)))
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate}")
        object.__setattr__(self, "kl_warmup_epochs", operator.index(self.kl_warmup_epochs))
        if not (self.temperature >= 0 and self.kl_warmup_epochs >= 0):
            raise ValueError(
                f"temperature and kl_warmup_epochs must not be negative, got {self.temperature}, {self.kl_warmup_epochs}"
            )
        for name in ("early_fraction", "kl_warmup_fraction"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be between 0 and 1, got {getattr(self, name)}")
        if self.kl_warmup_epochs and self.kl_warmup_fraction:
            raise ValueError("give kl_warmup_epochs or kl_warmup_fraction, not both")
        if not callable(self.schedule) and self.schedule not in ("constant", "cosine"):
            raise ValueError(
                f'unknown schedule {self.schedule!r}. Use "constant", "cosine", or a function of the fraction of steps done'
            )

    def samples_at(self, step: int) -> int:
        """Return the number of posterior samples in a step."""
        early = self.early_samples is not None and step < self.early_fraction * self.num_steps
        return self.early_samples if early and self.early_samples else self.num_samples

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate of a step."""
        progress = step / self.num_steps
        if callable(self.schedule):
            return self.learning_rate * self.schedule(progress)
        return self.learning_rate * (1.0 if self.schedule == "constant" else 0.5 * (1 + math.cos(math.pi * progress)))

    def temperature_at(self, step: int, steps_per_epoch: int) -> float:
        """Return the weight of the KL in a step.

        With a warm-up over 100 epochs it is 0 in the first ten epochs, 0.1 times the temperature in the next ten, ..., and
        the temperature after 100 epochs. This is the paper's scheme for CIFAR-10.
        """
        warmup_steps = self.warmup_steps(steps_per_epoch)
        if step >= warmup_steps:
            return self.temperature
        return self.temperature * (math.floor(WARMUP_STAGES * step / warmup_steps) / WARMUP_STAGES)

    def warmup_steps(self, steps_per_epoch: int) -> int:
        """Return the number of steps before the KL has its whole weight."""
        return round(self.kl_warmup_fraction * self.num_steps) or self.kl_warmup_epochs * steps_per_epoch

    @property
    def depends_on_num_steps(self) -> bool:
        """Whether the settings of a step depend on the total number of steps."""
        return self.schedule != "constant" or self.early_samples is not None or self.kl_warmup_fraction > 0

    def identity(self) -> dict[str, Any]:
        """Return all settings except num_steps as JSON, micro_batch_size and kl_warmup_fraction only if they are set.

        A schedule that is a function is described by its values.
        """
        settings = dataclasses.asdict(self)
        del settings["num_steps"]
        # as in checkpoints from before these settings
        if self.micro_batch_size is None:
            del settings["micro_batch_size"]
        if not self.kl_warmup_fraction:
            del settings["kl_warmup_fraction"]
        if callable(self.schedule):
            settings["schedule"] = [self.schedule(progress / 10) for progress in range(11)]
        return settings

    def replace(self, **changes: Any) -> Recipe:
        """Return the recipe with some settings changed."""
        known = [field.name for field in dataclasses.fields(self)]
        unknown = set(changes) - set(known)
        if unknown:
            raise TypeError(f"a recipe has no {', '.join(sorted(unknown))}. Its settings are {', '.join(known)}")
        return dataclasses.replace(self, **changes)

    def __str__(self) -> str:
        return "\n".join(f"{field.name:>18}  {getattr(self, field.name)}" for field in dataclasses.fields(self))


FAST = Recipe(
    num_steps=2500,
    learning_rate=3e-2,
    num_samples=10,
    early_samples=4,
    early_fraction=0.6,
    closed_form_kl=True,
    optimal_start=True,
)

# The appendix "Additional experimental details" and the "Experimental details" of each experiment.
PAPER: dict[str, Recipe] = {
    "toy": Recipe(num_steps=5000, learning_rate=1e-2, schedule="constant", num_samples=10),
    "linear": Recipe(num_steps=40_000, learning_rate=1e-2, schedule="constant", num_samples=1),
    "uci": Recipe(num_steps=10_000, learning_rate=1e-2, schedule="constant", num_samples=10, batch_size=10_000),
    "dgp": Recipe(num_steps=20_000, learning_rate=1e-2, schedule="constant", num_samples=10, batch_size=10_000),
    "mnist500": Recipe(num_steps=10_000, learning_rate=1e-3, schedule="constant", num_samples=1, batch_size=500),
    "cifar10": Recipe(
        num_steps=100_000,
        learning_rate=1e-2,
        schedule="constant",
        num_samples=1,
        batch_size=500,
        kl_warmup_epochs=100,
    ),
    "uci-factorised": Recipe(num_steps=25_000, learning_rate=1e-2, schedule="constant", num_samples=10, batch_size=100),
}


def as_recipe(recipe: Recipe | str) -> Recipe:
    """Return the recipe, or the recipe with this name: "fast", "paper" (UCI regression), "paper:toy", ..."""
    if isinstance(recipe, Recipe):
        return recipe
    named = {"fast": FAST, "paper": PAPER["uci"], **{f"paper:{name}": each for name, each in PAPER.items()}}
    if isinstance(recipe, str) and recipe in named:
        return named[recipe]
    if not isinstance(recipe, str):
        raise TypeError(
            f"recipe must be a name or a Recipe, got a {type(recipe).__name__}. Pass the data as one argument: "
            "fit(network, likelihood, (x, y))"
        )
    raise ValueError(f"unknown recipe {recipe!r}. Known recipes: {', '.join(named)}, or a Recipe(...)")
