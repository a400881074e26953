"""Bayesian optimisation with BoTorch: `InducingModel` against `SingleTaskGP`, simple regret over evaluations.

    python -m benchmarks.bayesian_optimisation           # writes the jsonl, the table and docs/bayesian_optimisation.png
    python -m benchmarks.bayesian_optimisation --report  # table and figure of the finished runs only

A run is one function, one model and one seed. Finished runs are kept: each is a line of bayesian_optimisation.jsonl. All
models of a seed start from the same Sobol points, and share the acquisition function and the budget of its optimiser. All
functions are maximised on the unit cube, without noise. Settings were chosen with seeds 100 to 102 of Branin and the step
function, by the errors of fits to Sobol points of seeds 100 and 101 of all four functions, and (the standardisation of the
targets) with seeds 103 and 105 of Hartmann-6. Seeds 0 to 9 are reported.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import inducing
from benchmarks.processes import ROOT
from inducing.experiments.engine.figures import panels

with warnings.catch_warnings():
    # packages that BoTorch imports still use torch.jit
    warnings.simplefilter("ignore", DeprecationWarning)
    from botorch.acquisition.logei import qLogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.models.model import Model
    from botorch.models.transforms import Normalize, Standardize
    from botorch.models.transforms.input import AffineInputTransform
    from botorch.optim import optimize_acqf
    from botorch.sampling.normal import SobolQMCNormalSampler
    from botorch.test_functions import Ackley, Branin, Hartmann
    from gpytorch.mlls import ExactMarginalLogLikelihood

    from inducing.integrations.botorch import InducingModel

RESULTS, PAGE = ROOT / "benchmarks" / "bayesian_optimisation.jsonl", ROOT / "benchmarks" / "bayesian_optimisation.md"
FIGURE = ROOT / "docs" / "bayesian_optimisation.png"
SEEDS, BASELINE, SMALLEST_REGRET = range(10), "SingleTaskGP", 1e-8
COLOURS = {"SingleTaskGP": "#888888", "deep GP": "#3465a4", "BNN": "#c45a11"}
# functions of a posterior and samples of an acquisition value; restarts, initial candidates and iterations of its optimiser
SAMPLES, RESTARTS, RAW_SAMPLES, ITERATIONS = 256, 4, 64, 50
INTRODUCTION = f"""# Bayesian optimisation

Made by `python -m benchmarks.bayesian_optimisation` from `bayesian_optimisation.jsonl`. The functions are maximised on the
unit cube, without noise. Ackley-10 has its optimum at a third of each side. The step function has two terraces with a jump
of about 3 between them: the lower one rises away from the jump, and the best point of the upper one is beside it.

All models of a seed start from the same Sobol points and use `qLogExpectedImprovement` for one point at a time, with
{SAMPLES} samples, {RESTARTS} restarts, {RAW_SAMPLES} initial candidates and at most {ITERATIONS} iterations. `{BASELINE}`
has BoTorch's defaults and is fitted after each evaluation. The deep GP has two layers, the BNN one hidden layer of 50 tanh
units and a learned prior scale. Both have all rows as inducing points, an exact last layer and a small fixed noise. They
are fitted again after every second evaluation, from the last parameters, and updated in between. Their targets are
standardised by the initial points: as better points are found, the mean of all of them rises, and a prior with mean zero
would expect as much everywhere else (`{BASELINE}` learns a constant mean instead). Settings were chosen with other seeds:
100 to 102 of Branin and the step function, fits to Sobol points of seeds 100 and 101 of all four, and the standardisation
with seeds 103 and 105 of Hartmann-6, after the first results on seeds 0 to 7 had shown that something was wrong there.

Median regret: over the seeds, after the last evaluation. Log10 regret: the mean with its standard error. Difference: the
mean paired difference of the log10 regret from that of `{BASELINE}`, negative if the model is better, with a verdict at two
standard errors. Better: the number of seeds that are better. Time: seconds of one busy core for each evaluation.

