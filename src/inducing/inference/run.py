"""A training run: its constant model, data and settings, and the gradient of one step.

A step is a function of the run, the parameters, the seed and the number of the step. So a step can be undone and repeated,
and a run can be stopped at any step and continued.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from inducing.autocasting import without_autocasting
from inducing.errors import DivergenceError
from inducing.inference.batches import Augment, Batch, Batches, Data
from inducing.inference.held_out import HeldOut
from inducing.inference.history import Record
from inducing.inference.identity import augment_identity, data_checksums
from inducing.inference.objective import ELBO, ELBOTerms
from inducing.inference.parallel.division import Division
from inducing.inference.recipes import Recipe
from inducing.inference.state import StopReason, TrainingState
from inducing.linalg.cholesky import recorded_jitter
from inducing.linalg.noise import seeded


@dataclass(frozen=True)
class Run:
    """The model, data and settings of a training run.

    Arguments:
        elbo: The objective, with the network and the likelihood.
        batches: The source of mini-batches.
        recipe: The settings.
        seed: Seed of the posterior samples.
        division: The share of this process in each step.
        held_out: Rows that are scored and not trained on.
    """

    elbo: ELBO
    batches: Batches
    recipe: Recipe
    seed: int
    division: Division
    held_out: HeldOut | None = None

    def constants(self) -> list[Tensor]:
        """Return the buffers, and the parameters that are not learned."""
        fixed = [parameter.detach() for parameter in self.elbo.parameters() if not parameter.requires_grad]
        return [*self.elbo.buffers(), *fixed]

    def identity(self, data: Data, augment: Augment | None) -> dict[str, Any]:
        """Return a description of the run as JSON. Data other than tensors are described only by their number of rows."""
        return {
            "recipe": self.recipe.identity(),
            "seed": self.seed,
            "augment": augment_identity(augment),
            "num_data": self.batches.num_data,
            "data": data_checksums(data),
            "network": repr(self.elbo.network),
            "likelihood": type(self.elbo.likelihood).__name__,
            "parameters": [[name, list(p.shape), str(p.dtype)] for name, p in self.elbo.named_parameters()],
            **({} if self.held_out is None else {"validation": self.held_out.identity()}),
        }

    def gradient(self, state: TrainingState, batch: Batch) -> Record:
        """Evaluate the ELBO of the next step, and store the gradient of the negative objective in the parameters."""
        device, division = self.elbo.network.device, self.division
        num_samples = self.recipe.samples_at(state.step)
        temperature = self.recipe.temperature_at(state.step, self.batches.steps_per_epoch)
        x, y, *weights = (tensor.detach().to(device) for tensor in division.rows(batch))
        noise = seeded(self.seed, division.noise(f"posterior samples of step {state.step}"), device)
        state.optimizer.zero_grad()
        with recorded_jitter() as jitters:
            try:
                terms = self.elbo(
                    x,
                    y,
                    division.num_samples(num_samples),
                    temperature,
                    noise,
                    weights[0] if weights else None,
                    division.num_rows(len(batch[0])),
                    self.recipe.whole_last_kl,
                    self.recipe.closed_form_kl,
                    self.recipe.micro_batch_size,
                )
                loss = -terms.objective / self.batches.num_data
                # False on a rank without rows if only the likelihood is learned
                if loss.requires_grad:
                    with without_autocasting(device):
                        loss.backward()
                outcome: ELBOTerms | Exception = terms
            except Exception as failure:
                # the other ranks wait for this one, and are told the reason
                outcome = failure
        terms, jitter = division.combine(
            state.parameters, outcome, state.num_layers, division.weight(num_samples), max(jitters, default=0.0)
        )
        norm = float(torch.nn.utils.get_total_norm([p.grad for p in state.parameters if p.grad is not None]))
        if not (math.isfinite(norm) and math.isfinite(terms.elbo.item())):
            raise DivergenceError(self._explain_divergence(terms))
        rate = self.recipe.learning_rate_at(state.step) * state.damping
        return _record(state.step + 1, terms, rate, norm, jitter)

    def score_held_out(self, state: TrainingState) -> None:
        """Score the held-out rows if it is time."""
        if self.held_out is not None and (state.step % self.held_out.every == 0 or state.step == self.recipe.num_steps):
            score = self.held_out.score(self.elbo.network, self.elbo.likelihood, self.seed)
            state.held_out.add(state.step, score, state.parameters, self._warmup_steps)

    def stop_reason(self, state: TrainingState, callback_stops: bool) -> StopReason | None:
        """Return the reason why the run is finished after the last step, or None if it is not finished."""
        if state.step >= self.recipe.num_steps:
            return StopReason.NUM_STEPS
        if callback_stops:
            return StopReason.CALLBACK
        if self.held_out is not None and state.held_out.are_stale(self.held_out.patience, self._warmup_steps):
            return StopReason.HELD_OUT
        patience = self.recipe.patience
        if patience is None:
            return None
        # both compared windows must be after the warm-up of the KL
        first = self._warmup_steps + 2 * patience
        return StopReason.PATIENCE if state.step >= first and state.history.has_plateaued(patience) else None

    @property
    def _warmup_steps(self) -> int:
        return self.recipe.warmup_steps(self.batches.steps_per_epoch)

    def _explain_divergence(self, terms: ELBOTerms) -> str:
        """Return a message with the terms or gradients that are not finite."""
        finite = torch.isfinite(terms.kl).all(1) & torch.isfinite(terms.prior_kl).all(1)
        layers = [name for name, good in zip(self.elbo.network.layer_names, finite.tolist(), strict=True) if not good]
        if layers:
            where = f"the KL of {', '.join(layers)}"
        elif not torch.isfinite(terms.log_likelihood).all():
            where = "the log-likelihood"
        else:
            # Adam squares the gradients, so the squares must be finite, too
            learned = ((name, p.grad) for name, p in self.elbo.named_parameters() if p.grad is not None)
            bad = [name for name, gradient in learned if not torch.isfinite(gradient.square().sum())]
            where = f"the gradient of {', '.join(bad)}"
        return (
            f"{where} is not finite. The learning rate may be too high, or the scale of the data extreme: lower "
            "learning_rate, standardise x and y, or use float64 (`network.double()`, `likelihood.double()`)."
        )


def learned_parameters(elbo: ELBO) -> list[nn.Parameter]:
    """Return the parameters that are learned."""
    learned = [parameter for parameter in elbo.parameters() if parameter.requires_grad]
    if not learned:
        raise ValueError("neither the network nor the likelihood has parameters to learn")
    return learned


def _record(step: int, terms: ELBOTerms, learning_rate: float, norm: float, jitter: float) -> Record:
    """Return the record of a step, in nats per data point. The caller sets its time."""
    log_likelihoods = terms.log_likelihood.mean(-1, keepdim=True)
    parts = [log_likelihoods, terms.objective[None], terms.kl.mean(-1), terms.prior_kl.mean(-1)]
    # one transfer from the device for all numbers
    log_likelihood, objective, *values = (torch.cat(parts).detach() / terms.num_data).tolist()
    return Record(
        step,
        elbo=log_likelihood - sum(values[: len(terms.kl)]) - sum(values[len(terms.kl) :]),
        log_likelihood=log_likelihood,
        kl=tuple(values[: len(terms.kl)]),
        prior_kl=tuple(values[len(terms.kl) :]),
        temperature=terms.temperature,
        learning_rate=learning_rate,
        gradient_norm=norm,
        jitter=jitter,
        objective=objective,
        seconds=0.0,
    )
