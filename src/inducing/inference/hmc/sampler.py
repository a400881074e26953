"""Hamiltonian Monte Carlo: draws from the exact posterior over the weights of small networks.

All chains run in parallel, along the sample axis. They sample whitened weights z, where w = z / sqrt(P) for a prior
w ~ N(0, 1/P) (`inducing.inference.hmc.whitened`).

There is no mass matrix. On the toy problem the standard deviations of z within a chain are between 0.4 and 1.2, and the
narrow directions are not those of single weights, so a diagonal mass matrix would help little.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from inducing.arrays import evenly_spaced
from inducing.checks import check_seed, check_whole, refuse_inference_mode
from inducing.errors import ConvergenceWarning, DivergenceError
from inducing.inference.hmc.diagnostics import MIN_DRAWS, Diagnostics, diagnose
from inducing.inference.hmc.hamiltonian import transition
from inducing.inference.hmc.step_size import DualAveraging, initial_step_size
from inducing.inference.hmc.whitened import WhitenedPosterior, start_at_prior
from inducing.inference.progress import progress_bar
from inducing.inference.validation import check_model
from inducing.linalg.noise import seeded
from inducing.nn.draw import FunctionSamples
from inducing.nn.layers import Linear
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network

# step size for whitened weights, whose prior has unit scale; chains with a smaller step size do not move
MIN_STEP_SIZE = 1e-10
# threshold of the warning; the usual 1.01 would warn about every short run
MAX_R_HAT = 1.1
# number of training inputs at which the chains are compared
NUM_COMPARED_ROWS = 100
CAUSES = (
    "The data may not be standardised, the noise variance far too small, or the warm-up too short: standardise x and y, "
    "check the likelihood's parameters, or raise num_warmup."
)


@dataclass(frozen=True, eq=False)
class HMCSamples:
    """Draws of Hamiltonian Monte Carlo. `inducing.predict` accepts them instead of a network.

    Arguments:
        functions: The drawn functions, (B, ...) -> (S, B, ...), chain after chain.
        num_chains: Number C of chains. S is C times the number of draws kept from each chain.
        acceptance: Mean acceptance probability of each chain after warm-up.
        divergences: Number of divergent trajectories of each chain. The draws may miss the region where they occurred.
        step_size: Leapfrog step size for whitened weights, found during warm-up.
    """

    functions: FunctionSamples
    num_chains: int
    acceptance: Float[Tensor, " C"]
    divergences: Int[Tensor, " C"]
    step_size: float

    def diagnostics(self, x: Float[Tensor, "B *in"]) -> Diagnostics:
        """Return R-hat and effective sample size of each output at inputs x. Outputs are identifiable, weights are not."""
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

    The network defines the layers and their priors. Its variational posteriors are ignored, and it is not changed. Every
    step uses all data, in float64. Chains start at draws from the prior. The same seed gives the same draws on the same
    machine with the same number of threads.

    A `ConvergenceWarning` is given if R-hat of the outputs is above 1.1 at one of up to 100 training inputs. This needs at
    least two chains with 8 draws each.

    Arguments:
        network: A network whose Bayesian layers are `Linear` with `NealPrior` or `StandardPrior`.
        likelihood: The distribution of the targets given the outputs. Its parameters are fixed.
        data: A pair (x, y) of tensors.
        num_chains: Number of chains, run in parallel.
        num_warmup: Number of warm-up iterations, which adapt the step size. Their draws are discarded.
        num_samples: Number of iterations after warm-up.
        num_leapfrog: Number of leapfrog steps per iteration.
        thin: Keep every ``thin``-th of the ``num_samples`` draws.
        target_acceptance: Target acceptance rate of the step size adaptation.
        seed: Random seed, an integer.
        progress: Whether to show a progress bar. It needs the package rich.
        description: Name of the run in the progress bar.

    References:
        Neal, MCMC using Hamiltonian dynamics (2011).

    Example:
        >>> import inducing, torch
        >>> x, y = torch.randn(20, 3), torch.randn(20, 1)
        >>> network = inducing.models.mlp(3, 1, [5], posterior="prior")
        >>> likelihood = inducing.Gaussian(1.0)
        >>> settings = {"num_warmup": 100, "num_samples": 100, "progress": False}
        >>> samples = inducing.hmc(network, likelihood, (x, y), **settings)
        >>> prediction = inducing.predict(samples, likelihood, x)
        >>> prediction.outputs.shape, samples.diagnostics(x).r_hat.shape
        (torch.Size([400, 20, 1]), torch.Size([20, 1]))
    """
    refuse_inference_mode("hmc")
    check_model(network, likelihood)
    counts = {"num_chains": num_chains, "num_warmup": num_warmup, "num_samples": num_samples}
    for name, value in {**counts, "num_leapfrog": num_leapfrog, "thin": thin}.items():
        check_whole(name, value)
    if num_samples < thin:
        raise ValueError(f"thin={thin} keeps none of num_samples={num_samples} draws. Use thin <= num_samples")
    if not 0 < target_acceptance < 1:
        raise ValueError(f"target_acceptance must be between 0 and 1, e.g. 0.8, got {target_acceptance}")
    _check_layers(network)
    target = WhitenedPosterior(network, likelihood, data)
    generator = seeded(check_seed(seed), "hmc")
    point = start_at_prior(target, num_chains, generator)
    adaptation = DualAveraging(initial_step_size(target, point, generator), target_acceptance)
    kept, acceptances, divergences = [], [], []
    with progress_bar(description, num_warmup + num_samples, show=progress) as update_bar:
        for iteration in range(1, num_warmup + 1):
            point, acceptance, _ = transition(target, point, adaptation.step_size, num_leapfrog, generator)
            adaptation.update(float(acceptance.mean()))
            update_bar(iteration, f"acceptance {float(acceptance.mean()):.2f} step size {adaptation.step_size:.2g}")
        step_size = adaptation.average
        if step_size < MIN_STEP_SIZE:
            raise DivergenceError(f"warm-up ended at a step size of {step_size:.2g}, so no chain moves. {CAUSES}")
        for iteration in range(1, num_samples + 1):
            point, acceptance, divergent = transition(target, point, step_size, num_leapfrog, generator)
            acceptances.append(acceptance)
            divergences.append(divergent)
            if iteration % thin == 0:
                kept.append(point.position)
            text = f"acceptance {float(acceptance.mean()):.2f} step size {step_size:.2g}"
            update_bar(num_warmup + iteration, text)
    # (draws, C, D) -> (C draws, D)
    layers = target.functions(torch.stack(kept, 1).flatten(0, 1))
    function = network.assemble([layer.map(lambda tensor: tensor.to(network.dtype)) for layer in layers])
    functions = FunctionSamples(function, network.input_shape, network.dtype)
    acceptance, num_divergent = torch.stack(acceptances).mean(0), torch.stack(divergences).sum(0)
    samples = HMCSamples(functions, num_chains, acceptance, num_divergent, step_size)
    _check_divergences(samples, num_samples)
    if num_chains > 1 and len(kept) >= MIN_DRAWS:
        _check_convergence(samples, target.x.to(network.dtype))
    return samples


