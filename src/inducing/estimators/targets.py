"""What likelihoods need of targets: their scale, the outputs of the network, and where its pseudo-outputs begin."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from inducing.checks import did_you_mean
from inducing.nn.likelihoods import (
    FIRST_VARIANCE,
    Categorical,
    Gaussian,
    HeteroscedasticGaussian,
    HeteroscedasticStudentT,
    Likelihood,
    NegativeBinomial,
    Poisson,
    StudentT,
)

FIRST_FREEDOM = 4.0


class Choice(NamedTuple):
    """A likelihood by name.

    Arguments:
        make: Makes it for so many targets.
        outputs: Outputs of the network for each target.
        start: First values of the outputs from the targets that the network sees.
    """

    make: Callable[[int], Likelihood]
    outputs: int
    start: Callable[[Tensor], Tensor]


def _each(first: float, targets: int) -> float | list[float]:
    """A first value for each target where there are several, so that each learns its own."""
    return [first] * targets if targets > 1 else first


def _with_noise(y: Tensor) -> Tensor:
    """Beside the targets the logarithms of noise variances, which begin at 0."""
    return torch.cat([y, torch.zeros_like(y)], 1)


def _counts(y: Tensor) -> Tensor:
    return torch.log(y + 0.5)


REGRESSION: dict[str, Choice] = {
    "gaussian": Choice(lambda targets: Gaussian(_each(FIRST_VARIANCE, targets)), 1, lambda y: y),
    "heteroscedastic": Choice(
        lambda targets: HeteroscedasticGaussian(_each(FIRST_VARIANCE, targets)),
        2,
        _with_noise,
    ),
    "heteroscedastic-student-t": Choice(
        lambda targets: HeteroscedasticStudentT(_each(FIRST_VARIANCE, targets), _each(FIRST_FREEDOM, targets)),
        2,
        _with_noise,
    ),
    "student-t": Choice(lambda targets: StudentT(_each(math.sqrt(FIRST_VARIANCE), targets)), 1, lambda y: y),
    "poisson": Choice(lambda targets: Poisson(), 1, _counts),
    "negative-binomial": Choice(lambda targets: NegativeBinomial(_each(1.0, targets)), 1, _counts),
}
CLASSIFICATION: dict[str, Choice] = {"categorical": Choice(lambda targets: Categorical(), 1, lambda y: y)}


def choose(name: object, known: dict[str, Choice]) -> Choice:
    """Find a likelihood by name; "auto" is the first."""
    if isinstance(name, str) and name == "auto":
        return next(iter(known.values()))
    if isinstance(name, str) and name in known:
        return known[name]
    names = ", ".join(f'"{each}"' for each in ("auto", *known))
    raise ValueError(f"unknown likelihood {name!r}{did_you_mean(name, known)}; known are the names {names}")
