"""Recipes: all settings of a training run in one typed, printable value.

`PAPER` holds the settings of the paper's appendices, experiment by experiment. `FAST` is ours, and the default: it reaches
the same ELBOs in less time.
"""

from __future__ import annotations

import dataclasses
import operator
from dataclasses import dataclass
from typing import Any

from inducing.checks import check_whole
from inducing.inference.schedules import Schedule, check_schedule


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Arguments:
        num_steps: Number of gradient steps.
        batch_size: Rows in a batch; all of them, if there are fewer.
        learning_rate: The first learning rate of Adam.
        schedule: What becomes of it: "constant", "cosine", or a function from the fraction of steps done to a factor.
        num_samples: Posterior samples for each step.
        early_samples: Posterior samples for the steps before ``early_fraction``: cheap steps while far from the optimum.
        early_fraction: The part of all steps that takes ``early_samples``.
        temperature: Weight of the KL; below 1 for a cold posterior. The reported ELBO is never tempered.
        kl_warmup_epochs: Epochs over which the weight of the KL climbs from 0 to the temperature in ten stairs.
        whole_last_kl: Leave the KL of the last layer whole: temperature and warm-up are for the layers below. It is always
            so with an exact last layer.
        closed_form_kl: Take the KL of layers in closed form given their inputs, where that has less noise than few samples
            of log Q - log P; see `Network.closed_form_kl`.
        optimal_start: Begin with the exact conditional posterior in the last layer, where there is one: a Gaussian
            likelihood, and inducing points with their targets.
        patience: Stop when the objective has not risen for so many steps; None trains to the end.
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

    def __post_init__(self) -> None:
        for name in ("num_steps", "batch_size", "num_samples", "early_samples", "patience"):
            # numbers of NumPy are no JSON
            if getattr(self, name) is not None:
                object.__setattr__(self, name, check_whole(name, getattr(self, name)))
        for name in ("learning_rate", "early_fraction", "temperature"):
            object.__setattr__(self, name, float(getattr(self, name)))
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate}")
        object.__setattr__(self, "kl_warmup_epochs", operator.index(self.kl_warmup_epochs))
        if not (self.temperature >= 0 and self.kl_warmup_epochs >= 0):
            raise ValueError(
                f"temperature and kl_warmup_epochs must not be negative, got {self.temperature}, {self.kl_warmup_epochs}"
            )
        if not 0 <= self.early_fraction <= 1:
            raise ValueError(f"early_fraction must lie between 0 and 1, got {self.early_fraction}")
        check_schedule(self.schedule)

    def samples_at(self, step: int) -> int:
        """The number of posterior samples for a step."""
        early = self.early_samples is not None and step < self.early_fraction * self.num_steps
        return self.early_samples if early and self.early_samples else self.num_samples

    @property
    def depends_on_num_steps(self) -> bool:
        """Whether a step depends on how many there are in all: then more of them are another run, not a longer one."""
        return self.schedule != "constant" or self.early_samples is not None

    def identity(self) -> dict[str, Any]:
        """All settings except num_steps as JSON; a schedule that is a function is known by its values."""
        settings = dataclasses.asdict(self)
        del settings["num_steps"]
        if callable(self.schedule):
            settings["schedule"] = [self.schedule(progress / 10) for progress in range(11)]
        return settings

    def replace(self, **changes: Any) -> Recipe:
        """Return the recipe with some settings changed."""
        known = [field.name for field in dataclasses.fields(self)]
        unknown = set(changes) - set(known)
        if unknown:
            raise TypeError(f"a recipe has no {', '.join(sorted(unknown))}; its settings are {', '.join(known)}")
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
    """Turn a name into a recipe: "fast", "paper" (the one for UCI regression), or "paper:toy" and so on."""
    if isinstance(recipe, Recipe):
        return recipe
    named = {"fast": FAST, "paper": PAPER["uci"], **{f"paper:{name}": each for name, each in PAPER.items()}}
    if isinstance(recipe, str) and recipe in named:
        return named[recipe]
    if not isinstance(recipe, str):
        raise TypeError(
            f"recipe must be a name or a Recipe, got a {type(recipe).__name__}; data go into one argument, "
            "fit(network, likelihood, (x, y))"
        )
    raise ValueError(f"unknown recipe {recipe!r}; known are {', '.join(named)}, or a Recipe(...)")
