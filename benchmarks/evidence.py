"""Nats that each posterior loses: bounds of the log evidence on data simulated from a network with one hidden layer.

    python -m benchmarks.evidence    # datasets that are in evidence.json already are kept

It writes evidence.json, evidence.md (all numbers), evidence_summary.md (for docs/bounds.md) and docs/evidence.png.

Three draws of the weights for each size and noise variance. The model is the one that simulated the data, with its noise.
Every posterior is fitted with three seeds, one thread. The first of three datasets is fitted once more with twice the number
of steps, as a check of convergence.
"""

from __future__ import annotations

import itertools
import json
import math
import time
import warnings
from typing import Any

import torch

import inducing
from benchmarks.processes import ROOT
from inducing.experiments.engine.figures import COLOURS, panels
from inducing.linalg.noise import seeded

RESULTS, PAGE = ROOT / "benchmarks" / "evidence.json", ROOT / "benchmarks" / "evidence.md"
SUMMARY = ROOT / "benchmarks" / "evidence_summary.md"
FIGURE = ROOT / "docs" / "evidence.png"
BOUNDS = ("ELBO, best of three seeds", "mixture ELBO of the three", "importance-weighted bound, K = 10,000")
POSTERIORS = ("factorised", "local", "global")
# seeds of fits, steps, samples of an ELBO and of a component, importance samples, temperatures
SETTINGS = {
    "seeds": 3,
    "num_steps": 3000,
    "elbo_samples": 2000,
    "importance_samples": 10_000,
    "num_temperatures": 4000,
}
HIDDEN, DATASETS = 10, 3
# rows and inputs, as the paper's toy data and as the training rows of yacht have them
SIZES = {"toy": (40, 1), "yacht": (277, 6)}
KINDS = (("toy", 0.05), ("toy", 0.005), ("yacht", 0.05))
INTRODUCTION = f"""# The evidence and its bounds

Made by `python -m benchmarks.evidence` from `evidence.json`. Datasets are simulated from a network with
{HIDDEN} hidden units (ReLU), which is also the model: {SIZES["toy"][0]} rows with one input (toy), or
{SIZES["yacht"][0]} rows with {SIZES["yacht"][1]} inputs (yacht). The noise has the given variance.
Log evidence: lower and upper bound by annealed importance sampling with 32 chains. The other columns are nats *below* the
mean of these two, for the whole dataset. Each posterior was fitted with three seeds. ELBO: the best of them. Mixture: all
three with the best weights. Importance: the importance-weighted bound of the best one with
K = {SETTINGS["importance_samples"]:,}, and its Pareto k.

| size | noise | data | log evidence | posterior | ELBO loses | mixture loses | importance loses | Pareto k |
| --- | ---: | --- | ---: | --- | ---: | ---: | ---: | ---: |
"""
CONVERGENCE = f"""
Are the fits converged? The best seed once more, with {2 * SETTINGS["num_steps"]:,} instead of {SETTINGS["num_steps"]:,}
steps. ELBOs in nats, from {SETTINGS["elbo_samples"]:,} samples.

| size | noise | data | posterior | ELBO | ELBO, twice the steps | difference |
| --- | ---: | --- | --- | ---: | ---: | ---: |
"""


def model(posterior: str, x: torch.Tensor, y: torch.Tensor | None, seed: int) -> inducing.Network:
    """The network with a kind of posterior, with inducing points at the data."""
    points = {} if y is None else {"inducing_points": x, "inducing_targets": y}
    generator = torch.Generator().manual_seed(seed)
    return inducing.models.mlp(x.shape[1], 1, [HIDDEN], posterior=posterior, generator=generator, **points)


def simulate(
    size: str, dataset: int, likelihood: inducing.Gaussian
) -> tuple[torch.Tensor, torch.Tensor, inducing.NetworkDraw]:
    """Inputs, targets, and the weights that generated the targets."""
    generator = seeded(dataset, "simulated data")
    x = 4 * torch.rand(*SIZES[size], generator=generator) - 2
    weights = model("prior", x, None, 0).draw(1, generator)
    return x, likelihood.sample(weights(x), generator)[0].detach(), weights


