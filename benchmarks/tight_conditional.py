"""Deep Gaussian processes trained with the standard ELBO and with the tight-conditional ELBO, on UCI regression.

    INDUCING_DATA=... python -m benchmarks.tight_conditional             # tight_conditional.json, tight_conditional.md
    INDUCING_DATA=... python -m benchmarks.tight_conditional yacht wine  # these datasets only; results of others are kept
    INDUCING_DATA=... python -m benchmarks.tight_conditional --times     # only the time of a step, of all datasets

Depth 2, 100 global inducing points, split 0, one thread. Both runs have the same settings, seed and number of steps. The
settings are those of the preset cpu of `inducing reproduce uci-dgp`; large datasets take fewer steps, on batches of 1,000.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import torch

import inducing
from benchmarks.processes import ROOT
from inducing import metrics
from inducing.data import uci
from inducing.experiments.paper import published

RESULTS, PAGE = ROOT / "benchmarks" / "tight_conditional.json", ROOT / "benchmarks" / "tight_conditional.md"
# number of steps, and rows in a batch
DATASETS = {
    "boston": (3000, 1000),
    "concrete": (3000, 1000),
    "energy": (3000, 1000),
    "wine": (1500, 2000),
    "yacht": (3000, 1000),
    "kin8nm": (2000, 1000),
    "power": (2000, 1000),
    "naval": (2000, 1000),
    "protein": (2000, 1000),
}
INTRODUCTION = """# The tight conditional

Made by `python -m benchmarks.tight_conditional` from `tight_conditional.json`. Deep Gaussian processes of depth 2 with 100
global inducing points, split 0, one thread. Bounds are nats per data point of the standardised training targets, from 100
posterior samples: the standard ELBO / the tight-conditional ELBO, of the network trained with the first and of the network
trained with the second. Test log-likelihoods (LL) are on the original scale, from 100 functions. Their difference has the
standard error over the test rows; it does not include the variation between seeds. Milliseconds of a step, ELBO / tight:
processor time, the two in turns. Paper: the best published ELBO at depth 2 with 100 inducing points and its posterior, a
mean over splits, after more steps than here.

| dataset | trained with ELBO | trained with tight | paper, best | LL, ELBO | LL, tight | difference | ms | noise variances |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""
# steps that are timed, and repetitions, of which the median counts
TIMED_STEPS, REPETITIONS = 15, 3


def network(conditional: str, x: torch.Tensor, y: torch.Tensor) -> inducing.Network:
    """The network of the preset cpu of uci-dgp, or one with a tight conditional."""
    posteriors = [inducing.GlobalInducing("full", 2.0), inducing.GlobalInducing("full")]
    return inducing.models.deep_gp(
        x.shape[1],
        1,
        2,
        posterior=posteriors,
        conditional=conditional,
        inducing_points=x[:100],
        inducing_targets=y[:100],
        generator=torch.Generator().manual_seed(0),
    )


def run(name: str, conditional: str) -> dict[str, Any]:
    """Train with one bound. Evaluate both bounds and the test log-likelihood."""
    num_steps, batch_size = DATASETS[name]
    data = uci.load(name, 0)
    rows = data.x_train, data.y_train
    trained, likelihood = network(conditional, *rows), inducing.Gaussian()
    settings = {"num_steps": num_steps, "num_samples": 2, "early_samples": None, "batch_size": batch_size}
    start = time.perf_counter()
    inducing.fit(trained, likelihood, rows, "fast", seed=0, progress=False, **settings)
    seconds = time.perf_counter() - start
    bounds = {}
    for kind in ("prior", "tight"):
        same = network(kind, *rows)
        same.load_state_dict(trained.state_dict())
        terms = inducing.evaluate(same, likelihood, rows, 100, batch_size=500)
        bounds[terms.bound] = float(terms.elbo_per_datapoint)
    predictive = inducing.predict(trained, likelihood, data.x_test, 100, batch_size=500)
    predictive = predictive.unstandardise(data.target_mean, data.target_std)
    return {
        **bounds,
        "log_likelihoods": [round(each, 4) for each in predictive.log_prob(data.y_test).flatten().tolist()],
        "rmse": metrics.rmse(predictive, data.y_test),
        "noise_variance": likelihood.noise_variance.item(),
        "milliseconds": 1000 * seconds / num_steps,
    }


