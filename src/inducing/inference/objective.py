"""The evidence lower bound (ELBO) and its terms.

ELBO = (num_data / B) sum_rows log p(y | f) - sum_layers KL,    averaged over S posterior samples, in nats

A last Gaussian process with ``conditional="tight"`` has a narrower q(f | u) than the prior's. The log-likelihood then
includes minus the KL of q(f | u), and the bound is called the tight-conditional ELBO.

With a previous posterior Q_old in place of the prior, as in Bayesian updating, the KL is the one from Q_old. One sample of
it is log Q - log Q_old of the drawn weights. This is a lower bound on log p(new data | old data), up to the error of Q_old.

With weights, log p(y | f) of each row is multiplied by its weight divided by the mean weight, and num_data is the sum of the
weights. Missing targets (NaN in some of several targets of a row) are left out of log p(y | f).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple, overload

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from inducing.autocasting import log_prob_of
from inducing.checks import check_rows, check_tensor, check_whole
from inducing.inference.batches import relative_weights
from inducing.inference.importance import ImportanceWeightedBound, has_processes, importance_log_weights
from inducing.inference.micro_batches import sum_over_pieces
from inducing.inference.validation import check_data, check_model, check_previous
from inducing.linalg.noise import seeded
from inducing.memory import keeping_memory_for
from inducing.nn.draw import Chain, NetworkDraw
from inducing.nn.gp.functions import Process
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.threads import threads_for_samples, using_threads

# (x, y), or (x, y, weights)
TrainingData = tuple[Float[Tensor, "N *in"], Tensor] | tuple[Float[Tensor, "N *in"], Tensor, Float[Tensor, " N"]]
# names of the bounds
STANDARD, TIGHT = "ELBO", "tight-conditional ELBO"


class ELBOTerms(NamedTuple):
    """The terms of the ELBO for each posterior sample, in nats for the whole dataset.

    Arguments:
        log_likelihood: (num_data / B) * sum of log p(y | f) over the batch. With a tight conditional, minus the KL of
            q(f | u).
        kl: One sample of log Q - log P of each layer's weights, in the order of `Network.layer_names`. With a previous
            posterior, of log Q - log Q_old of the weights and the priors' own variables.
        prior_kl: log Q - log P of the priors' own variables, or 0 with a previous posterior.
        temperature: Weight of the KL in the objective. The ELBO itself is never tempered.
        num_data: Number of data points that the likelihood is scaled to, or the sum of the weights.
        whole_last: Whether the KL of the last layer has weight 1, and the temperature applies only to the layers below. This
            is always so if the last layer has its exact posterior given the layers below. Its log-likelihood minus its KL
            is then the evidence of the features, log p(y | F): in expectation, and for all data in every sample of weights.
        bound: Name of the bound: "ELBO", or "tight-conditional ELBO" (`GPLayer`).
    """

    log_likelihood: Float[Tensor, " S"]
    kl: Float[Tensor, "L S"]
    prior_kl: Float[Tensor, "L S"]
    temperature: float
    num_data: int | float
    whole_last: bool = False
    bound: str = STANDARD

    @property
    def samples(self) -> Float[Tensor, " S"]:
        """The untempered ELBO of each posterior sample."""
        return self.log_likelihood - self.kl.sum(0) - self.prior_kl.sum(0)

    @property
    def elbo(self) -> Float[Tensor, ""]:
        """The untempered ELBO."""
        return self.samples.mean()

    @property
    def elbo_per_datapoint(self) -> Float[Tensor, ""]:
        """The untempered ELBO in nats per data point, as the paper reports it."""
        return self.elbo / self.num_data

    @property
    def objective(self) -> Float[Tensor, ""]:
        """The maximised quantity: the log-likelihood minus temperature times the KL."""
        kl = self.kl + self.prior_kl
        whole = (1 - self.temperature) * kl[-1] if self.whole_last else 0.0
        return (self.log_likelihood - self.temperature * kl.sum(0) - whole).mean()


class ELBO(nn.Module):
    """The evidence lower bound of a network and a likelihood.

    Arguments:
        network: The Bayesian network.
        likelihood: The distribution of the targets given the outputs of the network.
        num_data: Number of data points in the whole training set, or the sum of their weights. The log-likelihood of a batch
            is scaled to it.
        previous: A network with the same layers that was fitted to earlier data. Its posterior is used as the prior. Its
            parameters are not learned. Gaussian processes must have the same kernels and inducing inputs in both, and not
            learn them. log Q_old is sampled, also if ``closed_form_kl`` is set.

    Example:
        >>> import inducing, torch
        >>> x, y = torch.randn(20, 3), torch.randn(20, 1)
        >>> network = inducing.models.mlp(3, 1, inducing_points=x, inducing_targets=y)
        >>> elbo = inducing.ELBO(network, inducing.Gaussian(), num_data=20)
        >>> terms = elbo(x, y, num_samples=4)
        >>> terms.kl.shape
        torch.Size([3, 4])
    """

    previous: Network | None

    def __init__(
        self, network: Network, likelihood: Likelihood, num_data: int | float, previous: Network | None = None
    ) -> None:
        super().__init__()
        check_model(network, likelihood)
        if previous is not None:
            check_previous(network, previous)
            # a submodule, so that its tensors are among the constants that a checkpoint identifies
            previous = copy.deepcopy(previous).requires_grad_(False)
        if not num_data > 0:
            raise ValueError(f"num_data must be positive, got {num_data}. Pass the size of the whole training set")
        if network.optimal_last is not None:
            network.optimal_last.check_likelihood(likelihood)
        self.network, self.likelihood, self.num_data, self.previous = network, likelihood, num_data, previous

    @property
    def name(self) -> str:
        """The name of the bound: "ELBO", or "tight-conditional ELBO"."""
        return TIGHT if self.network.has_tight_conditional else STANDARD

    def forward(
        self,
        x: Float[Tensor, "B *in"],
        y: Tensor,
        num_samples: int = 1,
        temperature: float = 1.0,
        generator: Generator | None = None,
        weights: Float[Tensor, " B"] | None = None,
        num_rows: float | None = None,
        whole_last: bool = False,
        closed_form_kl: bool = False,
        micro_batch_size: int | None = None,
    ) -> ELBOTerms:
        """Evaluate the terms on a batch.

        Arguments:
            x: Inputs.
            y: Targets.
            num_samples: Number S of posterior samples.
            temperature: Weight of the KL in the objective, below 1 for cold posteriors and KL warm-up.
            generator: Source of the noise.
            weights: Weight of each row, divided by the mean weight of the whole training set.
            num_rows: Number of rows that the log-likelihood is scaled up from. Default: B. It differs from B if x is a part
                of a batch that is divided over processes. x may then be empty.
            whole_last: Whether the KL of the last layer has weight 1, and the temperature applies only to the layers below.
            closed_form_kl: Whether KLs are computed in closed form, see `Network.draw`.
            micro_batch_size: Number of rows to run at a time, forward and backward, through the same draw. Default: all. The
                gradient of the objective is the same, up to the noise of layers that sample each row. Smaller numbers need
                less memory.
        """
        x, y = check_data(self.network, self.likelihood, x, y)
        if num_rows is None or len(x):
            check_rows(x, y)
        # log Q_old - log P of the sampled variables is subtracted from the KL given the same variables
        given_prior = self.previous is not None
        draw = self.network.draw(
            num_samples, generator, likelihood=self.likelihood, closed_form_kl=closed_form_kl, given_prior=given_prior
        )
        scale = self.num_data / (len(x) if num_rows is None else num_rows)
        batch = [tensor for tensor in (x, y, weights) if tensor is not None]
        if micro_batch_size is not None:
            micro_batch_size = check_whole("micro_batch_size", micro_batch_size)
        if micro_batch_size is None or micro_batch_size >= len(x):
            log_likelihood = self.log_likelihood(draw, *batch)
        else:
            pieces = zip(*(tensor.split(micro_batch_size) for tensor in batch), strict=True)
            log_likelihood = sum_over_pieces(self.log_likelihood, draw, self.likelihood.parameters(), pieces)
        return self.terms(draw, log_likelihood * scale, temperature, whole_last)

    def terms(
        self, draw: NetworkDraw, log_likelihood: Float[Tensor, " S"], temperature: float = 1.0, whole_last: bool = False
    ) -> ELBOTerms:
        """Combine the log-likelihood of all data with the KL of a draw."""
        kl, prior_kl = (torch.stack(each) for each in zip(*((d.kl, d.prior_kl) for d in draw.layers), strict=True))
        if self.previous is not None:
            # log Q - log Q_old = (log Q - log P) - (log Q_old - log P), of the weights and the priors' own variables
            old = self.previous.log_density(draw, self.likelihood)
            kl, prior_kl = kl + prior_kl - (old.posterior - old.prior).to(kl.dtype), torch.zeros_like(prior_kl)
        whole = whole_last or self.network.optimal_last is not None
        return ELBOTerms(log_likelihood.expand(kl.shape[1]), kl, prior_kl, temperature, self.num_data, whole, self.name)

    def log_likelihood(
        self, draw: NetworkDraw, x: Float[Tensor, "B *in"], y: Tensor, weights: Float[Tensor, " B"] | None = None
    ) -> Float[Tensor, " S"]:
        """Return the weighted sum of log p(y | f) over the rows, 0 if there are none."""
        if len(x) == 0:
            return x.new_zeros(1)
        rows = self._log_likelihood(draw, x, y)
        if weights is not None:
            if self.network.has_tight_conditional:
                raise ValueError(
                    'conditional="tight" does not support weights of rows: a weight multiplies log p(y | f), but not the KL '
                    'of q(f | u). Use conditional="prior"'
                )
            if weights.shape != y.shape[:1]:
                raise ValueError(f"weights must have shape ({len(y)},), one for each row, got {tuple(weights.shape)}")
            rows = rows * weights
        return rows.sum(-1)

    def _log_likelihood(self, draw: NetworkDraw, x: Float[Tensor, "B *in"], y: Tensor) -> Float[Tensor, "S B"]:
        """Return log p(y | f) of each row. A last Gaussian process is integrated out if this has a closed form."""
        *below, last = draw.function.steps
        if isinstance(last, Process):
            rows = Chain(tuple(below))(x[None])
            if last.tight:
                if y.isnan().any():
                    raise ValueError('conditional="tight" does not support missing targets. Use conditional="prior"')
                mean, variance, conditional = last.moments_and_conditional(rows)
                gain = self.likelihood.conditional_gain(mean, variance, conditional)
                expected = self.likelihood.expected_log_prob(mean, variance, y)
                assert expected is not None
                return expected + gain
            expected = self.likelihood.expected_log_prob(*last.moments(rows), y)
            if expected is not None:
                return expected
        return log_prob_of(self.likelihood, draw(x), y, self.network.dtype)


@overload
def evaluate(
    network: Network,
    likelihood: Likelihood,
    data: TrainingData,
    num_samples: int = 100,
    seed: int = 0,
    batch_size: int | None = None,
    *,
    importance_samples: None = None,
) -> ELBOTerms: ...


@overload
def evaluate(
    network: Network,
    likelihood: Likelihood,
    data: TrainingData,
    num_samples: int = 100,
    seed: int = 0,
    batch_size: int | None = None,
    *,
    importance_samples: int,
) -> ImportanceWeightedBound: ...


def evaluate(
    network: Network,
    likelihood: Likelihood,
    data: TrainingData,
    num_samples: int = 100,
    seed: int = 0,
    batch_size: int | None = None,
    *,
    importance_samples: int | None = None,
) -> ELBOTerms | ImportanceWeightedBound:
    """Evaluate the ELBO, or the importance-weighted bound, on all data, without gradients, e.g. to compare posteriors.

    Arguments:
        network: A fitted network.
        likelihood: The likelihood of the network.
        data: The training data (x, y), or (x, y, weights).
        num_samples: Number of posterior samples to average over.
        seed: Seed of the samples.
        batch_size: Number of rows to run at a time. Default: all. Smaller batches need less memory. All batches use the same
            samples of weights, but different marginal draws of Gaussian process layers.
        importance_samples: Number K of draws of the network for the importance-weighted bound. It is returned instead of the
            ELBO, and is a higher lower bound of the log evidence in expectation. Networks with Gaussian processes need dense
            matrices of all rows, at most 2,000.

    Example:
        >>> import inducing, torch
        >>> x, y = torch.randn(20, 3), torch.randn(20, 1)
        >>> network = inducing.models.mlp(3, 1, num_inducing=5)
        >>> terms = inducing.evaluate(network, inducing.Gaussian(), (x, y))
        >>> elbo = terms.elbo_per_datapoint.item()
        >>> data = (x, y)
        >>> bound = inducing.evaluate(network, inducing.Gaussian(), data, importance_samples=200)
        >>> bound.log_weights.shape
        torch.Size([200])
    """
    x, y = data[:2]
    weights, num_data = relative_weights(data[2], x) if len(data) == 3 else (None, max(len(x), 1))
    objective = ELBO(network, likelihood, num_data)
    if batch_size is not None:
        batch_size = check_whole("batch_size", batch_size)
    x, y = check_data(network, likelihood, x, check_tensor("y", y))
    check_rows(x, y)
    tensors = [tensor for tensor in (x, y, weights) if tensor is not None]
    batches = list(zip(*(tensor.split(batch_size or len(x)) for tensor in tensors), strict=True))
    if importance_samples is not None:
        return _importance_weighted(network, likelihood, tensors, batches, num_data, importance_samples, seed)

    def terms(num_samples: int, batches: Sequence[tuple[Tensor, ...]]) -> ELBOTerms:
        draw = network.draw(num_samples, seeded(seed, "evaluation", network.device), likelihood=likelihood)
        parts = [objective.log_likelihood(draw, *(each.to(network.device) for each in batch)) for batch in batches]
        return objective.terms(draw, torch.stack(parts).sum(0) * (num_data / len(x)))

    with (
        torch.no_grad(),
        keeping_memory_for(len(batches)),
        using_threads(threads_for_samples(num_samples, lambda: terms(1, batches[:1]))),
    ):
        return terms(num_samples, batches)


def _importance_weighted(
    network: Network,
    likelihood: Likelihood,
    tensors: list[Tensor],
    batches: list[tuple[Tensor, ...]],
    num_data: int | float,
    num_samples: int,
    seed: int,
) -> ImportanceWeightedBound:
    """Evaluate the importance-weighted bound."""
    num_samples = check_whole("importance_samples", num_samples)
    # the values of a Gaussian process at all rows are drawn together
    parts = [tuple(tensors)] if has_processes(network) else batches
    # weights are relative to their mean
    scale = num_data / len(tensors[0])
    moved = [tuple(each.to(network.device) for each in part) for part in parts]
    scaled = [(*part[:2], *(scale * weights for weights in part[2:])) for part in moved]

    def log_weights(number: int) -> Tensor:
        generator = seeded(seed, "importance samples", network.device)
        return importance_log_weights(network, likelihood, scaled, number, generator)

    with torch.no_grad(), using_threads(threads_for_samples(num_samples, lambda: log_weights(1))):
        return ImportanceWeightedBound(log_weights(num_samples), num_data)
