"""Division of a training step over ranks, and combination of their results.

With R ranks, a batch of B rows and S posterior samples, rank r takes

    parallel    rows     samples                          log-likelihood times          weight
    "data"      r::R     S of its own                     num_data / (B / R)            1 / R
    "samples"   all      about S / R of its own, S_r      num_data / B                  S_r / S
    "rows"      r::R     S, the same on every rank        num_data / (B / R)            1 / R

The weighted sum of the ranks' ELBOs is an unbiased estimate of the ELBO, also if ranks have different numbers of rows.
For "rows" it equals the ELBO of one process up to rounding, if noise is drawn for weights and not for rows.

All sums and the gradient of all parameters are sent in one message. DistributedDataParallel is not used: it hooks into
`forward`, which draw-then-run networks do not call, and it cannot report a failure to the other ranks.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from inducing.errors import FactorisationError, RankError
from inducing.inference.batches import Batch
from inducing.inference.objective import ELBOTerms
from inducing.inference.parallel.ranks import Ranks
from inducing.inference.recipes import Recipe
from inducing.inference.state import TrainingState

Parallel = Literal["data", "samples", "rows"]


def check_parallel(parallel: object, known: tuple[str, ...] = get_args(Parallel)) -> None:
    """Raise an error for an unknown way to divide the work."""
    if parallel is not None and parallel not in known:
        raise ValueError(f"parallel must be one of {', '.join(known)}, or None, got {parallel!r}")


def shares(total: int, size: int) -> list[int]:
    """Divide a number into nearly equal integers.

    Example:
        >>> shares(10, 4)
        [3, 3, 2, 2]
    """
    return [total // size + (rank < total % size) for rank in range(size)]


@dataclass(frozen=True)
class Division:
    """The share of this rank in each step.

    Arguments:
        ranks: This rank and the number of ranks.
        parallel: What is divided.
    """

    ranks: Ranks
    parallel: Parallel

    def check(self, recipe: Recipe) -> None:
        """Raise an error if there are fewer samples to divide than ranks."""
        fewest = min(recipe.num_samples, recipe.early_samples or recipe.num_samples)
        if self.parallel == "samples" and fewest < self.ranks.size:
            raise ValueError(
                f"{fewest} posterior samples cannot be divided over {self.ranks.size} processes. Raise num_samples and "
                'early_samples, or divide the rows with parallel="data"'
            )

    def rows(self, batch: Batch) -> Batch:
        """Return this rank's rows of a batch."""
        if self.ranks.size == 1 or self.parallel == "samples":
            return batch
        return tuple(tensor[self.ranks.rank :: self.ranks.size] for tensor in batch)

    def num_rows(self, total: int) -> float:
        """Return the number of rows that this rank's log-likelihood is scaled up from: the mean over ranks."""
        return total if self.parallel == "samples" else total / self.ranks.size

    def num_samples(self, total: int) -> int:
        """Return the number of this rank's posterior samples."""
        return shares(total, self.ranks.size)[self.ranks.rank] if self.parallel == "samples" else total

    def weight(self, total: int) -> float:
        """Return the weight of this rank's ELBO in the sum, for a total number of posterior samples."""
        return self.num_samples(total) / total if self.parallel == "samples" else 1 / self.ranks.size

    def noise(self, purpose: str) -> str:
        """Return the purpose of this rank's random numbers. See `inducing.linalg.noise.seeded`."""
        own = self.ranks.rank > 0 and self.parallel != "rows"
        return f"{purpose} on rank {self.ranks.rank}" if own else purpose

    def share(self, state: TrainingState, constants: list[Tensor]) -> None:
        """Copy the state and the constants of rank 0 to all ranks."""
        if self.ranks.size == 1:
            return
        tensors, numbers = state.snapshot()
        fixed = {f"constant.{index:05d}": tensor for index, tensor in enumerate(constants)}
        numbers = self.ranks.broadcast(numbers)
        received = self.ranks.broadcast_tensors(tensors | fixed)
        if not self.ranks.first:
            for name, tensor in zip(fixed, constants, strict=True):
                tensor.copy_(received.pop(name))
            state.restore(received, numbers)

    def combine(
        self,
        parameters: list[nn.Parameter],
        outcome: ELBOTerms | Exception,
        num_layers: int,
        weight: float,
        jitter: float,
    ) -> tuple[ELBOTerms, float]:
        """Set the gradients of the parameters to the sum over ranks. Return the combined ELBO and the largest jitter.

        Arguments:
            parameters: Learned parameters, with this rank's gradients.
            outcome: This rank's ELBO, or the exception that it raised. If a rank failed, all ranks raise an error. After a
                FactorisationError they can repeat the step together.
            num_layers: Number of Bayesian layers.
            weight: Weight of this rank.
            jitter: Largest jitter on this rank.
        """
        size, rank = self.ranks.size, self.ranks.rank
        if size == 1:
            if isinstance(outcome, Exception):
                raise outcome
            return outcome, jitter
        dtype = functools.reduce(torch.promote_types, (parameter.dtype for parameter in parameters))
        # number of failures, jitter of each rank | log-likelihood, KL, prior KL | gradient
        flags = torch.zeros(1 + size, dtype=dtype, device=parameters[0].device)
        if isinstance(outcome, Exception):
            flags[0] = 1
            values = torch.zeros(1 + 2 * num_layers, dtype=dtype, device=flags.device)
            gradient = [torch.zeros_like(p) for p in parameters]
        else:
            flags[1 + rank] = jitter
            log_likelihoods = outcome.log_likelihood.mean(-1, keepdim=True)
            values = torch.cat([log_likelihoods, outcome.kl.mean(-1), outcome.prior_kl.mean(-1)])
            gradient = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        message = torch.cat([flags, *(each.detach().reshape(-1).to(dtype) for each in (values, *gradient))])
        message[len(flags) :] *= weight
        self.ranks.sum(message)
        sizes = [1, size, 1, num_layers, num_layers, *(p.numel() for p in parameters)]
        failures, jitters, log_likelihood, kl, prior_kl, *sums = message.split(sizes)
        if failures.item():
            self._raise_together(outcome)
        assert isinstance(outcome, ELBOTerms)
        for parameter, each in zip(parameters, sums, strict=True):
            parameter.grad = each.view_as(parameter).to(parameter.dtype)
        combined = outcome._replace(log_likelihood=log_likelihood, kl=kl[:, None], prior_kl=prior_kl[:, None])
        return combined, float(jitters.max())

    def _raise_together(self, outcome: ELBOTerms | Exception) -> None:
        """Raise this rank's own error, or an error with the reasons of the failed ranks."""
        repeatable = isinstance(outcome, ELBOTerms | FactorisationError)
        reasons = self.ranks.gather([repeatable, str(outcome) if isinstance(outcome, Exception) else None])
        if isinstance(outcome, Exception) and not repeatable:
            raise outcome
        text = "; ".join(f"rank {rank}: {reason}" for rank, (_, reason) in enumerate(reasons) if reason is not None)
        raise (FactorisationError if all(each for each, _ in reasons) else RankError)(text)
