"""The evidence lower bound, with its terms apart.

ELBO = (num_data / B) sum_rows log p(y | f) - sum_layers KL,    averaged over S posterior samples, in nats
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from inducing.checks import check_dtype, check_inputs, check_kind, check_rows
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
        num_data: Number of data points that the likelihood was scaled to.
    """

    log_likelihood: Float[Tensor, " S"]
    kl: Float[Tensor, "L S"]
    prior_kl: Float[Tensor, "L S"]
    temperature: float
    num_data: int

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
        kl = self.kl.sum(0) + self.prior_kl.sum(0)
        return (self.log_likelihood - self.temperature * kl).mean()


class ELBO(nn.Module):
    """The evidence lower bound of a network and a likelihood.

    Arguments:
        network: The Bayesian network.
        likelihood: The distribution of the targets given its outputs.
        num_data: Number of data points in the whole training set; batches are scaled up to it.

    Example:
        >>> import torch, inducing
        >>> x, y = torch.randn(20, 3), torch.randn(20, 1)
        >>> network = inducing.models.mlp(3, 1, inducing_points=x, inducing_targets=y)
        >>> terms = inducing.ELBO(network, inducing.Gaussian(), num_data=20)(x, y, num_samples=4)
        >>> terms.kl.shape
        torch.Size([3, 4])
    """

    def __init__(self, network: Network, likelihood: Likelihood, num_data: int) -> None:
        super().__init__()
        check_kind("network", network, Network, "an inducing.Network")
        check_kind("likelihood", likelihood, Likelihood, "one of ours, e.g. inducing.Gaussian()")
        if num_data < 1:
            raise ValueError(f"num_data must be at least 1, the size of the whole training set, got {num_data}")
        network.tie(likelihood)
        self.network, self.likelihood, self.num_data = network, likelihood, num_data

    def forward(
        self,
        x: Float[Tensor, "B *in"],
        y: Tensor,
        num_samples: int = 1,
        temperature: float = 1.0,
        generator: Generator | None = None,
    ) -> ELBOTerms:
        """Evaluate the terms on a batch.

        Arguments:
            x: Inputs.
            y: Targets.
            num_samples: S, the number of posterior samples.
            temperature: Weight of the KL in the objective: below 1 for cold posteriors and KL warm-up.
            generator: Source of the noise.
        """
        x = check_inputs(x, self.network.input_shape, self.network.dtype)
        y = self.likelihood.check_targets(y, self.network.output_shape)
        check_dtype("y", y, self.network.dtype)
        check_rows(x, y)
        draw = self.network.draw(num_samples, generator)
        log_likelihood = self._log_likelihood(draw, x, y).sum(-1)
        return ELBOTerms(
            (self.num_data / len(x) * log_likelihood).expand(num_samples),
            torch.stack([layer.kl for layer in draw.layers]),
            torch.stack([layer.prior_kl for layer in draw.layers]),
            temperature,
            self.num_data,
        )

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
    data: tuple[Float[Tensor, "N *in"], Tensor],
    num_samples: int = 100,
    seed: int = 0,
) -> ELBOTerms:
    """Evaluate the ELBO on all data, without gradients: what to compare posteriors by.

    Arguments:
        network: A fitted network.
        likelihood: Its likelihood.
        data: The training data.
        num_samples: Number of posterior samples to average over.
        seed: Seed of the samples.

    Example:
        >>> import torch, inducing
        >>> x, y = torch.randn(20, 3), torch.randn(20, 1)
        >>> network = inducing.models.mlp(3, 1, num_inducing=5)
        >>> elbo = inducing.evaluate(network, inducing.Gaussian(), (x, y)).elbo_per_datapoint.item()
    """
    x, y = data
    with torch.no_grad():
        objective = ELBO(network, likelihood, max(len(x), 1))
        return objective(x, y, num_samples, generator=seeded(seed, "evaluation", network.device))
