"""Mixtures of posteriors over the weights of one model, and their ELBO.

    q(w) = sum_k pi_k q_k(w),    ELBO = sum_k pi_k E_{q_k}[log p(y, w) - log sum_j pi_j q_j(w)]

Each component has the same number of draws (stratified sampling), and `Network.log_density` gives its density at the draws
of all others. With the mutual information I of component and weights,

    ELBO = sum_k pi_k ELBO_k + I,    I = sum_k pi_k KL(q_k || q),    0 <= I <= log K

So with the best weights the mixture gains between 0 and log K nats over its best component, for the whole dataset: 0 if all
components are equal, log K if they have equal ELBOs and do not overlap.

The ELBO is concave in pi. Its maximum is the capacity of a noisy channel with costs: the component is sent, the weights w
are received. It is found by the iteration of Blahut and Arimoto, in which the ELBO never decreases:

    log pi_k <- log pi_k + E_{q_k}[log p(y, w) - log q(w)] + constant

References:
    Blahut, Computation of channel capacity and rate-distortion functions (1972).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from inducing.checks import check_kind, check_rows, check_whole
from inducing.inference.batches import relative_weights
from inducing.inference.importance import has_processes
from inducing.inference.objective import ELBO, STANDARD, TIGHT, TrainingData
from inducing.inference.validation import check_data, check_model
from inducing.linalg.noise import seeded
from inducing.nn.draw import Concatenation, FunctionSamples
from inducing.nn.layers import InducingNorm
from inducing.nn.layers.base import Layer, Part
from inducing.nn.layers.plain import Plain
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.threads import threads_for_samples, using_threads

# largest difference in log P of the same weights, relative to its size, that rounding explains
ROUNDING = 1e-6
# nats that better weights could still gain when their optimisation ends, and the most iterations
TOLERANCE, MAX_ITERATIONS = 1e-6, 1000


class MixtureELBO(NamedTuple):
    """The ELBO of a mixture with K components, from S draws of each, in nats for the whole dataset.

    Arguments:
        log_joint: log p(y, w) of the draws of each component. Its second axis is the draw.
        log_densities: log q_j(w) of these draws. The last axis is the component j whose density it is.
        log_weights: log pi.
        num_data: Number of data points, or the sum of their weights.
        bound: Name of the bound: "mixture ELBO", or "tight-conditional mixture ELBO" (`GPLayer`).
    """

    log_joint: Float[Tensor, "K S"]
    log_densities: Float[Tensor, "K S K"]
    log_weights: Float[Tensor, " K"]
    num_data: int | float
    bound: str = f"mixture {STANDARD}"

    @property
    def samples(self) -> Float[Tensor, "K S"]:
        """log p(y, w) - log q(w) of each draw, with the density q of the mixture."""
        return self.log_joint - (self.log_weights + self.log_densities).logsumexp(-1)

    @property
    def value(self) -> Float[Tensor, ""]:
        """The ELBO of the mixture."""
        return self.log_weights.exp() @ self.samples.mean(1)

    @property
    def per_datapoint(self) -> Float[Tensor, ""]:
        """The ELBO of the mixture in nats per data point."""
        return self.value / self.num_data

    @property
    def standard_error(self) -> Float[Tensor, ""]:
        """The standard error of `value`. NaN for one draw of each component."""
        # V = sum_k pi_k^2 V_k / S
        variances, count = self.samples.var(1, correction=0), self.samples.shape[1]
        return (self.log_weights.mul(2).exp() @ variances / (count - 1 if count > 1 else math.nan)).sqrt()

    @property
    def component_elbos(self) -> Float[Tensor, " K"]:
        """The ELBO of each component alone, from the same draws."""
        return (self.log_joint - self.log_densities.diagonal(dim1=0, dim2=2).mT).mean(1)

    @property
    def gain(self) -> Float[Tensor, ""]:
        """The total gain over the best component: between 0 and log K with the best weights, up to sampling noise."""
        return self.value - self.component_elbos.max()

    def __repr__(self) -> str:
        elbos = ", ".join(f"{each:.2f}" for each in self.component_elbos.tolist())
        return (
            f"{self.bound}: {self.value:.2f} ± {self.standard_error:.2f} nats ({self.per_datapoint:.4g} per datapoint), "
            f"ELBOs of the components: {elbos}"
        )


class Mixture(nn.Module):
    """A mixture of fitted networks, which are posteriors over the weights of one model.

    `inducing.predict` takes it like a network, and `inducing.save` saves it. All components must have the same layers and
    priors, since a mixture is a posterior of one model. Their posteriors may be of different kinds. A likelihood whose noise
    is learned is another model after each fit: use one fixed noise for all.

    Arguments:
        networks: The components, e.g. fitted with different seeds.
        log_weights: Logarithms of the weights pi, which are normalised. Default: equal weights.

    Example:
        >>> import inducing, torch
        >>> x, y = torch.randn(20, 3), torch.randn(20, 1)
        >>> likelihood = inducing.Gaussian(0.5, learn_variance=False)
        >>> networks = [inducing.models.mlp(3, 1, [5], num_inducing=5) for _ in range(2)]
        >>> mixture = inducing.Mixture(networks)
        >>> mixture.optimise_weights(likelihood, (x, y))
        >>> bound = mixture.elbo(likelihood, (x, y))
        >>> inducing.predict(mixture, likelihood, x).mean.shape
        torch.Size([20, 1])
    """

    def __init__(self, networks: Sequence[Network], log_weights: Float[Tensor, " K"] | None = None) -> None:
        super().__init__()
        if not isinstance(networks, Sequence | nn.ModuleList) or len(networks) == 0:
            raise TypeError("networks must be a list of one or more inducing.Network")
        for network in networks:
            check_kind("each of the networks", network, Network, "an inducing.Network")
        _check_same_model(list(networks))
        first = networks[0]
        if log_weights is None:
            log_weights = torch.zeros(len(networks), dtype=torch.float64, device=first.device)
        check_kind("log_weights", log_weights, Tensor, "a tensor")
        if log_weights.shape != (len(networks),) or not log_weights.isfinite().all():
            raise ValueError(
                f"log_weights must be {len(networks)} finite numbers, one for each network, got {log_weights.tolist()}. "
                "Leave a network out instead of giving it the weight 0"
            )
        self.networks = nn.ModuleList(networks)
        self.log_weights: Tensor
        self.register_buffer("log_weights", log_weights.detach().double().log_softmax(0))
        self.input_shape, self.output_shape = first.input_shape, first.output_shape

    @property
    def components(self) -> tuple[Network, ...]:
        """The networks."""
        return tuple(network for network in self.networks if isinstance(network, Network))

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that inputs must have."""
        return self.components[0].dtype

    @property
    def device(self) -> torch.device:
        """The device that inputs must be on."""
        return self.components[0].device

    @property
    def weights(self) -> Float[Tensor, " K"]:
        """The weights pi."""
        return self.log_weights.double().exp()

    def elbo(self, likelihood: Likelihood, data: TrainingData, num_samples: int = 100, seed: int = 0) -> MixtureELBO:
        """Evaluate the ELBO of the mixture on all data, without gradients.

        Arguments:
            likelihood: The likelihood, the same for all components.
            data: The training data (x, y), or (x, y, weights).
            num_samples: Number of draws of each component.
            seed: Seed of the draws.
        """
        return self._evaluate(likelihood, data, check_whole("num_samples", num_samples), seed, "mixture")

    def optimise_weights(
        self, likelihood: Likelihood, data: TrainingData, num_samples: int = 100, seed: int = 0
    ) -> None:
        """Set the weights to those with the highest ELBO, for fixed components.

        The ELBO of the draws that chose the weights is too high on average. `elbo` has other draws.

        Arguments:
            likelihood: The likelihood, the same for all components.
            data: The training data (x, y), or (x, y, weights).
            num_samples: Number of draws of each component.
            seed: Seed of the draws.
        """
        found = self._evaluate(likelihood, data, check_whole("num_samples", num_samples), seed, "weights of a mixture")
        self.log_weights = optimal_log_weights(found)

    def sample_functions(
        self,
        num_samples: int,
        seed: int = 0,
        likelihood: Likelihood | None = None,
        *,
        first: int = 0,
        total: int | None = None,
    ) -> FunctionSamples:
        """Sample functions as `Network.sample_functions` does. They can be run, saved and exported in the same way.

        Component k has pi_k ``num_samples`` of the functions, rounded to whole numbers. With equal weights this is an
        ensemble of the networks.

        Arguments:
            num_samples: Number of functions of all components together.
            seed: Seed of the draws.
            likelihood: The likelihood. Only a last layer with an `OptimalInducing` posterior needs it.
            first: Place of the first of these functions among all, which are sorted by component.
            total: Number of all functions, if these are a part of them, as in one of several processes.
        """
        num_samples = check_whole("num_samples", num_samples)
        ends = list(accumulate(divide(num_samples if total is None else total, self.weights.tolist())))
        # how many of the places from `first` on belong to each component
        inside = [min(max(end - first, 0), num_samples) for end in ends]
        counts = [end - start for start, end in pairwise([0, *inside])]
        # the first component has the functions that it has alone
        seeds = [seed, *(seeded(seed, f"component {index}").initial_seed() for index in range(1, len(counts)))]
        parts = [
            network.sample_functions(count, own_seed, likelihood).function
            for network, count, own_seed in zip(self.components, counts, seeds, strict=True)
            if count
        ]
        return FunctionSamples(Concatenation(tuple(parts)), self.input_shape, self.dtype)

    def _evaluate(
        self, likelihood: Likelihood, data: TrainingData, num_samples: int, seed: int, purpose: str
    ) -> MixtureELBO:
        check_model(self.components[0], likelihood)
        weights, num_data = relative_weights(data[2], data[0]) if len(data) == 3 else (None, max(len(data[0]), 1))
        objectives = [ELBO(network, likelihood, num_data) for network in self.components]
        x, y = check_data(self.components[0], likelihood, data[0], data[1])
        check_rows(x, y)
        batch = [tensor.to(self.device) for tensor in (x, y, weights) if tensor is not None]

        def stratum(index: int, number: int) -> tuple[Tensor, Tensor]:
            """Return log p(y, w) and log q_j(w) of draws from one component."""
            network, generator = self.components[index], seeded(seed, f"{purpose}, component {index}", self.device)
            # functions of Gaussian processes need not be consistent: the values at the inducing inputs have the density
            draw = network.draw(number, generator, not has_processes(network), likelihood=likelihood)
            scale = num_data / len(x)
            log_likelihood = objectives[index].log_likelihood(draw, *batch).double().expand(number) * scale
            densities = [each.log_density(draw, likelihood) for each in self.components]
            priors = torch.stack([density.prior.sum(0) for density in densities])
            _check_same_prior(priors, index)
            return log_likelihood + priors[index], torch.stack([density.posterior.sum(0) for density in densities], 1)

        with torch.no_grad(), using_threads(threads_for_samples(num_samples, lambda: stratum(0, 1))):
            strata = [stratum(index, num_samples) for index in range(len(objectives))]
        log_joint, log_densities = (torch.stack(each) for each in zip(*strata, strict=True))
        kind = TIGHT if any(network.has_tight_conditional for network in self.components) else STANDARD
        name = kind.replace(STANDARD, f"mixture {STANDARD}")
        return MixtureELBO(log_joint, log_densities, self.log_weights.double(), num_data, name)


