"""Simulation-based calibration of each posterior on function values.

    python -m benchmarks.calibration                    # all simulations that calibration.jsonl does not have, then the page
    python -m benchmarks.calibration --methods hmc gp   # these methods only
    python -m benchmarks.calibration --pages            # docs/calibration.md and docs/calibration.png from calibration.jsonl

Data are simulated from the model: a function from the prior, then noise. Each method infers the function from the data, and
the truth is ranked among its posterior draws. All methods of a model see the same data. One thread. A run that was
interrupted continues. Several processes with different methods may run at once.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

import inducing
from benchmarks.processes import ROOT
from inducing.experiments.engine.store import Store, config_key, finished_run
from inducing.linalg.noise import seeded

STORE = Store(ROOT / "benchmarks" / "calibration.jsonl")
# simulations of each method, simulations of quick methods (less than a second each), and those repeated with twice the steps
SIMULATIONS, CHEAP_SIMULATIONS, CHECKS = 200, 400, 4
# posterior draws, among which the truth has one of 100 ranks
DRAWS = 99
NOISE, HIDDEN = 0.05, 10
INPUTS = torch.cat([torch.linspace(-1.5, -0.5, 6), torch.linspace(0.5, 1.5, 6)])[:, None]
# among the data, in the gap between them, and beyond them
TESTS = torch.tensor([[-1.0], [0.0], [2.5]])
ROWS = torch.cat([INPUTS, TESTS])
STATISTICS = ("f(-1)", "f(0)", "f(2.5)", "log p(y | f)")
# chains of HMC with 12 draws kept from each, of which every fourth is ranked; the rule by which a run is repeated
HMC = {"num_chains": 33, "num_warmup": 200, "num_samples": 120, "thin": 10, "num_leapfrog": 5}
RANKED, MAX_R_HAT, MIN_ESS, MAX_DOUBLINGS = 4, 1.1, 200, 3


class Simulation(NamedTuple):
    """Data from the model.

    Arguments:
        number: The seed.
        truth: The function at all rows: the inputs of the data, then the test inputs.
        targets: The noisy function at the inputs of the data.
    """

    number: int
    truth: Tensor
    targets: Tensor

    @property
    def data(self) -> tuple[Tensor, Tensor]:
        return INPUTS, self.targets


# draws of the function at all rows, and what else is stored
Found = tuple[Tensor, dict[str, Any]]
Infer = Callable[[Simulation, int], Found]


class Method(NamedTuple):
    """An inference method.

    Arguments:
        model: The prior from which its data come: "network", "deep gp" or "gp".
        infer: Draws the function given simulated data, with a multiple of the usual number of steps.
        settings: What identifies its runs in the store.
        simulations: Number of simulated datasets.
    """

    model: str
    infer: Infer
    settings: dict[str, Any]
    simulations: int


def likelihood() -> inducing.Gaussian:
    """The known noise."""
    return inducing.Gaussian(NOISE, learn_variance=False)


def network(posterior: str, simulation: Simulation | None = None) -> inducing.Network:
    """The network with one hidden layer, with inducing points at the data if there are any."""
    points = {} if simulation is None else {"inducing_points": INPUTS, "inducing_targets": simulation.targets}
    generator = torch.Generator().manual_seed(0)
    return inducing.models.mlp(1, 1, [HIDDEN], posterior=posterior, generator=generator, **points)


def processes(depth: int, posterior: Any, points: Tensor, targets: Tensor | None = None) -> inducing.Network:
    """Gaussian processes with known, fixed kernels, in float64."""
    found = inducing.models.deep_gp(
        1,
        1,
        depth,
        posterior=posterior,
        inducing_points=points.double(),
        inducing_targets=None if targets is None else targets.double(),
        learn_inducing_locations=False,
        generator=torch.Generator().manual_seed(0),
    )
    for _, layer in found.layers.bayesian_layers():
        layer.kernel.requires_grad_(False)
    return found


def simulate(model: str, number: int) -> Simulation:
    """A function from the prior, and noisy values of it."""
    generator = seeded(number, f"calibration, {model}")
    if model == "network":
        truth = network("prior").draw(1, generator)(ROWS)
    else:
        # a joint draw at all rows
        truth = processes(2 if model == "deep gp" else 1, "prior", ROWS).draw(1, generator).inducing
    truth = truth.detach()[0].float()
    return Simulation(number, truth, likelihood().sample(truth[None, : len(INPUTS)], generator)[0])


def sample_hmc(simulation: Simulation, factor: int) -> Found:
    """Draws of Hamiltonian Monte Carlo. Runs whose chains disagree are repeated with twice the length."""
    for doubling in range(MAX_DOUBLINGS + 1):
        length = factor * 2**doubling
        longer = {name: HMC[name] * length for name in ("num_warmup", "num_samples", "thin")}
        samples = inducing.hmc(
            network("prior"), likelihood(), simulation.data, seed=simulation.number, progress=False, **(HMC | longer)
        )
        found = samples.diagnostics(ROWS)
        r_hat, ess = float(found.r_hat.max()), float(found.ess.min())
        if r_hat < MAX_R_HAT and ess > MIN_ESS:
            break
    with torch.no_grad():
        draws = samples.functions(ROWS).unflatten(0, (HMC["num_chains"], -1))[:, RANKED - 1 :: RANKED].flatten(0, 1)
    return draws, {"r_hat": r_hat, "ess": ess, "length": length, "divergences": int(samples.divergences.sum())}


def fit(fitted: inducing.Network, simulation: Simulation, steps: int, rate: float) -> dict[str, Any]:
    """Train a posterior, and return its ELBO in nats."""
    data = tuple(each.to(fitted.dtype) for each in simulation.data)
    settings = {"num_steps": steps, "learning_rate": rate, "num_samples": 5, "early_samples": None}
    noise = likelihood().to(fitted.dtype)
    inducing.fit(fitted, noise, data, seed=simulation.number, progress=False, **settings)
    return {"elbo": float(inducing.evaluate(fitted, noise, data, 1000).elbo)}


def fit_network(posterior: str, steps: int, rate: float) -> Infer:
    """Inference with a variational posterior over the weights."""

    def infer(simulation: Simulation, factor: int) -> Found:
        fitted = network(posterior, simulation)
        stored = fit(fitted, simulation, factor * steps, rate)
        with torch.no_grad():
            return fitted.sample_functions(DRAWS, simulation.number)(ROWS), stored

    return infer


def fit_processes(posterior: str, steps: int, rate: float) -> Infer:
    """Inference with a variational posterior over the values of a deep Gaussian process."""

    def infer(simulation: Simulation, factor: int) -> Found:
        fitted = processes(2, posterior, INPUTS, simulation.targets)
        stored = fit(fitted, simulation, factor * steps, rate)
        return draw_jointly(fitted, simulation.number), stored

    return infer


def exact_process(simulation: Simulation, factor: int) -> Found:
    """One Gaussian process with its exact posterior: inducing points at the data, and the noise as pseudo-precision."""
    posterior = inducing.GlobalInducing(log_precision=-math.log(NOISE))
    return draw_jointly(processes(1, posterior, INPUTS, simulation.targets), simulation.number), {}


def draw_prior(simulation: Simulation, factor: int) -> Found:
    """Draws from the prior, which ignore the data."""
    with torch.no_grad():
        return network("prior").sample_functions(DRAWS, simulation.number)(ROWS), {}


def draw_jointly(fitted: inducing.Network, seed: int) -> Tensor:
    """Draws of Gaussian processes at all rows."""
    with torch.no_grad():
        return fitted.draw(DRAWS, seeded(seed, "calibration, draws"), joint=True)(ROWS.to(fitted.dtype)).float()


def trained(model: str, make: Callable[[str, int, float], Infer], posterior: str, steps: int, rate: float) -> Method:
    """A method that maximises the ELBO with Adam."""
    return Method(model, make(posterior, steps, rate), {"num_steps": steps, "learning_rate": rate}, SIMULATIONS)


METHODS = {
    "gp": Method("gp", exact_process, {}, CHEAP_SIMULATIONS),
    "hmc": Method("network", sample_hmc, HMC, CHEAP_SIMULATIONS),
    "prior": Method("network", draw_prior, {}, CHEAP_SIMULATIONS),
    "global": trained("network", fit_network, "global", 200, 0.1),
    "factorised": trained("network", fit_network, "factorised", 500, 0.15),
    "local": trained("network", fit_network, "local", 500, 0.15),
    "deep gp, global": trained("deep gp", fit_processes, "global", 200, 0.1),
}


def measure(simulation: Simulation, draws: Tensor) -> dict[str, Any]:
    """Ranks of the truth, and the standard deviation of the draws at the test inputs."""
    tests = slice(len(INPUTS), None)

    def statistics(functions: Tensor) -> Tensor:
        fits = likelihood().log_prob(functions[:, : len(INPUTS)], simulation.targets).sum(-1, keepdim=True)
        return torch.cat([functions[:, tests, 0], fits], 1)

    # the number of draws below the truth, from 0 to 99
    ranks = (statistics(draws) < statistics(simulation.truth[None])).sum(0)
    return {"ranks": ranks.tolist(), "spreads": draws[:, tests, 0].std(0).tolist()}


def configuration(name: str, number: int, factor: int) -> dict[str, Any]:
    """What identifies a run in the store."""
    settings = METHODS[name].settings
    return {"method": name, "split": number, "factor": factor, "noise": NOISE, "draws": DRAWS, **settings}


def run(name: str, number: int, factor: int = 1) -> None:
    """Simulate, infer, and store ranks and spreads, unless they are in the store."""
    method, config = METHODS[name], configuration(name, number, factor)
    if config_key(config) in STORE.results():
        return
    start = time.process_time()
    simulation = simulate(method.model, number)
    draws, stored = method.infer(simulation, factor)
    assert len(draws) == DRAWS
    metrics = measure(simulation, draws) | stored
    STORE.add(finished_run(config, metrics, time.process_time() - start))


def main() -> None:
    """Run the simulations, and write the page and the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), help="methods to run")
    parser.add_argument("--pages", action="store_true", help="only write the page and the figure")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for number in [] if arguments.pages else range(CHEAP_SIMULATIONS):
        for name in arguments.methods:
            if number < METHODS[name].simulations:
                run(name, number)
            # is a posterior that is trained for twice the number of steps the same?
            if number < CHECKS and METHODS[name].settings:
                run(name, number, factor=2)
    from benchmarks import calibration_page

    calibration_page.write(list(STORE.results().values()))


if __name__ == "__main__":
    main()
