"""The training loop: Adam on the negative ELBO, read from top to bottom."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from inducing.checks import check_inputs
from inducing.inference.batches import Data, batches
from inducing.inference.objective import ELBO, ELBOTerms
from inducing.inference.schedules import Schedule, learning_rate_factor, stepwise_warmup
from inducing.linalg.noise import seeded
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network


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
        seconds: Time since training began.
    """

    step: int
    elbo: float
    log_likelihood: float
    kl: tuple[float, ...]
    prior_kl: tuple[float, ...]
    temperature: float
    learning_rate: float
    seconds: float


@dataclass
class History:
    """What happened in training, a `Record` for each step."""

    records: list[Record] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Record:
        return self.records[index]

    @property
    def elbo(self) -> list[float]:
        """The ELBO per data point at each step."""
        return [record.elbo for record in self.records]


Callback = Callable[[Record], bool | None]


class DivergenceError(RuntimeError):
    """Training left the numbers: the ELBO is NaN or inf."""


def fit(
    network: Network,
    likelihood: Likelihood,
    data: Data,
    *,
    num_steps: int = 2000,
    batch_size: int = 10_000,
    num_samples: int = 10,
    learning_rate: float = 1e-2,
    schedule: Schedule = "cosine",
    temperature: float = 1.0,
    kl_warmup_epochs: int = 0,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    description: str = "fit",
) -> History:
    """Maximise the ELBO with Adam.

    The same seed gives the same numbers on the same machine, for a network that starts from the same parameters.

    Arguments:
        network: The Bayesian network.
        likelihood: The distribution of the targets given its outputs; its parameters are learned too.
        data: A pair (x, y) of tensors, a Dataset, or a DataLoader.
        num_steps: Number of gradient steps.
        batch_size: Rows in a batch; all of them, if there are fewer.
        num_samples: Posterior samples for each step.
        learning_rate: The first learning rate.
        schedule: "cosine", "constant", or a function from the fraction of steps done to a factor.
        temperature: Weight of the KL; below 1 for a cold posterior. The reported ELBO is never tempered.
        kl_warmup_epochs: Epochs over which the weight of the KL climbs from 0 to the temperature in ten stairs.
        seed: Seed of the posterior samples and the order of the data.
        callbacks: Called with the `Record` of each step; training stops when one returns True.
        progress: Whether to show a progress bar.
        description: What the bar calls this run.

    Returns:
        The history, a `Record` for each step.
    """
    if num_steps < 1:
        raise ValueError(f"num_steps must be at least 1, got {num_steps}")

    def check(x: Tensor, y: Tensor) -> None:
        check_inputs(x, network.input_shape, network.dtype)
        likelihood.check_targets(y, network.output_shape)

    noise = seeded(seed, "posterior samples", network.device)
    stream, num_data, steps_per_epoch = batches(data, batch_size, seeded(seed, "data order"), check)
    _explain_many_inducing_points(network, num_data)
    elbo = ELBO(network, likelihood, num_data)
    parameters = [parameter for parameter in elbo.parameters() if parameter.requires_grad]
    if not parameters:
        raise ValueError("nothing can be learned: neither the network nor the likelihood has parameters")
    optimizer = torch.optim.Adam(parameters, lr=learning_rate)
    history = History()
    start = time.perf_counter()
    with _progress_bar(progress) as bar:
        task = bar.add_task(description, total=num_steps, elbo="")
        for step in range(num_steps):
            x, y = (tensor.to(network.device) for tensor in next(stream))
            rate = learning_rate * learning_rate_factor(schedule, step / num_steps)
            weight = temperature * stepwise_warmup(step, kl_warmup_epochs * steps_per_epoch)
            for group in optimizer.param_groups:
                group["lr"] = rate

            terms = elbo(x, y, num_samples, weight, noise)
            optimizer.zero_grad()
            (-terms.objective / num_data).backward()
            record = _record(step + 1, terms, rate, time.perf_counter() - start)
            _refuse_divergence(record, network)
            optimizer.step()

            history.records.append(record)
            bar.update(task, advance=1, elbo=f"{record.elbo:9.3f}")
            # all of them are called, whatever the first says
            if True in [callback(record) for callback in callbacks]:
                break
    return history


def _record(step: int, terms: ELBOTerms, learning_rate: float, seconds: float) -> Record:
    parts = [terms.log_likelihood.mean(-1, keepdim=True), terms.kl.mean(-1), terms.prior_kl.mean(-1)]
    # one transfer for all numbers
    values = (torch.cat(parts).detach() / terms.num_data).tolist()
    layers = len(terms.kl)
    log_likelihood, kl, prior_kl = values[0], tuple(values[1 : layers + 1]), tuple(values[layers + 1 :])
    elbo = log_likelihood - sum(kl) - sum(prior_kl)
    return Record(step, elbo, log_likelihood, kl, prior_kl, terms.temperature, learning_rate, seconds)


def _refuse_divergence(record: Record, network: Network) -> None:
    """Stop before the parameters are spoilt, and say where the first number went wrong."""
    # comparing with itself finds NaN, subtracting finds inf
    if record.elbo - record.elbo == 0.0:
        return
    names = zip(network.layer_names, record.kl, record.prior_kl, strict=True)
    bad = [name for name, *values in names if any(value - value != 0.0 for value in values)]
    where = f"the KL of {', '.join(bad)}" if bad else "the log-likelihood"
    raise DivergenceError(
        f"step {record.step}: {where} is not finite. The parameters are those from before this step. Likely causes: "
        "a learning rate that is too high, or data on an extreme scale. Remedies: lower learning_rate, standardise x "
        "and y, or use float64 (`network.double()`, `likelihood.double()`)"
    )


def _explain_many_inducing_points(network: Network, num_data: int) -> None:
    if network.num_inducing is not None and network.num_inducing > num_data:
        warnings.warn(
            f"{network.num_inducing} inducing points for {num_data} data points: this is allowed, and costs more than "
            "it can gain; as many inducing points as data already contain the optimal last layer",
            stacklevel=3,
        )


def _progress_bar(show: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("ELBO per datapoint {task.fields[elbo]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
        disable=not show,
    )