def run(size: str, noise: float, dataset: int) -> dict[str, Any]:
    """Bounds of one dataset."""
    likelihood = inducing.Gaussian(noise, learn_variance=False)
    x, y, weights = simulate(size, dataset, likelihood)
    data, samples = (x, y), SETTINGS["elbo_samples"]
    start = time.perf_counter()
    settings = {"num_temperatures": SETTINGS["num_temperatures"], "posterior_sample": weights, "progress": False}
    found = inducing.evidence(model("prior", x, None, 0), likelihood, data, **settings)
    result: dict[str, Any] = {
        "size": size,
        "noise": noise,
        "dataset": dataset,
        "lower": float(found.lower),
        "lower_error": float(found.standard_error),
        "upper": float(found.upper),
        "upper_error": float(found.upper_standard_error),
        "effective_sample_size": float(found.effective_sample_size),
        "seconds": time.perf_counter() - start,
    }
    for posterior in POSTERIORS:
        networks = []
        for seed in range(SETTINGS["seeds"]):
            networks.append(model(posterior, x, y, seed))
            inducing.fit(networks[-1], likelihood, data, num_steps=SETTINGS["num_steps"], seed=seed, progress=False)
        terms = [inducing.evaluate(network, likelihood, data, samples) for network in networks]
        elbos = [float(each.elbo) for each in terms]
        mixture = inducing.Mixture(networks)
        mixture.optimise_weights(likelihood, data, samples)
        bound = mixture.elbo(likelihood, data, samples)
        best = networks[elbos.index(max(elbos))]
        importance = inducing.evaluate(best, likelihood, data, importance_samples=SETTINGS["importance_samples"])
        result[posterior] = {
            "elbos": elbos,
            "elbo_errors": [float(each.samples.std() / samples**0.5) for each in terms],
            "mixture": float(bound.value),
            "mixture_error": float(bound.standard_error),
            "weights": mixture.weights.tolist(),
            "importance": float(importance.value),
            "pareto_k": importance.pareto_k,
        }
    return result


def check_convergence(result: dict[str, Any]) -> None:
    """Add the ELBO of each posterior after twice the number of steps, with the seed that was best."""
    likelihood = inducing.Gaussian(result["noise"], learn_variance=False)
    x, y, _ = simulate(result["size"], result["dataset"], likelihood)
    for posterior in POSTERIORS:
        elbos = result[posterior]["elbos"]
        seed = elbos.index(max(elbos))
        start, network = time.perf_counter(), model(posterior, x, y, seed)
        inducing.fit(network, likelihood, (x, y), num_steps=2 * SETTINGS["num_steps"], seed=seed, progress=False)
        seconds = time.perf_counter() - start
        terms = inducing.evaluate(network, likelihood, (x, y), SETTINGS["elbo_samples"])
        result[posterior]["doubled"] = {
            "elbo": float(terms.elbo),
            "elbo_error": float(terms.samples.std() / SETTINGS["elbo_samples"] ** 0.5),
            "seconds": seconds,
        }


def losses(result: dict[str, Any], posterior: str) -> list[float]:
    """Nats below the evidence: the ELBO of the best seed, the mixture ELBO, the importance-weighted bound."""
    found = result[posterior]
    return [evidence_of(result) - bound for bound in (max(found["elbos"]), found["mixture"], found["importance"])]


def evidence_of(result: dict[str, Any]) -> float:
    """The mean of the lower and the upper bound."""
    return (result["lower"] + result["upper"]) / 2


def page(results: list[dict[str, Any]]) -> str:
    """The table."""
    rows = []
    for result in results:
        bounds = (
            f"{result['lower']:.2f} ± {result['lower_error']:.2f}, {result['upper']:.2f} ± {result['upper_error']:.2f}"
        )
        for posterior in POSTERIORS:
            labels = [result["size"], str(result["noise"]), str(result["dataset"]), bounds, posterior]
            numbers = [*losses(result, posterior), result[posterior]["pareto_k"]]
            rows.append(" | ".join([*labels, *(f"{number:.2f}" for number in numbers)]))
    return INTRODUCTION + "".join(f"| {row} |\n" for row in rows) + convergence(results)


