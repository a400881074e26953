"""The history of a training run: one record for each step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Record(NamedTuple):
    """One step of training. ELBO, log-likelihood and KL are nats per data point.

    Arguments:
        step: Number of the step, starting at 1.
        elbo: Untempered ELBO, estimated from the batch and the posterior samples of the step.
        log_likelihood: Expected log-likelihood, the first term of the ELBO.
        kl: KL of each layer's weights, the second term.
        prior_kl: KL of each layer's prior hyperparameters, 0 if the prior has none.
        temperature: Weight of the KL in the objective.
        learning_rate: Learning rate of the step.
        gradient_norm: Norm of the gradient of the objective per data point, over all parameters.
        jitter: Largest relative jitter of a factorisation, 0 if none was needed.
        objective: The maximised quantity: the ELBO with the weighted KL.
        seconds: Training time so far, including that of interrupted runs.
    """

    step: int
    elbo: float
    log_likelihood: float
    kl: tuple[float, ...]
    prior_kl: tuple[float, ...]
    temperature: float
    learning_rate: float
    gradient_norm: float
    jitter: float
    objective: float
    seconds: float


@dataclass(repr=False)
class History:
    """The records of all steps.

    Arguments:
        records: One record for each step.
        bound: Name of the bound in the field ``elbo`` of the records: "ELBO", or "tight-conditional ELBO" (`GPLayer`).
        held_out: Steps and mean log-likelihoods of held-out rows, if there are any.
    """

    records: list[Record] = field(default_factory=list)
    bound: str = "ELBO"
    held_out: list[tuple[int, float]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        if not self.records:
            return "History(no steps)"
        last = self.records[-1]
        return f"History({last.step} steps, {self.bound} per datapoint {last.elbo:.4g}, {last.seconds:.0f} s)"

    def __getitem__(self, index: int) -> Record:
        return self.records[index]

    def followed_by(self, other: History) -> History:
        """The history of two runs, one after the other, with consecutive steps."""
        steps, seconds = (self.records[-1].step, self.records[-1].seconds) if self.records else (0, 0.0)
        later = [each._replace(step=each.step + steps, seconds=each.seconds + seconds) for each in other.records]
        scores = [(step + steps, score) for step, score in other.held_out]
        return History([*self.records, *later], other.bound, [*self.held_out, *scores])

    @property
    def elbo(self) -> list[float]:
        """ELBO per data point at each step."""
        return [record.elbo for record in self.records]

    def has_plateaued(self, patience: int) -> bool:
        """Return whether the mean objective of the last ``patience`` steps is not above that of the steps before.

        An increase counts if it is larger than the standard error of the difference. The comparison is made only every
        ``patience`` steps. The objective is used, since with a tempered KL the ELBO may decrease during training.
        """
        if len(self.records) < 2 * patience or len(self.records) % patience:
            return False
        objectives = [record.objective for record in self.records[-2 * patience :]]
        before, last = torch.tensor(objectives, dtype=torch.float64).view(2, patience)
        error = ((before.var(correction=0) + last.var(correction=0)) / patience).sqrt()
        return bool(last.mean() - before.mean() <= error)

    def to_tensor(self) -> Float[Tensor, "N C"]:
        """Return all numbers as a table with one row for each step."""
        rows = [[*r[:3], *r.kl, *r.prior_kl, *r[5:]] for r in self.records]
        return torch.tensor(rows, dtype=torch.float64) if rows else torch.zeros(0, 9, dtype=torch.float64)

    @classmethod
    def from_tensor(cls, table: Float[Tensor, "N C"], num_layers: int) -> History:
        """Inverse of `to_tensor`, for a network with ``num_layers`` Bayesian layers. Raise ValueError for a wrong table."""
        columns = 9 + 2 * num_layers
        # a table without steps has no columns for the layers
        if table.ndim != 2 or table.shape[1] != (columns if len(table) else 9) or table.dtype != torch.float64:
            raise ValueError(
                f"the history is {table.dtype} {tuple(table.shape)}, but {num_layers} layers need torch.float64 "
                f"(steps, {columns})"
            )
        if not torch.isfinite(table).all():
            raise ValueError("the history contains NaN or inf")
        if not torch.equal(table[:, 0], torch.arange(1, len(table) + 1, dtype=table.dtype)):
            raise ValueError(f"the history does not have the steps 1 to {len(table)}")
        records = []
        for step, elbo, log_likelihood, *kl, temperature, rate, norm, jitter, objective, seconds in table.tolist():
            parts = tuple(kl[:num_layers]), tuple(kl[num_layers:])
            rest = (temperature, rate, norm, jitter, objective, seconds)
            records.append(Record(int(step), elbo, log_likelihood, *parts, *rest))
        return cls(records)