def optimal_log_weights(elbo: MixtureELBO) -> Float[Tensor, " K"]:
    """Return the log-weights with the highest ELBO for given draws, by the iteration of Blahut and Arimoto."""
    for _ in range(MAX_ITERATIONS):
        # E_{q_k}[log p(y, w) - log q(w)] is the same for all components with a positive weight at the optimum
        values = elbo.samples.mean(1)
        # the largest of them is an upper bound of the highest ELBO
        if values.max() - elbo.value < TOLERANCE:
            break
        elbo = elbo._replace(log_weights=(elbo.log_weights + values).log_softmax(0))
    return elbo.log_weights


def divide(number: int, shares: Sequence[float]) -> list[int]:
    """Divide a number into whole parts near the given shares: rounded down, then one more for the largest remainders.

    Example:
        >>> from inducing.inference.mixtures import divide
        >>> divide(10, [0.5, 0.25, 0.25])
        [5, 3, 2]
    """
    counts = [math.floor(number * share) for share in shares]
    # rounding: 0.29 * 100 is below 29
    remainders = [round(count - number * share, 9) for count, share in zip(counts, shares, strict=True)]
    for index in sorted(range(len(counts)), key=remainders.__getitem__)[: number - sum(counts)]:
        counts[index] += 1
    return counts


