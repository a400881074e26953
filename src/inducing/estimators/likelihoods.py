"""The likelihoods that estimators offer by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from inducing.nn import likelihoods as nn
from inducing.nn.likelihoods import FIRST_VARIANCE, Likelihood

COUNTS = ("poisson", "negative-binomial")


class Choice(NamedTuple):
    """A likelihood that an estimator offers.

    Arguments:
        likelihood: Its class.
        parameters: Initial values of its parameters.
        outputs: Outputs of the network for each target.
        initial: Initial pseudo-outputs of the last layer from the targets of the network.
        settings: Further arguments of the likelihood.
    """

    likelihood: type[Likelihood]
    parameters: tuple[float, ...] = ()
    outputs: int = 1
    initial: Callable[[Tensor], Tensor] = lambda y: y
    settings: Mapping[str, bool] = MappingProxyType({})

    def make(self, targets: int) -> Likelihood:
        """Make the likelihood. Each of several targets learns its own parameters."""
        values = ([value] * targets if targets > 1 else value for value in self.parameters)
        return self.likelihood(*values, **self.settings)


def _with_log_noise(y: Tensor) -> Tensor:
    return torch.cat([y, torch.zeros_like(y)], 1)


def _log_counts(y: Tensor) -> Tensor:
    return torch.log(y + 0.5)


REGRESSION = {
    "gaussian": Choice(nn.Gaussian, (FIRST_VARIANCE,)),
    "heteroscedastic": Choice(nn.HeteroscedasticGaussian, (FIRST_VARIANCE,), 2, _with_log_noise),
    # variance and degrees of freedom
    "heteroscedastic-student-t": Choice(nn.HeteroscedasticStudentT, (FIRST_VARIANCE, 4.0), 2, _with_log_noise),
    "student-t": Choice(nn.StudentT, (math.sqrt(FIRST_VARIANCE),)),
    "poisson": Choice(nn.Poisson, initial=_log_counts),
    "negative-binomial": Choice(nn.NegativeBinomial, (1.0,), initial=_log_counts),
}
CLASSIFICATION = {"categorical": Choice(nn.Categorical)}
# the noise for which an optimal last layer exists, by whether it is heteroscedastic
EXACT = {False: "gaussian", True: "heteroscedastic"}


def check_counts(likelihood: str, y: np.ndarray) -> None:
    """Refuse targets that are not counts, if the likelihood is for counts."""
    if likelihood in COUNTS and (wrong := y[(y < 0) | ((y % 1 != 0) & ~np.isnan(y))]).size:
        found = f"the likelihood {likelihood!r} needs counts (0, 1, 2, ...), but a target is {wrong[0]:g}"
        raise ValueError(f"{found}. Use 'gaussian' or 'student-t' for real numbers.")
