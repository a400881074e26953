"""Held-out rows during training: their log-likelihood, the best parameters so far, and early stopping."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.autocasting import log_prob_of
from inducing.checks import check_weights, check_whole
from inducing.errors import FactorisationError
from inducing.inference.identity import checksums
from inducing.inference.validation import check_data
from inducing.linalg.noise import seeded
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network

# rows that are scored at a time
BATCH = 1000


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows that are not trained on. `fit` scores them, and ends with the parameters that had the best score.

    The score is the mean log-likelihood of the predictive distribution, as on test rows. Scores during the warm-up of the KL
    do not count: the network is not yet trained with its whole objective.

    Arguments:
        x: Inputs.
        y: Targets.
        weights: Weights of the rows in the mean, with the same meaning as for training rows. Default: equal weights.
        every: Interval between scored steps.
        patience: Stop after this number of scores without a new best one. None: train to the end.
        num_samples: Number of posterior samples in a prediction.

    Example:
        >>> import inducing, torch
        >>> x = torch.randn(60, 2)
        >>> network = inducing.models.mlp(2, 1, [5], inducing_points=x[:10])
        >>> held_out = inducing.HeldOut(x[50:], x[50:, :1], every=5)
        >>> history = inducing.fit(network, inducing.Gaussian(), (x[:50], x[:50, :1]), num_steps=20,
        ...                        validation=held_out, progress=False)
        >>> [step for step, _ in history.held_out]
        [5, 10, 15, 20]
    """

    x: Float[Tensor, "H *in"]
    y: Tensor
    weights: Float[Tensor, " H"] | None = field(default=None, kw_only=True)
    every: int = 50
    patience: int | None = 10
    num_samples: int = 20

    def __post_init__(self) -> None:
        for name in ("every", "num_samples", *(["patience"] if self.patience is not None else [])):
            object.__setattr__(self, name, check_whole(name, getattr(self, name)))

    @classmethod
    def of(
        cls,
        given: HeldOut | tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor],
        network: Network,
        likelihood: Likelihood,
    ) -> HeldOut:
        """The held-out rows, checked; rows (x, y) or (x, y, weights) have default settings."""
        if not isinstance(given, HeldOut):
            if not isinstance(given, tuple | list) or len(given) not in (2, 3):
                raise TypeError(
                    "validation must be rows (x, y) or (x, y, weights) of tensors, or inducing.HeldOut(x, y, ...)"
                )
            given = HeldOut.from_rows(given)
        if len(given.x) == 0:
            raise ValueError("validation has no rows")
        check_data(network, likelihood, given.x, given.y)
        if given.weights is not None:
            check_weights(given.weights, len(given.x), "weights of validation rows")
        return given

    @classmethod
    def from_rows(cls, rows: tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]) -> HeldOut:
        """Rows (x, y) or (x, y, weights) with default settings."""
        x, y, *weights = rows
        return cls(x, y, weights=weights[0] if weights else None)

    def identity(self) -> dict[str, Any]:
        """A description as JSON, for checkpoints."""
        settings = {"every": self.every, "patience": self.patience, "num_samples": self.num_samples}
        rows = (self.x, self.y) if self.weights is None else (self.x, self.y, self.weights)
        return {**settings, "data": checksums(rows)}

    def score(self, network: Network, likelihood: Likelihood, seed: int) -> float:
        """The mean log-likelihood of the rows, or minus infinity where a factorisation fails."""
        return float(self.mean(self.log_likelihoods(network, likelihood, seed)))

    def mean(self, values: Float[Tensor, " H"]) -> Float[Tensor, ""]:
        """The weighted mean of one value per row."""
        weights, values = self._counted(values)
        return (weights * values).sum() / weights.sum()

    def standard_error(self, values: Float[Tensor, " H"]) -> Float[Tensor, ""]:
        """The standard error of the weighted mean, for independent rows."""
        # sqrt(sum_i w_i^2 (v_i - m)^2) / sum_i w_i
        weights, kept = self._counted(values)
        return (weights * (kept - self.mean(values))).square().sum().sqrt() / weights.sum()

    def _counted(self, values: Float[Tensor, " H"]) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
        """The positive weights and the values of their rows. Minus infinity in a row of weight zero does not count."""
        weights = torch.ones_like(values) if self.weights is None else self.weights.to(values)
        return weights[weights > 0], values[weights > 0]

    def log_likelihoods(self, network: Network, likelihood: Likelihood, seed: int) -> Float[Tensor, " H"]:
        """The log-likelihood of each row, or minus infinity where a factorisation fails."""
        device = network.device
        try:
            with torch.no_grad():
                draw = network.draw(self.num_samples, seeded(seed, "held-out rows", device), likelihood=likelihood)
                batches = zip(self.x.split(BATCH), self.y.split(BATCH), strict=True)
                parts = [log_prob_of(likelihood, draw(x.to(device)), y.to(device), network.dtype) for x, y in batches]
        except FactorisationError:
            return torch.full((len(self.x),), -torch.inf)
        # log p(y | x) = log 1/S sum_s p(y | f_s(x))
        return torch.cat(parts, 1).logsumexp(0) - math.log(self.num_samples)


@dataclass
class Scores:
    """The scores of held-out rows so far.

    Arguments:
        scores: Steps and scores.
        best: The parameters with the best score.
        second: Those that were best before.
    """

    scores: list[tuple[int, float]] = field(default_factory=list)
    best: list[Tensor] | None = None
    second: list[Tensor] | None = None

    def add(self, step: int, score: float, parameters: Sequence[Tensor], since: int = 0) -> None:
        """Add the score of a step, and keep a copy of its parameters if it is the best.

        Scores of steps before ``since`` do not count.
        """
        score = -torch.inf if math.isnan(score) else score
        earlier = [each for each in self.scores if each[0] < step]
        if len(earlier) < len(self.scores) and _best(self.scores, since) != _best(earlier, since):
            # the step is repeated after a roll-back, and what was best has been undone
            self.best, self.second = self.second, None
        if step >= since and (self.best is None or score > _best(earlier, since)[0]):
            self.best, self.second = [parameter.detach().clone() for parameter in parameters], self.best
        self.scores = [*earlier, (step, score)]

    def are_stale(self, patience: int | None, since: int = 0) -> bool:
        """Whether the last ``patience`` scores that count are all below the best one."""
        values = [value for step, value in self.scores if step >= since]
        if patience is None or not values:
            return False
        return len(values) - 1 - values.index(max(values)) >= patience

    def to_tensor(self) -> Float[Tensor, "K 2"]:
        """The scores as a table."""
        return torch.tensor(self.scores, dtype=torch.float64).reshape(-1, 2)


def _best(scores: Sequence[tuple[int, float]], since: int) -> tuple[float, int]:
    """The best score of those that count, and minus the step of the first one that has it."""
    return max(((value, -step) for step, value in scores if step >= since), default=(-math.inf, 1))