def _check_same_model(networks: list[Network]) -> None:
    """Raise an error if the networks are not posteriors over the weights of one model."""
    first = networks[0]
    for index, network in enumerate(networks):
        for name, part in network.layers.walk():
            if isinstance(part, InducingNorm):
                raise ValueError(
                    f"networks[{index}]: {name} {part} makes the inducing points parameters of the model, so components "
                    "with different inducing points are different models. Leave it out"
                )
        for what in ("input_shape", "output_shape", "dtype", "device"):
            found, wanted = getattr(network, what), getattr(first, what)
            if found != wanted:
                raise ValueError(f"networks[{index}] has the {what} {found}, but networks[0] has {wanted}")
        found, wanted = _model(network), _model(first)
        if found != wanted:
            raise ValueError(
                f"networks[{index}] has the layers {', '.join(found)}, but networks[0] has {', '.join(wanted)}. A mixture "
                "is a posterior of one model: use the same layers and priors, with any posteriors"
            )


def _model(network: Network) -> list[str]:
    """Describe the layers and priors of a network, without its posteriors."""
    return [f"{name} {_describe(part)}" for name, part in network.layers.walk()]


def _describe(part: Part) -> str:
    if isinstance(part, Plain):
        return repr(part.module)
    if isinstance(part, Layer):
        # the posterior, and the conditional of a Gaussian process, are not a part of the model
        return repr(part).replace(f", {part.posterior_spec}", "").replace(", conditional='tight'", "")
    return repr(part)


def _check_same_prior(log_priors: Float[Tensor, "K S"], index: int) -> None:
    """Raise an error if the same weights have different densities under the priors of the components."""
    differences = (log_priors - log_priors[index]).abs().amax(1)
    largest, other = float(differences.max()), int(differences.argmax())
    if largest > ROUNDING * max(1.0, float(log_priors[index].abs().max())):
        raise ValueError(
            f"the priors of networks[{index}] and networks[{other}] differ: log P of the same variables differs by up to "
            f"{largest:.3g} nats, e.g. because kernels were learned. A mixture is a posterior of one model: fix what is "
            "learned in the priors, or use equal values"
        )
