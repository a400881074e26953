"""The importance-weighted bound of the log evidence (Burda et al., 2016), and diagnostics of its weights.

    log w = log p(y | f) + log P(w) - log Q(w),    bound = log((w_1 + ... + w_K) / K)

for K draws of the whole network from the posterior Q. Its expectation is at least the ELBO (K = 1), grows with K, is at most
the log evidence, and tends to it. The densities of the weights are those of the sample (`Network.log_density`), never an
expected KL, and the log-likelihood is that of all rows.

Given its values u at the inducing inputs, a Gaussian process is drawn at all rows jointly. Independent marginals are enough
for the ELBO, but not here: the mean of a product of rows depends on their correlation. A last Gaussian process with Gaussian
noise is integrated out, log p(y | u) = log N(y; mean, D + noise). This is the mean of p(y | f) over f given u. So the bound
is at least as high, and its weights vary less.

References:
    Burda, Grosse & Salakhutdinov, Importance weighted autoencoders (2016).
    Vehtari, Simpson, Gelman, Yao & Gabry, Pareto smoothed importance sampling (2024).
    Zhang & Stephens, A new and efficient estimation method for the generalized Pareto distribution (2009).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from inducing.autocasting import log_prob_of
from inducing.nn.draw import Chain, NetworkDraw
from inducing.nn.gp.functions import JointProcess
from inducing.nn.layers import GPLayer
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network

# most rows of a Gaussian process to draw jointly: the time grows with the cube, and 2,000 rows need 32 MB for each matrix
MAX_JOINT_ROWS = 2000
# draws at a time, and elements of the covariance matrices of one layer: 128 MiB
MAX_DRAWS, MAX_NUMBERS = 100, 2**24
# fewest weights of a tail that the generalised Pareto distribution is fitted to
MIN_TAIL = 5


class ImportanceWeightedBound(NamedTuple):
    """The importance-weighted bound from K draws of a network, in nats for the whole dataset.

    It is a lower bound of the log evidence in expectation. One estimate may be above it by its standard error.

    Arguments:
        log_weights: log p(y | f) + log P - log Q of each draw.
        num_data: Number of data points, or the sum of their weights.
    """

    log_weights: Float[Tensor, " K"]
    num_data: int | float

    @property
    def value(self) -> Float[Tensor, ""]:
        """The bound: the logarithm of the mean weight."""
        return self.log_weights.logsumexp(0) - math.log(len(self.log_weights))

    @property
    def per_datapoint(self) -> Float[Tensor, ""]:
        """The bound in nats per data point."""
        return self.value / self.num_data

    @property
    def standard_error(self) -> Float[Tensor, ""]:
        """The standard error of `value`: that of the mean weight, divided by the mean weight. NaN for one draw.

        It is reliable only if `pareto_k` is below 0.7.
        """
        count = len(self.log_weights)
        # V[mean] / mean^2 = (K sum_k s_k^2 - 1) / (K - 1), with shares s that add up to 1
        return ((count / self.effective_sample_size - 1).clamp_min(0) / (count - 1 if count > 1 else math.nan)).sqrt()

    @property
    def effective_sample_size(self) -> Float[Tensor, ""]:
        """The number of draws that the weights are worth: 1 / sum of squared shares, between 1 and K."""
        return 1 / self.log_weights.softmax(0).square().sum()

    @property
    def pareto_k(self) -> float:
        """The shape of the tail of the weights, see `pareto_shape`.

        Below 0.5 their variance is finite. Above 0.7 a few draws dominate: the value is still a lower bound in expectation,
        but far below the evidence, and its standard error is too small. NaN for fewer than 21 draws.
        """
        return pareto_shape(self.log_weights)

    def __repr__(self) -> str:
        return (
            f"importance-weighted bound with K = {len(self.log_weights)}: {self.value:.2f} ± {self.standard_error:.2f} nats "
            f"({self.per_datapoint:.4g} per datapoint), effective sample size {self.effective_sample_size:.1f}, "
            f"Pareto k {self.pareto_k:.2f}"
        )


def importance_log_weights(
    network: Network,
    likelihood: Likelihood,
    batches: list[tuple[Tensor, ...]],
    num_samples: int,
    generator: Generator,
) -> Float[Tensor, " K"]:
    """Return log p(y | f) + log P - log Q of draws of the whole network.

    Arguments:
        network: The network.
        likelihood: The likelihood.
        batches: All rows: x, y, and the weights of the log-likelihood, if there are any. A network with Gaussian processes
            needs one batch.
        num_samples: K.
        generator: Source of the noise.
    """
    most, rows = MAX_DRAWS, len(batches[0][0])
    if has_processes(network):
        if len(batches) > 1 or rows > MAX_JOINT_ROWS:
            raise ValueError(
                "the importance-weighted bound draws the values of Gaussian processes at all rows jointly, with dense "
                f"covariance matrices, which is possible for up to {MAX_JOINT_ROWS} rows in one batch, got "
                f"{sum(len(batch[0]) for batch in batches)} rows in {len(batches)} batches. Use the ELBO, or fewer rows"
            )
        most = min(most, max(1, MAX_NUMBERS // rows**2))
    found = []
    for start in range(0, num_samples, most):
        draw = network.draw(min(most, num_samples - start), generator, likelihood=likelihood, joint=True)
        terms = [_log_likelihood(draw, likelihood, *batch) for batch in batches]
        found.append(torch.stack(terms).sum(0) - network.log_density(draw, likelihood).kl)
    return torch.cat(found)


def has_processes(network: Network) -> bool:
    """Return whether a layer of the network is a Gaussian process."""
    return any(isinstance(layer, GPLayer) for _, layer in network.layers.bayesian_layers())


def _log_likelihood(
    draw: NetworkDraw, likelihood: Likelihood, x: Tensor, y: Tensor, weights: Tensor | None = None
) -> Float[Tensor, " S"]:
    """Return log p(y | f) of all rows, or log p(y | u) if a last Gaussian process can be integrated out."""
    *below, last = draw.function.steps
    if isinstance(last, JointProcess) and weights is None:
        integrated = likelihood.joint_log_prob(*last.moments(Chain(tuple(below))(x[None])), y)
        if integrated is not None:
            return integrated
    rows = log_prob_of(likelihood, draw(x), y, x.dtype).double()
    return (rows if weights is None else rows * weights).sum(-1)


def pareto_shape(log_weights: Float[Tensor, " K"]) -> float:
    """Return the shape k of a generalised Pareto distribution fitted to the largest min(K / 5, 3 sqrt(K)) weights.

    The fit is that of Zhang & Stephens (2009), with the weak prior of Vehtari et al. (2024) that k is near 0.5. It is NaN if
    the tail has fewer than 5 weights, and 0 if all weights of the tail are equal.

    Example:
        >>> import torch
        >>> from inducing.inference.importance import pareto_shape
        >>> heavy = 0.9 * torch.distributions.Exponential(1.0).sample((10_000,))
        >>> 0.6 < pareto_shape(heavy) < 1.2
        True
    """
    count = len(log_weights)
    size = math.ceil(min(count / 5, 3 * math.sqrt(count)))
    if size < MIN_TAIL:
        return math.nan
    weights = (log_weights.double() - log_weights.max()).exp().sort().values
    excess = weights[-size:] - weights[-size - 1]
    if excess[-1] == 0:
        return 0.0
    # weights that equal the cutoff have no excess
    shape = _fit_generalised_pareto(excess.clamp_min(torch.finfo(weights.dtype).tiny))
    return (size * shape + 10 * 0.5) / (size + 10)


def _fit_generalised_pareto(excess: Float[Tensor, " n"]) -> float:
    """Return the shape k of a generalised Pareto distribution from its sorted draws (Zhang & Stephens, 2009).

    With b = -k / scale, the likelihood that is maximised over k is n (log(-b / k) - k - 1), k = mean log(1 - b x). The
    posterior mean of b under their prior is computed on a grid.
    """
    count = len(excess)
    grid = torch.arange(1, 31 + math.isqrt(count), dtype=excess.dtype, device=excess.device)
    quartile = excess[math.floor(count / 4 + 0.5) - 1]
    b = (1 - (len(grid) / (grid - 0.5)).sqrt()) / (3 * quartile) + 1 / excess[-1]
    k = torch.log1p(-b[:, None] * excess).mean(1)
    log_likelihood = count * ((-b / k).log() - k - 1)
    mean = (b * log_likelihood.softmax(0)).sum()
    return float(torch.log1p(-mean * excess).mean())
