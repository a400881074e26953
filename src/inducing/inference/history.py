"""What happened in training, step by step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Record(NamedTuple):
    """One step of training. ELBO, log-likelihood and KL are nats per data point.

    Arguments:
        step: Steps done, counted from 1.
        elbo: The untempered ELBO of this step's batch and samples.
        log_likelihood: Its first part.
        kl: Its second part, layer by layer.
        prior_kl: The KL of the priors' own variables, layer by layer.
        temperature: The weight that the KL had in the objective.
        learning_rate: The learning rate of the step.
        gradient_norm: Norm of the gradient of the objective per data point, over all parameters.
        jitter: The largest relative jitter that a factorisation needed, 0 where none did.
        objective: What the step maximised: the ELBO with the KL at its weight.
        seconds: Time spent in training so far, that of interrupted runs included.
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
    """A `Record` for each step."""

    records: list[Record] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        if not self.records:
            return "History(no steps)"
        last = self.records[-1]
        return f"History({last.step} steps, ELBO per datapoint {last.elbo:.4g}, {last.seconds:.0f} s)"

    def __getitem__(self, index: int) -> Record:
        return self.records[index]

    @property
    def elbo(self) -> list[float]:
        """The ELBO per data point at each step."""
        return [record.elbo for record in self.records]

    def has_plateaued(self, patience: int) -> bool:
        """Whether the mean objective of the last ``patience`` steps is not clearly above that of as many steps before.

        Clearly means by more than the standard error of the difference. It is asked once in ``patience`` steps. With a
        tempered KL the ELBO itself may fall all the while.
        """
        if len(self.records) < 2 * patience or len(self.records) % patience:
            return False
        objectives = [record.objective for record in self.records[-2 * patience :]]
        before, last = torch.tensor(objectives, dtype=torch.float64).view(2, patience)
        error = ((before.var(correction=0) + last.var(correction=0)) / patience).sqrt()
        return bool(last.mean() - before.mean() <= error)

    def to_tensor(self) -> Float[Tensor, "N C"]:
        """All numbers as a table, for a checkpoint."""
        rows = [[*r[:3], *r.kl, *r.prior_kl, *r[5:]] for r in self.records]
        return torch.tensor(rows, dtype=torch.float64) if rows else torch.zeros(0, 9, dtype=torch.float64)

    @classmethod
    def from_tensor(cls, table: Float[Tensor, "N C"], num_layers: int) -> History:
        """The inverse of `to_tensor` for a network of so many Bayesian layers; a table that does not fit is refused."""
        columns = 9 + 2 * num_layers
        # a history without steps does not know the number of layers
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