| function | evaluations | model | seeds | median regret | log10 regret | difference | better | time |
| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""


def step(x: Tensor) -> Tensor:
    """Two terraces: the lower one rises away from the jump of about 3, and the best point of the upper one is beside it."""
    across = x[..., 0] + x[..., 1] / 2
    upper = 1 - (x - x.new_tensor([0.6, 0.9])).square().sum(-1)
    return torch.where(across > 1, upper, -1 - across)


@dataclass(frozen=True)
class Problem:
    """A function on the unit cube, to be maximised.

    Arguments:
        function: The function.
        dimension: Number of inputs.
        best: Its maximum.
        initial: Number of Sobol points.
        evaluations: Number of evaluations, including these.
    """

    function: Callable[[Tensor], Tensor]
    dimension: int
    best: float
    initial: int
    evaluations: int


def on_unit_cube(function: Any) -> Callable[[Tensor], Tensor]:
    """One of BoTorch's test functions as a function on the unit cube."""
    low, high = function.bounds
    return lambda x: function(low + (high - low) * x)


PROBLEMS = {
    "Branin": Problem(on_unit_cube(Branin(negate=True).double()), 2, -0.397887, 6, 28),
    "Hartmann-6": Problem(on_unit_cube(Hartmann(negate=True).double()), 6, 3.32237, 12, 36),
    "Ackley-10": Problem(on_unit_cube(Ackley(10, negate=True, bounds=[(-5.0, 10.0)] * 10).double()), 10, 0.0, 15, 36),
    "step": Problem(step, 2, 1.0, 6, 24),
}


class SingleTask:
    """BoTorch's `SingleTaskGP` with its defaults, fitted again to all rows after each evaluation."""

    def __init__(self, seed: int) -> None:
        del seed

    def model(self, x: Tensor, y: Tensor) -> Model:
        """Fit the model to all rows."""
        dimension = x.shape[-1]
        model = SingleTaskGP(x, y, input_transform=Normalize(dimension), outcome_transform=Standardize(1))
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return model


class Inducing:
    """A network with an exact last layer, fitted again after several evaluations from the parameters of the last fit.

    In between, new rows update the last layer.

    Targets are standardised by the initial points. As an optimiser finds better points, the mean of all of them rises, and
    a prior with mean zero would expect as much everywhere else.

    Arguments:
        seed: Seed of the fits and of the functions.
    """

    first_steps, steps, refit_every, noise = 100, 60, 2, 1e-5

    def __init__(self, seed: int) -> None:
        self.seed, self.rows, self.initial = seed, 0, 0
        self.network: inducing.Network | None = None
        self.likelihood = inducing.Gaussian(self.noise, learn_variance=False).double()
        self.fitted: InducingModel | None = None

    def build(self, x: Tensor, y: Tensor) -> inducing.Network:
        """A network with these rows as inducing points."""
        raise NotImplementedError

    def model(self, x: Tensor, y: Tensor) -> Model:
        """The model given all rows."""
        if self.fitted is None or len(x) >= self.rows + self.refit_every:
            self.rows, self.fitted = len(x), self._fit(x, y)
        if len(x) == self.rows:
            return self.fitted
        return self.fitted.condition_on_observations(x[self.rows :], y[self.rows :])

    def _fit(self, x: Tensor, y: Tensor) -> InducingModel:
        # uniform inputs on the unit cube become inputs with variance 1
        dimension = x.shape[-1]
        scale, centre = torch.full((dimension,), 12**-0.5).double(), torch.full((dimension,), 0.5).double()
        inputs = AffineInputTransform(dimension, scale, centre)
        self.initial = self.initial or len(y)
        outcomes = Standardize(1)
        outcomes(y[: self.initial])
        outcomes.eval()
        targets, _ = outcomes(y)
        points = inputs(x)
        network = self.build(points, targets)
        steps = self.first_steps
        if self.network is not None:
            copy_parameters(self.network, network)
            steps = self.steps
        changes = {"num_steps": steps, "num_samples": 4, "early_samples": None}
        inducing.fit(network, self.likelihood, (points, targets), seed=len(x), progress=False, **changes)
        self.network = network
        transforms = {"input_transform": inputs, "outcome_transform": outcomes}
        return InducingModel(network, self.likelihood, SAMPLES, 1000 * self.seed + len(x), **transforms)


