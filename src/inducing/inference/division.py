"""How a step of training is divided over ranks, and put together again.

With R ranks, a batch of B rows and S posterior samples, rank r takes

    parallel    rows     samples                          log-likelihood times          weight
    "data"      r::R     S of its own                     num_data / (B / R)            1 / R
    "samples"   all      about S / R of its own, S_r      num_data / B                  S_r / S
    "rows"      r::R     S, the same on every rank        num_data / (B / R)            1 / R

The weighted sum over ranks of their ELBOs is an ELBO of the whole batch: rows that are missing on one rank are there on
another, however uneven the shards. Its expectation, and that of its gradient, do not depend on R. For "rows" it is that of
one process up to rounding, where noise belongs to weights and not to rows.

Sums travel as one flat message with the gradient of all parameters in it. DistributedDataParallel would not help: it listens
to calls of `forward`, and ours is draw, then run; and the failure of one rank must reach the others with its gradient.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import nn

from inducing.inference.batches import Batch
from inducing.inference.distributed import RankError, Ranks
from inducing.inference.objective import ELBOTerms
from inducing.inference.recipes import Recipe
from inducing.linalg.cholesky import FactorisationError

Parallel = Literal["data", "samples", "rows"]


def check_parallel(parallel: object, known: tuple[str, ...] = get_args(Parallel)) -> None:
    """Refuse an unknown way to divide the work."""
    if parallel is not None and parallel not in known:
        raise ValueError(f"parallel must be one of {', '.join(known)}, or None, got {parallel!r}")


def shares(total: int, size: int) -> list[int]:
    """Cut a number into as equal parts as can be.

    Example:
        >>> shares(10, 4)
        [3, 3, 2, 2]
    """
    return [total // size + (rank < total % size) for rank in range(size)]


@dataclass(frozen=True)
class Division:
    """The part of each step that falls to this rank.

    Arguments:
        ranks: Who takes part.
        parallel: What is divided.
    """

    ranks: Ranks
    parallel: Parallel

    def check(self, recipe: Recipe) -> None:
        """Refuse fewer samples than ranks, where samples are divided."""
        fewest = min(recipe.num_samples, recipe.early_samples or recipe.num_samples)
        if self.parallel == "samples" and fewest < self.ranks.size:
            raise ValueError(
                f"{fewest} posterior samples cannot be divided over {self.ranks.size} processes; raise num_samples and "
                'early_samples, or divide the rows, parallel="data"'
            )

    def rows(self, batch: Batch) -> Batch:
        """This rank's rows of a batch."""
        if self.ranks.size == 1 or self.parallel == "samples":
            return batch
        return tuple(tensor[self.ranks.rank :: self.ranks.size] for tensor in batch)

    def num_rows(self, total: int) -> float:
        """Of how many rows its log-likelihood is to be taken for the sum: its share, had all ranks as many."""
        return total if self.parallel == "samples" else total / self.ranks.size

    def num_samples(self, total: int) -> int:
        """How many posterior samples it takes."""
        return shares(total, self.ranks.size)[self.ranks.rank] if self.parallel == "samples" else total

    def weight(self, total: int) -> float:
        """What its ELBO counts in the sum, when there are so many posterior samples in all."""
        return self.num_samples(total) / total if self.parallel == "samples" else 1 / self.ranks.size

    def noise(self, purpose: str) -> str:
        """The name of its random numbers."""
        own = self.ranks.rank > 0 and self.parallel != "rows"
        return f"{purpose} on rank {self.ranks.rank}" if own else purpose

    def combine(
        self,
        parameters: list[nn.Parameter],
        terms: ELBOTerms | Exception,
        num_layers: int,
        weight: float,
        jitter: float,
    ) -> tuple[ELBOTerms, float]:
        """Put the gradient of all ranks into the parameters; return their ELBO and largest jitter.

        Arguments:
            parameters: What is learned, with this rank's gradients.
            terms: This rank's ELBO, or why there is none: then all ranks raise, and after a FactorisationError can take the
                step again together.
            num_layers: Number of Bayesian layers.
            weight: What this rank counts.
            jitter: The largest jitter that it used.
        """
        size, rank = self.ranks.size, self.ranks.rank
        if size == 1:
            if isinstance(terms, Exception):
                raise terms
            return terms, jitter
        dtype = functools.reduce(torch.promote_types, (parameter.dtype for parameter in parameters))
        # failures, jitters of all ranks | log-likelihood, KL, prior KL | gradient
        flags = torch.zeros(1 + size, dtype=dtype, device=parameters[0].device)
        values = torch.zeros(1 + 2 * num_layers, dtype=dtype, device=flags.device)
        gradient = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        if isinstance(terms, Exception):
            flags[0] = 1
            gradient = [torch.zeros_like(p) for p in parameters]
        else:
            flags[1 + rank] = jitter
            values = torch.cat(
                [terms.log_likelihood.mean(-1, keepdim=True), terms.kl.mean(-1), terms.prior_kl.mean(-1)]
            )
        message = torch.cat([flags, *(each.detach().reshape(-1).to(dtype) for each in (values, *gradient))])
        message[len(flags) :] *= weight
        self.ranks.sum(message)
        sizes = [1, size, 1, num_layers, num_layers, *(p.numel() for p in parameters)]
        failed, jitters, log_likelihood, kl, prior_kl, *sums = message.split(sizes)
        if failed.item():
            again = isinstance(terms, ELBOTerms | FactorisationError)
            reasons = self.ranks.gather([again, str(terms) if isinstance(terms, Exception) else None])
            if isinstance(terms, Exception) and not again:
                raise terms
            told = "; ".join(f"rank {r}: {why}" for r, (_, why) in enumerate(reasons) if why is not None)
            raise (FactorisationError if all(each for each, _ in reasons) else RankError)(told)
        for parameter, each in zip(parameters, sums, strict=True):
            parameter.grad = each.view_as(parameter).to(parameter.dtype)
        assert isinstance(terms, ELBOTerms)
        together = terms._replace(log_likelihood=log_likelihood, kl=kl[:, None], prior_kl=prior_kl[:, None])
        return together, float(jitters.max())
