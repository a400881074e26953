"""Hamiltonian Monte Carlo: draws from the exact posterior over the weights, for networks small enough to wait for it.

All chains run at once, along the sample axis. They move in the whitened weights z, with w = z / sqrt(P) for a prior
w ~ N(0, 1/P), so that the prior is N(0, I) in every direction and one step size serves all layers:

    U(z) = |z|^2 / 2 - sum_rows log p(y | f)

A diagonal mass matrix would have little left to do: on the toy problem the standard deviations of z in a chain lie
between 0.4 and 1.2, and the narrow directions are not those of single weights.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from torch import Tensor

from inducing.checks import check_dtype, check_inputs, check_kind, check_rows, check_seed, refuse_inference_mode
from inducing.inference.diagnostics import FEWEST_DRAWS, Diagnostics, diagnose
from inducing.inference.hamiltonian import Point, transition
from inducing.inference.state import DivergenceError
from inducing.inference.step_size import DualAveraging, first_step_size
from inducing.linalg.noise import seeded, standard_normal
from inducing.nn.draw import FunctionSamples
from inducing.nn.layers import Affine, Linear
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network
from inducing.nn.priors import NealPrior, StandardPrior
from inducing.nn.structure import bayesian_layers

# in whitened weights, whose prior has unit scale; chains with a smaller step do not move
SMALLEST_STEP = 1e-10
# chains whose outputs at the training inputs have a larger R-hat have not converged; 1.01 would blame every short run
LARGEST_R_HAT = 1.1
# rows of the training inputs where the chains are compared
COMPARED_ROWS = 100
_CAUSES = (
    "Likely causes: data that are not standardised, a noise variance far too small for them, or too short a warm-up. "
    "Remedies: standardise x and y, look at the likelihood's parameters, give num_warmup more iterations."
)


class ConvergenceWarning(UserWarning):
    """The chains of `hmc` do not agree: their draws are not yet draws from the posterior."""


@dataclass(frozen=True, eq=False)
class HMCSamples:
    """Draws of Hamiltonian Monte Carlo. `inducing.predict` takes them in the place of a network.

    Arguments:
        functions: The drawn functions, (B, ...) -> (S, B, ...), chain after chain.
        num_chains: C, the number of chains; S is C times the draws kept from each.
        acceptance: Mean acceptance probability of each chain after warm-up.
        divergences: How many of its trajectories lost their energy; draws near there may be too few.
        step_size: Leapfrog step size, in whitened weights, that warm-up found.
    """

    functions: FunctionSamples
    num_chains: int
    acceptance: Float[Tensor, " C"]
    divergences: Int[Tensor, " C"]
    step_size: float

    def diagnostics(self, x: Float[Tensor, "B *in"]) -> Diagnostics:
        """R-hat and effective sample size of each output at some inputs: in function space, where chains can agree."""
        with torch.no_grad():
            outputs = self.functions(x)
        return diagnose(outputs.unflatten(0, (self.num_chains, -1)))


def hmc(
    network: Network,
    likelihood: Likelihood,
    data: tuple[Float[Tensor, "N *in"], Tensor],
    *,
    num_chains: int = 4,
    num_warmup: int = 500,
    num_samples: int = 500,
    num_leapfrog: int = 20,
    thin: int = 1,
    target_acceptance: float = 0.8,
    seed: int = 0,
    progress: bool = True,
    description: str = "hmc",
) -> HMCSamples:
    """Sample the weights of a network from their posterior by Hamiltonian Monte Carlo.

    The network says what the layers and their priors are; its variational posteriors are not looked at, and nothing in it
    changes. All data are used for every step, in float64. Chains begin at draws from the prior. The same seed gives the
    same draws on the same machine with as many threads.

    If the chains disagree, a `ConvergenceWarning` says so: R-hat of the outputs is above 1.1 at one of up to 100 training
    inputs. That takes at least 8 draws from each chain, and at least two chains.

    Arguments:
        network: A network whose Bayesian layers are `Linear` with `NealPrior` or `StandardPrior`.
        likelihood: The distribution of the targets given its outputs; its parameters are held fixed.
        data: A pair (x, y) of tensors.
        num_chains: Chains, all run at once.
        num_warmup: Iterations to find the posterior and the step size; they are thrown away.
        num_samples: Iterations after that.
        num_leapfrog: Leapfrog steps of an iteration.
        thin: Keep every ``thin``-th of the ``num_samples``.
        target_acceptance: Acceptance rate that the step size is adapted to during warm-up.
        seed: Seed of everything random, a whole number.
        progress: Whether to show a progress bar.
        description: What the bar calls this run.

    References:
        Neal, MCMC using Hamiltonian dynamics (2011).

    Example:
        >>> import inducing, torch
        >>> x, y = torch.randn(20, 3), torch.randn(20, 1)
        >>> network = inducing.models.mlp(3, 1, [5], posterior="prior")
        >>> likelihood = inducing.Gaussian(1.0)
        >>> samples = inducing.hmc(network, likelihood, (x, y), num_warmup=100, num_samples=100, progress=False)
        >>> inducing.predict(samples, likelihood, x).outputs.shape, samples.diagnostics(x).r_hat.shape
        (torch.Size([400, 20, 1]), torch.Size([20, 1]))
    """
    refuse_inference_mode("hmc")
    check_kind("network", network, Network, "an inducing.Network")
    check_kind("likelihood", likelihood, Likelihood, "one of ours, e.g. inducing.Gaussian()")
    _check_counts(num_chains, num_warmup, num_samples, num_leapfrog, thin, target_acceptance)
    target = WeightPosterior(network, likelihood, data)
    generator = seeded(check_seed(seed), "hmc")
    point = target(standard_normal((num_chains, target.size), target.root_variance, generator))
    if not torch.isfinite(point.potential).all():
        raise DivergenceError(
            "the log-likelihood of the data is not finite at draws from the prior, where the chains begin; standardise "
            'the data, or use prior="neal", which keeps outputs near unit scale'
        )
    adaptation = DualAveraging(first_step_size(target, point, generator), target_acceptance)
    kept, acceptances, divergences = [], [], []
    with _progress_bar(progress) as bar:
        task = bar.add_task(description, total=num_warmup + num_samples, acceptance="", step="")
        for _ in range(num_warmup):
            point, acceptance, _ = transition(target, point, adaptation.step_size, num_leapfrog, generator)
            adaptation.update(float(acceptance.mean()))
            _show(bar, task, acceptance, adaptation.step_size)
        step_size = adaptation.average
        _check_step_size(step_size)
        for iteration in range(1, num_samples + 1):
            point, acceptance, divergent = transition(target, point, step_size, num_leapfrog, generator)
            acceptances.append(acceptance)
            divergences.append(divergent)
            if iteration % thin == 0:
                kept.append(point.position)
            _show(bar, task, acceptance, step_size)
    rates, lost = torch.stack(acceptances).mean(0), torch.stack(divergences).sum(0)
    _explain_divergences(rates, lost, num_samples, step_size)
    # (draws, C, D) -> (C draws, D)
    weights = target.weights(torch.stack(kept, 1).flatten(0, 1))
    samples = HMCSamples(
        FunctionSamples(
            network.assemble([function.map(lambda tensor: tensor.to(network.dtype)) for function in weights]),
            network.input_shape,
            network.dtype,
        ),
        num_chains,
        rates,
        lost,
        step_size,
    )
    if num_chains > 1 and len(kept) >= FEWEST_DRAWS:
        _compare_chains(samples, target.x.to(network.dtype))
    return samples


class WeightPosterior:
    """The posterior over the whitened weights of a network: its potential and gradient at the positions of all chains.

    It works in float64 on copies, so that nothing is changed.

    Arguments:
        network: The network.
        likelihood: The likelihood, with its parameters as they are now.
        data: The pair (x, y).
    """

    def __init__(self, network: Network, likelihood: Likelihood, data: tuple[Tensor, Tensor]) -> None:
        layers = [_check_layer(name, layer) for name, layer in bayesian_layers(network.layers)]
        x, y = data
        x = check_inputs(x, network.input_shape, network.dtype).to(network.device)
        y = likelihood.check_targets(y, network.output_shape).to(network.device)
        check_dtype("y", y, network.dtype)
        check_rows(x, y)
        self.network = copy.deepcopy(network).double()
        self.likelihood = copy.deepcopy(likelihood).double().requires_grad_(False)
        self.x, self.y = x.double(), y.double() if y.is_floating_point() else y
        self.biases = [layer.bias for layer in layers]
        self.shapes = [(layer.in_features + layer.bias, layer.out_features) for layer in layers]
        self.sizes = [fan_in * outputs for fan_in, outputs in self.shapes]
        self.size = sum(self.sizes)
        # w = z / sqrt(P), one number for each weight
        variances = [1 / layer.prior(1).precision.diagonal().double() for layer in layers]
        self.root_variance = torch.cat(
            [variance.sqrt().mT.expand(shape).flatten() for variance, shape in zip(variances, self.shapes, strict=True)]
        )

    def weights(self, position: Float[Tensor, "S D"]) -> list[Affine]:
        """The layers at whitened weights."""
        parts = (position * self.root_variance).split(self.sizes, -1)
        return [
            Affine(part.unflatten(-1, shape), bias)
            for part, shape, bias in zip(parts, self.shapes, self.biases, strict=True)
        ]

    def log_likelihood(self, position: Float[Tensor, "S D"]) -> Float[Tensor, " S"]:
        """log p(y | z), all rows together."""
        function = self.network.assemble(self.weights(position))
        return self.likelihood.log_prob(function(self.x[None]), self.y).sum(-1)

    def __call__(self, position: Float[Tensor, "S D"]) -> Point:
        position = position.detach().requires_grad_()
        with torch.enable_grad():
            log_likelihood = self.log_likelihood(position)
            (gradient,) = torch.autograd.grad(log_likelihood.sum(), position)
        position = position.detach()
        # the prior is N(0, I): U = |z|^2 / 2 - log p(y | z)
        potential = position.square().sum(-1) / 2 - log_likelihood.detach()
        return Point(position, potential, position - gradient)


def _check_layer(name: str, layer: object) -> Linear:
    if not isinstance(layer, Linear):
        raise TypeError(
            f"{name} {layer} is not a Linear layer: hmc samples the weights of fully connected layers only. Use fit, or a "
            "network of inducing.Linear and plain modules"
        )
    if not isinstance(layer.prior_spec, NealPrior | StandardPrior):
        raise TypeError(
            f"{name} has a {type(layer.prior_spec).__name__}, which is learned: hmc needs priors that are fixed. Use "
            'prior="neal" or prior="standard"'
        )
    return layer


def _check_counts(chains: int, warmup: int, samples: int, leapfrog: int, thin: int, acceptance: float) -> None:
    named = {"num_chains": chains, "num_samples": samples, "num_leapfrog": leapfrog, "thin": thin}
    for name, value in named.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if warmup < 1:
        raise ValueError(f"num_warmup must be at least 1, got {warmup}: the step size is found there")
    if samples < thin:
        raise ValueError(f"of num_samples={samples} none is left with thin={thin}; keep thin <= num_samples")
    if not 0 < acceptance < 1:
        raise ValueError(f"target_acceptance must lie between 0 and 1, got {acceptance}; 0.65 to 0.9 are sensible")


def _check_step_size(step_size: float) -> None:
    if step_size < SMALLEST_STEP:
        raise DivergenceError(f"warm-up ended at a step size of {step_size:.2g}, with which no chain moves. {_CAUSES}")


def _explain_divergences(rates: Tensor, lost: Tensor, num_samples: int, step_size: float) -> None:
    if not (rates > 0).any():
        raise DivergenceError(
            f"no trajectory of any chain was accepted after warm-up, at a step size of {step_size:.2g}. {_CAUSES}"
        )
    if lost.any():
        warnings.warn(
            f"{int(lost.sum())} of {num_samples * len(lost)} trajectories diverged (chains {lost.tolist()}): the draws may "
            "miss a narrow part of the posterior. Raise target_acceptance, e.g. to 0.95, or give num_warmup more iterations",
            stacklevel=3,
        )


def _compare_chains(samples: HMCSamples, x: Tensor) -> None:
    rows = torch.linspace(0, len(x) - 1, min(len(x), COMPARED_ROWS)).long()
    r_hat = samples.diagnostics(x[rows]).r_hat
    # NaN where all draws are equal
    largest = float(r_hat.nan_to_num(1.0).max())
    if largest > LARGEST_R_HAT:
        warnings.warn(
            f"the chains do not agree: R-hat of the outputs at the training inputs is up to {largest:.2f}, above "
            f"{LARGEST_R_HAT}. Give num_warmup and num_samples more iterations, or raise num_leapfrog",
            ConvergenceWarning,
            stacklevel=3,
        )


def _show(bar: Progress, task: TaskID, acceptance: Tensor, step_size: float) -> None:
    bar.update(task, advance=1, acceptance=f"{float(acceptance.mean()):.2f}", step=f"{step_size:.2g}")


def _progress_bar(show: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("acceptance {task.fields[acceptance]} step size {task.fields[step]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
        disable=not show,
    )