def copy_parameters(old: inducing.Network, new: inducing.Network) -> None:
    """Copy the parameters of a network to one with more inducing points. The first rows of both are the same."""
    found = dict(old.named_parameters())
    with torch.no_grad():
        for name, parameter in new.named_parameters():
            parameter[tuple(slice(size) for size in found[name].shape)] = found[name]


class DeepGP(Inducing):
    """A deep Gaussian process with two layers."""

    def build(self, x: Tensor, y: Tensor) -> inducing.Network:
        # fewer random features than by default, for more functions in the same time
        size = x.shape[-1]
        hidden = inducing.GPLayer(size, size, mean="identity", num_features=128)
        last = inducing.GPLayer(size, 1, posterior="optimal", num_features=128)
        settings = {"inducing_points": x, "inducing_targets": y, "learn_inducing_locations": False}
        return inducing.Network([hidden, last], **settings)


class BNN(Inducing):
    """A Bayesian neural network with one hidden layer of tanh units."""

    noise = 1e-4

    def build(self, x: Tensor, y: Tensor) -> inducing.Network:
        settings = {"inducing_points": x, "inducing_targets": y, "learn_inducing_locations": False}
        generator = torch.Generator().manual_seed(self.seed)
        settings |= {"prior": "scale", "posterior": "global->optimal", "activation": torch.nn.Tanh}
        return inducing.models.mlp(x.shape[-1], 1, [50], generator=generator, **settings)


MODELS = {"SingleTaskGP": SingleTask, "deep GP": DeepGP, "BNN": BNN}


def run(name: str, kind: str, seed: int) -> dict[str, Any]:
    """Optimise one function with one model."""
    problem = PROBLEMS[name]
    torch.manual_seed(seed)
    start = time.process_time()
    x = torch.quasirandom.SobolEngine(problem.dimension, scramble=True, seed=seed).draw(problem.initial).double()
    y = problem.function(x)[:, None]
    surrogate = MODELS[kind](seed)
    bounds = torch.tensor([[0.0], [1.0]]).double().expand(2, problem.dimension)
    while len(y) < problem.evaluations:
        model = surrogate.model(x, y)
        sampler = SobolQMCNormalSampler(torch.Size([SAMPLES]), seed=seed)
        acquisition = qLogExpectedImprovement(model, y.max(), sampler)
        options = {"maxiter": ITERATIONS, "seed": 1000 * seed + len(y)}
        point, _ = optimize_acqf(
            acquisition, bounds, q=1, num_restarts=RESTARTS, raw_samples=RAW_SAMPLES, options=options
        )
        x = torch.cat([x, point])
        y = torch.cat([y, problem.function(point)[:, None]])
    seconds = time.process_time() - start
    return {"function": name, "model": kind, "seed": seed, "values": y[:, 0].tolist(), "seconds": round(seconds, 1)}