def step_times(name: str) -> list[float]:
    """Milliseconds of processor time of a step with the standard and the tight conditional, in turns."""
    batch_size, data = DATASETS[name][1], uci.load(name, 0)
    rows = data.x_train, data.y_train
    settings = {"num_steps": TIMED_STEPS, "num_samples": 2, "early_samples": None, "batch_size": batch_size}
    settings |= {"optimal_start": False, "progress": False}
    times: dict[str, list[float]] = {"prior": [], "tight": []}
    for _ in range(REPETITIONS):
        for conditional, measured in times.items():
            trained = network(conditional, *rows)
            start = time.process_time()
            inducing.fit(trained, inducing.Gaussian(), rows, "fast", **settings)
            measured.append(1000 * (time.process_time() - start) / TIMED_STEPS)
    return [sorted(measured)[REPETITIONS // 2] for measured in times.values()]


def best_published(name: str) -> str:
    """The paper's highest ELBO at depth 2, and its posterior."""
    found = {key: each["elbo_per_datapoint"][0] for key, each in published()["uci_dgp"][name]["2"].items()}
    best = max(found.values())
    return f"{best:.2f} ({', '.join(key for key, value in found.items() if value == best)})"


def cost_of_all(results: dict[str, Any]) -> str:
    """A sentence about the time of a step."""
    times = [found["step_milliseconds"] for found in results.values() if "step_milliseconds" in found]
    if not times:
        return ""
    more = sorted(100 * (tight / standard - 1) for standard, tight in times)
    return (
        f"A step with the tight conditional takes {more[len(more) // 2]:.0f} % more time in the median of the datasets "
        f"(between {more[0]:.0f} % and {more[-1]:.0f} %, measured beside other work on the machine).\n"
    )


def page(results: dict[str, Any]) -> str:
    """The table."""
    rows = []
    for name in (name for name in DATASETS if name in results):
        standard, tight = results[name]["prior"], results[name]["tight"]
        first, second = (torch.tensor(each["log_likelihoods"]) for each in (standard, tight))
        error = (second - first).std() / len(first) ** 0.5
        bounds = [f"{each['ELBO']:.3f} / {each['tight-conditional ELBO']:.3f}" for each in (standard, tight)]
        scores = [f"{values.mean():.3f}" for values in (first, second)]
        noise = " / ".join(f"{each['noise_variance']:.3g}" for each in (standard, tight))
        difference = f"{(second - first).mean():+.3f} ± {error:.3f}"
        times = results[name].get("step_milliseconds")
        cost = " / ".join(f"{each:.0f}" for each in times) if times else ""
        rows.append(" | ".join([name, *bounds, best_published(name), *scores, difference, cost, noise]))
    return INTRODUCTION + "".join(f"| {row} |\n" for row in rows) + "\n" + cost_of_all(results)


def main() -> None:
    """Measure the datasets, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("datasets", nargs="*", default=list(DATASETS), help="names of datasets")
    parser.add_argument("--times", action="store_true", help="only measure the time of a step")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in arguments.datasets:
        if not arguments.times:
            results[name] = {conditional: run(name, conditional) for conditional in ("prior", "tight")}
        results[name]["step_milliseconds"] = step_times(name)
        RESULTS.write_text(json.dumps(results) + "\n")
        PAGE.write_text(page(results))
        print(page({name: results[name]}).splitlines()[-3], flush=True)


if __name__ == "__main__":
    main()