def _check_layers(network: Network) -> None:
    for name, layer in network.layers.bayesian_layers():
        if not isinstance(layer, Linear):
            raise TypeError(
                f"{name} {layer} is not a Linear layer, but hmc samples only weights of Linear layers. Use fit, or a "
                "network of inducing.Linear and plain modules"
            )


def _check_divergences(samples: HMCSamples, num_samples: int) -> None:
    """Warn about divergent trajectories. Raise DivergenceError if no trajectory was accepted."""
    if not (samples.acceptance > 0).any():
        raise DivergenceError(
            f"no trajectory of any chain was accepted after warm-up, at a step size of {samples.step_size:.2g}. {CAUSES}"
        )
    divergences = samples.divergences.tolist()
    if any(divergences):
        warnings.warn(
            f"{sum(divergences)} of {num_samples * len(divergences)} trajectories diverged (by chain: {divergences}), so "
            "the draws may miss a narrow region of the posterior. Raise target_acceptance, e.g. to 0.95, or num_warmup",
            stacklevel=3,
        )


def _check_convergence(samples: HMCSamples, x: Tensor) -> None:
    """Warn if the chains disagree about the outputs at the training inputs."""
    rows = evenly_spaced(len(x), NUM_COMPARED_ROWS)
    # R-hat is NaN where all draws are equal
    largest = float(samples.diagnostics(x[rows]).r_hat.nan_to_num(1.0).max())
    if largest > MAX_R_HAT:
        warnings.warn(
            f"the chains have not converged: R-hat of the outputs at the training inputs is up to {largest:.2f}, above "
            f"{MAX_R_HAT}. Raise num_warmup and num_samples, or num_leapfrog",
            ConvergenceWarning,
            stacklevel=3,
        )