def load() -> list[dict[str, Any]]:
    """All finished runs."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def regrets(results: list[dict[str, Any]], name: str, kind: str) -> dict[int, Tensor]:
    """Logarithm (base 10) of the simple regret after each evaluation, for each seed."""
    found = {}
    for result in results:
        if (result["function"], result["model"]) == (name, kind):
            best = torch.tensor(result["values"], dtype=torch.float64).cummax(0).values
            found[result["seed"]] = (PROBLEMS[name].best - best).clamp_min(SMALLEST_REGRET).log10()
    return found


def mean_and_error(values: Tensor) -> str:
    """The mean with its standard error."""
    error = values.std() / math.sqrt(len(values)) if len(values) > 1 else torch.tensor(math.nan)
    return f"{values.mean():.2f} ± {error:.2f}"


def verdict(pairs: Tensor) -> str:
    """Whether a model is better or worse than the baseline by more than two standard errors."""
    margin = 2 * pairs.std() / math.sqrt(len(pairs))
    if len(pairs) < 2 or pairs.mean().abs() <= margin:
        return "no clear difference"
    return "better" if pairs.mean() < 0 else "worse"


def page(results: list[dict[str, Any]]) -> str:
    """The table of regrets after the last evaluation."""
    rows = []
    for name, problem in PROBLEMS.items():
        baseline = regrets(results, name, BASELINE)
        for kind in MODELS:
            found = regrets(results, name, kind)
            if not found:
                continue
            last = torch.stack([found[seed][-1] for seed in sorted(found)])
            shared = sorted(set(found) & set(baseline)) if kind != BASELINE else []
            difference, wins = "", ""
            if shared:
                pairs = torch.stack([found[seed][-1] - baseline[seed][-1] for seed in shared])
                difference = f"{mean_and_error(pairs)}, {verdict(pairs)}"
                wins = f"{int((pairs < 0).sum())} of {len(pairs)}"
            seconds = [each["seconds"] for each in results if (each["function"], each["model"]) == (name, kind)]
            per_point = sum(seconds) / len(seconds) / (problem.evaluations - problem.initial)
            numbers = [f"{10 ** last.quantile(0.5):.2g}", mean_and_error(last), difference, wins, f"{per_point:.2f}"]
            rows.append(" | ".join([name, str(problem.evaluations), kind, str(len(last)), *numbers]))
    return INTRODUCTION + "".join(f"| {row} |\n" for row in rows)


def draw(results: list[dict[str, Any]]) -> None:
    """The figure: median regret over evaluations, with the quartiles of the seeds, a panel for each function."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.ticker import NullFormatter

    figure, axes = panels(1, len(PROBLEMS), (3.0, 2.8))
    for panel, (name, problem) in zip(axes.flat, PROBLEMS.items(), strict=True):
        for kind, colour in COLOURS.items():
            found = regrets(results, name, kind)
            if found:
                curves = torch.stack(list(found.values()))
                low, middle, high = 10 ** curves.quantile(torch.tensor([0.25, 0.5, 0.75]).double(), 0)
                counts = range(1, problem.evaluations + 1)
                panel.plot(counts, middle, color=colour, lw=1.5, label=kind)
                panel.fill_between(counts, low, high, color=colour, alpha=0.15, lw=0)
        panel.axvline(problem.initial, color="0.6", lw=0.8, ls=":")
        if name != "Ackley-10":
            panel.set_yscale("log")
            panel.yaxis.set_minor_formatter(NullFormatter())
        panel.set_title(name, fontsize=10)
        panel.set_xlabel("evaluations")
    axes[0, 0].set_ylabel("simple regret")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    FigureCanvasAgg(figure).print_png(str(FIGURE))


def main() -> None:
    """Run what is not in the file of results, and write the table and the figure."""
    parser = argparse.ArgumentParser(description="Bayesian optimisation with BoTorch")
    parser.add_argument("--report", action="store_true", help="table and figure of the finished runs only")
    report_only = parser.parse_args().report
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = {(each["function"], each["model"], each["seed"]) for each in load()}
    # the networks last: a run that is stopped has the main comparison
    jobs = sorted(itertools.product(SEEDS, PROBLEMS, MODELS), key=lambda job: job[2] == "BNN")
    for seed, name, kind in jobs:
        if not report_only and (name, kind, seed) not in done:
            result = run(name, kind, seed)
            with RESULTS.open("a") as file:
                file.write(json.dumps(result) + "\n")
            regret = PROBLEMS[name].best - max(result["values"])
            print(f"{name}, {kind}, seed {seed}: regret {regret:.2g}, {result['seconds']} s", flush=True)
    results = load()
    PAGE.write_text(page(results))
    draw(results)


if __name__ == "__main__":
    main()