def summary(results: list[dict[str, Any]]) -> str:
    """The smallest and the largest loss of the datasets of the same size and noise."""
    rows = [["size", "noise variance", "bound", *POSTERIORS], ["---", "---:", "---", *["---:"] * len(POSTERIORS)]]
    for (size, noise), (place, bound) in itertools.product(KINDS, enumerate(BOUNDS)):
        found = [result for result in results if (result["size"], result["noise"]) == (size, noise)]
        if not found:
            continue
        lost = [[f"{losses(result, posterior)[place]:z.1f}" for result in found] for posterior in POSTERIORS]
        ranges = [" to ".join(dict.fromkeys((min(each, key=float), max(each, key=float)))) for each in lost]
        rows.append([size, str(noise), bound, *ranges])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def convergence(results: list[dict[str, Any]]) -> str:
    """What twice the number of steps changes, for the datasets that were checked."""
    rows = []
    for result in results:
        for posterior in (name for name in POSTERIORS if "doubled" in result[name]):
            found = result[posterior]
            elbo, doubled = max(found["elbos"]), found["doubled"]
            error = found["elbo_errors"][found["elbos"].index(elbo)]
            labels = [result["size"], str(result["noise"]), str(result["dataset"]), posterior]
            values = [f"{elbo:.2f} ± {error:.2f}", f"{doubled['elbo']:.2f} ± {doubled['elbo_error']:.2f}"]
            rows.append(" | ".join([*labels, *values, f"{doubled['elbo'] - elbo:+.2f}"]))
    return CONVERGENCE + "".join(f"| {row} |\n" for row in rows) if rows else ""


def draw(results: list[dict[str, Any]]) -> None:
    """The figure: a panel for each dataset."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure, axes = panels(math.ceil(len(results) / DATASETS), DATASETS, (3.4, 2.4))
    for panel in axes.flat[len(results) :]:
        panel.axis("off")
    for result, panel in zip(results, axes.flat, strict=False):
        low, high = sorted((result["lower"], result["upper"]))
        panel.axhspan(low - result["lower_error"], high + result["upper_error"], color="0.85", lw=0)
        panel.axhline(evidence_of(result), color="0.3", lw=0.8, label="log evidence (AIS)")
        for place, posterior in enumerate(POSTERIORS):
            found, colour = result[posterior], COLOURS[posterior]
            count = len(found["elbos"])
            panel.plot(
                [place - 0.2] * count, found["elbos"], "o", ms=4, color=colour, label="ELBO" if place == 2 else None
            )
            panel.plot(place, found["mixture"], "D", ms=5, color=colour, label="mixture ELBO" if place == 2 else None)
            name = "importance-weighted bound" if place == 2 else None
            panel.plot(place + 0.2, found["importance"], "^", ms=5, color=colour, label=name)
        panel.set_xticks(range(len(POSTERIORS)), POSTERIORS)
        panel.set_title(f"{result['size']} {result['dataset']}, noise variance {result['noise']}", fontsize=9)
    for panel in axes[:, 0]:
        panel.set_ylabel("nats")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=8
    )
    FigureCanvasAgg(figure).print_png(str(FIGURE))


def main() -> None:
    """Measure the datasets that are not in evidence.json, and write the page and the figure."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    measured = {(result["size"], result["noise"], result["dataset"]) for result in results}
    for kind, dataset in itertools.product(KINDS, range(DATASETS)):
        if (*kind, dataset) not in measured:
            results.append(run(*kind, dataset))
            RESULTS.write_text(json.dumps(results) + "\n")
            print("\n".join(page(results).splitlines()[-len(POSTERIORS) :]), flush=True)
    for result in results:
        if result["dataset"] == 0 and "doubled" not in result[POSTERIORS[-1]]:
            check_convergence(result)
            RESULTS.write_text(json.dumps(results) + "\n")
            print(convergence([result]), flush=True)
    PAGE.write_text(page(results))
    SUMMARY.write_text(summary(results))
    draw(results)


if __name__ == "__main__":
    main()
