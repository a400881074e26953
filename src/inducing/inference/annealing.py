"""The log evidence of small networks between two bounds, by annealed importance sampling (AIS).

Chains move from the prior to the posterior through the distributions p(w) p(y | w)^b, 0 = b_0 < b_1 < ... < b_T = 1. At each
temperature a step of Hamiltonian Monte Carlo leaves the distribution invariant. With w_t the weights of a chain after the
step at b_t, and w_0 a draw from the prior,

    log v = sum_t (b_t - b_{t-1}) log p(y | w_{t-1}),    E[v] = p(y)

for any number of temperatures and any step sizes (Neal, 2001). So the logarithm of the mean of v is a lower bound of
log p(y) in expectation. The same chain backwards, from an exact draw of the posterior to the prior, has E[1 / v] = 1 / p(y).
So minus the logarithm of the mean of 1 / v is an upper bound (Grosse et al., 2015). For data that were simulated with
weights from the prior, these weights are an exact draw of the posterior.

The variables are whitened weights, and whitened values of Gaussian processes at the rows of the data, both with the prior
N(0, I) (`inducing.inference.hmc.whitened`).

Step sizes are chosen by a pilot run with other chains. Adaptation to the chains themselves would make the weights biased.

References:
    Neal, Annealed importance sampling (2001).
    Grosse, Ghahramani & Adams, Sandwiching the marginal likelihood using bidirectional Monte Carlo (2015).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from inducing.checks import check_seed, check_whole, refuse_inference_mode
from inducing.inference.hmc.hamiltonian import Point, Target, transition
from inducing.inference.hmc.whitened import WhitenedPosterior, WhitenedValues, start_at_prior
from inducing.inference.importance import ImportanceWeightedBound
from inducing.inference.progress import Update, progress_bar
from inducing.inference.validation import check_model
from inducing.linalg.noise import seeded
from inducing.nn.draw import NetworkDraw
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network

# b_t = (t / T)^4: most temperatures are near the prior, where log p(y | w) varies most
POWER = 4
# the pilot run visits every fourth temperature
PILOT_STRIDE = 4
# step size at the prior, whose scale is 1, and its adaptation in the pilot run
INITIAL_STEP_SIZE, ADAPTATION_RATE, TARGET_ACCEPTANCE = 0.3, 0.2, 0.8


class Evidence(NamedTuple):
    """Bounds of the log evidence by annealed importance sampling, in nats for the whole dataset.

    They are bounds in expectation. One estimate may be on the other side of the evidence by its standard error.

    Arguments:
        log_weights: log v of each chain from the prior to the posterior.
        reverse_log_weights: log v of each chain from the posterior to the prior, or None without an exact posterior sample.
        acceptance: Mean acceptance probability of the transitions.
        num_data: Number of data points.
    """

    log_weights: Float[Tensor, " C"]
    reverse_log_weights: Float[Tensor, " C"] | None
    acceptance: float
    num_data: int

    @property
    def lower(self) -> Float[Tensor, ""]:
        """The lower bound: the logarithm of the mean of v."""
        return self._forward.value

    @property
    def standard_error(self) -> Float[Tensor, ""]:
        """The standard error of `lower`. It is too small if the effective sample size is below about 10."""
        return self._forward.standard_error

    @property
    def effective_sample_size(self) -> Float[Tensor, ""]:
        """The number of chains that the weights v are worth, between 1 and C."""
        return self._forward.effective_sample_size

    @property
    def upper(self) -> Float[Tensor, ""] | None:
        """The upper bound: minus the logarithm of the mean of 1 / v."""
        return None if self._backward is None else -self._backward.value

    @property
    def upper_standard_error(self) -> Float[Tensor, ""] | None:
        """The standard error of `upper` for one posterior sample, from which all chains start."""
        return None if self._backward is None else self._backward.standard_error

    @property
    def _forward(self) -> ImportanceWeightedBound:
        return ImportanceWeightedBound(self.log_weights, self.num_data)

    @property
    def _backward(self) -> ImportanceWeightedBound | None:
        reverse = self.reverse_log_weights
        return None if reverse is None else ImportanceWeightedBound(-reverse, self.num_data)

    def __repr__(self) -> str:
        upper = "" if self.upper is None else f", upper {self.upper:.2f} ± {self.upper_standard_error:.2f}"
        return (
            f"AIS bounds of the log evidence: lower {self.lower:.2f} ± {self.standard_error:.2f}{upper} nats, effective "
            f"sample size {self.effective_sample_size:.1f} of {len(self.log_weights)}, acceptance {self.acceptance:.2f}"
        )


class Annealing(NamedTuple):
    """Temperatures from the prior to the posterior, with the step sizes of their transitions.

    Arguments:
        target: The posterior, whose prior is N(0, I).
        temperatures: b_0 = 0, ..., b_T = 1.
        step_sizes: Step sizes at b_0, ..., b_T. No transition takes place at the first and the last.
        num_leapfrog: Number of leapfrog steps of a transition.
    """

    target: Target
    temperatures: list[float]
    step_sizes: list[float]
    num_leapfrog: int

    def reverse(self) -> Annealing:
        """Return the temperatures from the posterior to the prior."""
        return self._replace(temperatures=self.temperatures[::-1], step_sizes=self.step_sizes[::-1])

    def log_weights(
        self, position: Float[Tensor, "C D"], generator: Generator, update_bar: Update = lambda done, text: None
    ) -> tuple[Float[Tensor, " C"], float]:
        """Return log v of the chains that start at these positions, and their mean acceptance probability."""
        total, acceptances = torch.zeros_like(position[:, 0]), []
        temperatures, last = self.temperatures, len(self.temperatures) - 1
        for index in range(1, last + 1):
            point = self.target(position)
            # |b_t - b_{t-1}| log p(y | w)
            total = total + abs(temperatures[index] - temperatures[index - 1]) * log_likelihood(point)
            if index < last:
                settings = temperatures[index], self.step_sizes[index], self.num_leapfrog
                position, acceptance = move(self.target, point, *settings, generator)
                acceptances.append(acceptance)
            update_bar(index, "")
        return total, sum(acceptances) / max(len(acceptances), 1)


def evidence(
    network: Network,
    likelihood: Likelihood,
    data: tuple[Float[Tensor, "N *in"], Tensor],
    *,
    posterior_sample: NetworkDraw | Sequence[Tensor] | None = None,
    num_chains: int = 32,
    num_temperatures: int = 1000,
    num_leapfrog: int = 5,
    seed: int = 0,
    progress: bool = True,
) -> Evidence:
    """Estimate the log evidence log p(y) of a small network by annealed importance sampling.

    The network defines the layers and their priors. Its variational posteriors are ignored, and it is not changed. Every
    step uses all data, in float64. More temperatures make both bounds tighter.

    Arguments:
        network: A network whose Bayesian layers are `Linear` with `NealPrior` or `StandardPrior`, or `GPLayer`. The kernels
            of Gaussian processes are fixed, and their variables are the values at the rows of x, at most 500.
        likelihood: The distribution of the targets given the outputs. Its parameters are fixed.
        data: A pair (x, y) of tensors.
        posterior_sample: Weights that generated y, for an upper bound: the draw of a network with ``posterior="prior"`` and
            one sample, or its weights, one tensor (1, fan-in, outputs) with the bias last for each layer. The upper bound
            holds only for data that were simulated in this way. With Gaussian processes, a draw of a network with
            ``inducing_points=x``, and y simulated from ``draw.inducing``.
        num_chains: Number C of chains in each direction, run in parallel.
        num_temperatures: Number T of steps between the prior and the posterior.
        num_leapfrog: Number of leapfrog steps at each temperature.
        seed: Random seed, an integer.
        progress: Whether to show a progress bar. It needs the package rich.

    Example:
        >>> import inducing, torch
        >>> x = torch.randn(20, 3)
        >>> network = inducing.models.mlp(3, 1, [5], posterior="prior")
        >>> likelihood = inducing.Gaussian(0.5)
        >>> draw = network.draw(1)
        >>> y = likelihood.sample(draw(x)).detach()[0]
        >>> settings = {"num_temperatures": 100, "progress": False}
        >>> found = inducing.evidence(network, likelihood, (x, y), posterior_sample=draw, **settings)
        >>> found.log_weights.shape
        torch.Size([32])
    """
    refuse_inference_mode("evidence")
    check_model(network, likelihood)
    counts = {"num_chains": num_chains, "num_temperatures": num_temperatures, "num_leapfrog": num_leapfrog}
    for name, value in counts.items():
        check_whole(name, value)
    if len(data) != 2:
        raise ValueError(f"data must be a pair (x, y), got {len(data)} tensors. Weights of rows are not supported")
    check_seed(seed)
    target = WhitenedPosterior(network, likelihood, data)
    posterior_position = None if posterior_sample is None else _position(target, posterior_sample)
    if posterior_position is not None and len(posterior_position) != 1:
        raise ValueError(f"posterior_sample must have one sample, the weights of y, got {len(posterior_position)}")
    temperatures = [(index / num_temperatures) ** POWER for index in range(num_temperatures + 1)]
    pilot, forward, backward = (seeded(seed, f"annealing, {name}") for name in ("pilot", "forward", "backward"))
    step_sizes = choose_step_sizes(target, start_at_prior(target, num_chains, pilot), temperatures, num_leapfrog, pilot)
    annealing = Annealing(target, temperatures, step_sizes, num_leapfrog)
    with progress_bar("evidence", num_temperatures, show=progress) as update_bar:
        start = start_at_prior(target, num_chains, forward).position
        log_weights, acceptance = annealing.log_weights(start, forward, update_bar)
    reverse = None
    if posterior_position is not None:
        start = posterior_position.expand(num_chains, -1)
        with progress_bar("evidence, backwards", num_temperatures, show=progress) as update_bar:
            reverse, acceptance_backwards = annealing.reverse().log_weights(start, backward, update_bar)
        acceptance = (acceptance + acceptance_backwards) / 2
    return Evidence(log_weights, reverse, acceptance, len(target.x))


def move(
    target: Target, point: Point, temperature: float, step_size: float, num_leapfrog: int, generator: Generator
) -> tuple[Float[Tensor, "C D"], float]:
    """Return the positions after one transition at a temperature, and the mean acceptance probability."""

    def tempered_target(position: Tensor) -> Point:
        return tempered(target(position), temperature)

    start = tempered(point, temperature)
    moved, acceptance, _ = transition(tempered_target, start, step_size, num_leapfrog, generator)
    return moved.position, float(acceptance.mean())


def tempered(point: Point, temperature: float) -> Point:
    """Return the potential energy of p(w) p(y | w)^b and its gradient, given those for b = 1."""
    # U_b = (1 - b) |z|^2 / 2 + b U
    prior = point.position.square().sum(-1) / 2
    return Point(
        point.position,
        torch.lerp(prior, point.potential, temperature),
        torch.lerp(point.position, point.gradient, temperature),
    )


def log_likelihood(point: Point) -> Float[Tensor, " C"]:
    """Return log p(y | w) at a point of the posterior."""
    # U = |z|^2 / 2 - log p(y | w)
    return point.position.square().sum(-1) / 2 - point.potential


def choose_step_sizes(
    target: Target, start: Point, temperatures: list[float], num_leapfrog: int, generator: Generator
) -> list[float]:
    """Return a step size for each temperature, by a pilot run from the prior that visits every fourth of them."""
    point, step_size, found = start, INITIAL_STEP_SIZE, [INITIAL_STEP_SIZE]
    for temperature in temperatures[1::PILOT_STRIDE]:
        position, acceptance = move(target, point, temperature, step_size, num_leapfrog, generator)
        point = target(position)
        step_size *= math.exp(ADAPTATION_RATE * (acceptance - TARGET_ACCEPTANCE))
        found += [step_size] * PILOT_STRIDE
    return found[: len(temperatures)]


def _position(target: WhitenedPosterior, sample: NetworkDraw | Sequence[Tensor]) -> Float[Tensor, "S D"]:
    """Return the whitened variables of a posterior sample. Raise an error if it has process values at other rows."""
    if not isinstance(sample, NetworkDraw):
        return target.position(list(sample))
    position = target.position([layer.variables for layer in sample.layers if layer.variables is not None])
    if any(isinstance(layer, WhitenedValues) for layer in target.layers):
        with torch.no_grad():
            outputs = target.outputs(position)
        if sample.inducing is None or not torch.allclose(outputs, sample.inducing.double(), rtol=1e-3, atol=1e-3):
            raise ValueError(
                "posterior_sample has the values of Gaussian processes at other rows than x. Draw it from a network with "
                'posterior="prior" and inducing_points=x, and simulate y from draw.inducing'
            )
    return position
