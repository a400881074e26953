"""The evidence lower bound, with its terms apart.

ELBO = (num_data / B) sum_rows log p(y | f) - sum_layers KL,    averaged over S posterior samples, in nats

With weights, each row's log p(y | f) is multiplied by its own, relative to their mean, and num_data is their sum.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from inducing.checks import check_dtype, check_inputs, check_kind, check_rows, check_tensor, check_whole
from inducing.inference.batches import relative_weights
from inducing.linalg.noise import seeded
from inducing.nn.draw import Chain, NetworkDraw
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.nn.processes import Process


class ELBOTerms(NamedTuple):
    """One evaluation of the ELBO, term by term and sample by sample, in nats for the whole data set.

    Arguments:
        log_likelihood: (num_data / B) * sum of log p(y | f) over the batch.
        kl: One sample of log Q - log P of each layer's weights, in the order of `Network.layer_names`.
        prior_kl: The same for the priors' own variables.
        temperature: What the KL is multiplied with in the objective; the ELBO itself is never tempered.
        num_data: Number of data points that the likelihood was scaled to; with weights, their sum.
        whole_last: Whether the KL of the last layer is left whole, and the temperature is for the layers below. It is always
            so where the last layer has its exact posterior given those below: its log-likelihood minus its KL is then the
            evidence of the features, log p(y | F), in the mean, and in every sample of weights for all data.
    """

    log_likelihood: Float[Tensor, " S"]
    kl: Float[Tensor, "L S"]
    prior_kl: Float[Tensor, "L S"]
    temperature: float
    num_data: int | float
    whole_last: bool = False

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
        """What training maximises: the log-likelihood minus temperature times the KL."""
        kl = self.kl + self.prior_kl
        whole = (1 - self.temperature) * kl[-1] if self.whole_last else 0.0
        return (self.log_likelihood - self.temperature * kl.sum(0) - whole).mean()


class ELBO(nn.Module):
    """The evidence lower bound of a network and a likelihood.

    Arguments:
        network: The Bayesian network.
        likelihood: The distribution of the targets given its outputs.
        num_data: Number of data points in the whole training set, or the sum of their weights; batches are scaled up to it.

    Example:
        >>> import inducing, torch
        >>> x, y = torch.randn(20, 3), torch.randn(20, 1)
        >>> network = inducing.models.mlp(3, 1, inducing_points=x, inducing_targets=y)
        >>> terms = inducing.ELBO(network, inducing.Gaussian(), num_data=20)(x, y, num_samples=4)
        >>> terms.kl.shape
        torch.Size([3, 4])
    """

    def __init__(self, network: Network, likelihood: Likelihood, num_data: int | float) -> None:
        super().__init__()
        check_kind("network", network, Network, "an inducing.Network")
        check_kind("likelihood", likelihood, Likelihood, "one of ours, e.g. inducing.Gaussian()")
        if not num_data > 0:
            raise ValueError(f"num_data must be positive, the size of the whole training set, got {num_data}")
        network.tie(likelihood)
        self.network, self.likelihood, self.num_data = network, likelihood, num_data

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
    ) -> ELBOTerms:
        """Evaluate the terms on a batch.

        Arguments:
            x: Inputs.
            y: Targets.
            num_samples: S, the number of posterior samples.
            temperature: Weight of the KL in the objective: below 1 for cold posteriors and KL warm-up.
            generator: Source of the noise.
            weights: How much each row counts, relative to the mean over the whole training set.
            num_rows: The number of rows that the log-likelihood is scaled up from, where these are an uneven shard of a
                batch, or no row at all; the default is B.
            whole_last: Leave the KL of the last layer whole: the temperature is for the layers below.
        """
        x = check_inputs(x, self.network.input_shape, self.network.dtype)
        y = self.likelihood.check_targets(y, self.network.output_shape)
        check_dtype("y", y, self.network.dtype)
        if num_rows is None or len(x):
            check_rows(x, y)
        draw = self.network.draw(num_samples, generator)
        scale = self.num_data / (len(x) if num_rows is None else num_rows)
        return self.terms(draw, self.log_likelihood(draw, x, y, weights) * scale, temperature, whole_last)

    def terms(
        self, draw: NetworkDraw, log_likelihood: Float[Tensor, " S"], temperature: float = 1.0, whole_last: bool = False
    ) -> ELBOTerms:
        """Put a log-likelihood of all data beside the KL of a draw."""
        kl, prior_kl = (torch.stack(each) for each in zip(*((d.kl, d.prior_kl) for d in draw.layers), strict=True))
        whole = whole_last or self.network.optimal_last is not None
        return ELBOTerms(log_likelihood.expand(kl.shape[1]), kl, prior_kl, temperature, self.num_data, whole)

    def log_likelihood(
        self, draw: NetworkDraw, x: Float[Tensor, "B *in"], y: Tensor, weights: Float[Tensor, " B"] | None = None
    ) -> Float[Tensor, " S"]:
        """The sum of log p(y | f) over the rows, each with its weight; 0 where there are none."""
        if len(x) == 0:
            return x.new_zeros(1)
        rows = self._log_likelihood(draw, x, y)
        if weights is not None:
            if weights.shape != y.shape[:1]:
                raise ValueError(f"weights must have shape ({len(y)},), one for each row, got {tuple(weights.shape)}")
            rows = rows * weights
        return rows.sum(-1)

    def _log_likelihood(self, draw: NetworkDraw, x: Float[Tensor, "B *in"], y: Tensor) -> Float[Tensor, "S B"]:
        """log p(y | f) of each row, with a last Gaussian process integrated out where that has a closed form."""
        *below, last = draw.function.steps
        if isinstance(last, Process):
            expected = self.likelihood.expected_log_prob(*last.moments(Chain(tuple(below))(x[None])), y)
            if expected is not None:
                return expected
        return self.likelihood.log_prob(draw(x), y)


def evaluate(
    network: Network,
    likelihood: Likelihood,
    data: tuple[Float[Tensor, "N *in"], Tensor] | tuple[Float[Tensor, "N *in"], Tensor, Float[Tensor, " N"]],
    num_samples: int = 100,
    seed: int = 0,
    batch_size: int | None = None,
) -> ELBOTerms:
    """Evaluate the ELBO on all data, without gradients: what to compare posteriors by.

    Arguments:
        network: A fitted network.
        likelihood: Its likelihood.
        data: The training data (x, y), or (x, y, weights).
        num_samples: Number of posterior samples to average over.
        seed: Seed of the samples.
        batch_size: Rows to run at a time, where all together would need too much memory; the default is all. The samples
            of the weights are the same for all batches, the marginal draws of Gaussian process layers are not.

    Example:
        >>> import inducing, torch
        >>> x, y = torch.randn(20, 3), torch.randn(20, 1)
        >>> network = inducing.models.mlp(3, 1, num_inducing=5)
        >>> elbo = inducing.evaluate(network, inducing.Gaussian(), (x, y)).elbo_per_datapoint.item()
    """
    x, y = data[:2]
    weights, num_data = relative_weights(data[2], x) if len(data) == 3 else (None, max(len(x), 1))
    objective = ELBO(network, likelihood, num_data)
    if batch_size is not None:
        batch_size = check_whole("batch_size", batch_size)
    x = check_inputs(x, network.input_shape, network.dtype)
    y = likelihood.check_targets(check_tensor("y", y), network.output_shape)
    check_dtype("y", y, network.dtype)
    check_rows(x, y)
    with torch.no_grad():
        draw = network.draw(num_samples, seeded(seed, "evaluation", network.device))
        tensors = [tensor for tensor in (x, y, weights) if tensor is not None]
        batches = zip(*(tensor.split(batch_size or len(x)) for tensor in tensors), strict=True)
        parts = [objective.log_likelihood(draw, *(each.to(network.device) for each in batch)) for batch in batches]
        return objective.terms(draw, torch.stack(parts).sum(0) * (num_data / len(x)))
