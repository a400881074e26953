"""Time to quality: what the "fast" recipe needs to reach the ELBO that the "paper" recipe ends with.

    python benchmarks/recipes.py run toy yacht boston    # both recipes on each problem, one after the other
    python benchmarks/recipes.py write                   # docs/recipes.md from what has been run

Both sides run in the same process on the same data. Machines are shared and noisy, so the cost of a step is measured again
at the end, the sides alternating, and the ratio of whole runs is computed from that. Results are kept in
benchmarks/recipes.json; a problem that is run again is replaced. The UCI sets come from INDUCING_DATA or by download.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch

import inducing
from inducing.files import write_atomically
from inducing.inference.recipes import FAST, PAPER

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "recipes.json"
PAGE = ROOT / "docs" / "recipes.md"


def problem(name: str) -> tuple[inducing.Network, inducing.Gaussian, tuple[torch.Tensor, torch.Tensor], str]:
    """A network at its first parameters, a likelihood, the data, and the name of the paper's recipe."""
    torch.manual_seed(0)
    if name == "toy":
        toy = inducing.data.toy.cubic()
        network = inducing.models.mlp(1, 1, num_inducing=100)
        return network, inducing.Gaussian(toy.noise_variance, learn_variance=False), (toy.x, toy.y), "toy"
    split = inducing.data.uci.load(name, 0)
    network = inducing.models.mlp(
        split.x_train.shape[1],
        1,
        posterior=inducing.GlobalInducing("per_output"),
        inducing_points=split.x_train,
        inducing_targets=split.y_train,
    )
    return network, inducing.Gaussian(), (split.x_train, split.y_train), "uci"


def run(name: str, stored: dict[str, Any]) -> dict[str, Any]:
    """Train with both recipes, or with those that are not stored yet, and measure what their steps cost."""
    results: dict[str, Any] = dict(stored)
    for side in ("paper", "fast"):
        if side in stored:
            continue
        network, likelihood, data, paper = problem(name)
        recipe = PAPER[paper] if side == "paper" else FAST
        history = inducing.fit(network, likelihood, data, recipe, description=f"{name} {side}")
        terms = inducing.evaluate(network, likelihood, data, 1000)
        results[side] = {
            "elbo": terms.elbo_per_datapoint.item(),
            "standard_error": (terms.samples.std() / terms.num_data / 1000**0.5).item(),
            "seconds": history[-1].seconds,
            "steps": len(history),
        }
    results["quiet_seconds"] = run_cost(name)
    return results


def run_cost(name: str) -> dict[str, float]:
    """Seconds that each recipe takes on a quiet machine: its steps, at the fastest of ten timings that alternate."""
    network, likelihood, (x, y), paper = problem(name)
    elbo = inducing.ELBO(network, likelihood, len(x))
    recipes = {"paper": PAPER[paper], "fast": FAST}
    counts = {side: Counter(r.samples_at(step) for step in range(r.num_steps)) for side, r in recipes.items()}
    fastest: dict[tuple[str, int], float] = {}
    for _ in range(10):
        for side, recipe in recipes.items():
            for samples in counts[side]:
                start = time.perf_counter()
                with network.closed_form_kl(recipe.closed_form_kl):
                    (-elbo(x, y, samples).objective).backward()
                elapsed = time.perf_counter() - start
                fastest[side, samples] = min(elapsed, fastest.get((side, samples), elapsed))
    return {side: sum(n * fastest[side, samples] for samples, n in counts[side].items()) for side in recipes}


def page(results: dict[str, Any]) -> str:
    """The table as Markdown."""
    lines = [
        "# Recipes: time to quality",
        "",
        "Made by `python benchmarks/recipes.py`. Both recipes on the same machine. Toy: 100 inducing points,",
        "shared precision. UCI: split 0, inducing points at all training rows, a precision for each output. ELBO in nats",
        "per data point from 1,000 samples after training, with its standard error. Seconds are those of the run, on",
        "a machine with other work; the ratio is that of whole runs at the cost of a step measured side by side afterwards.",
        "One seed. The settings of `fast` were chosen on yacht, split 0, among about fifteen, by this ELBO; other seeds",
        "move it by about 0.02, so a lead of less than that says that the two are equal. The runs of `paper` are older than",
        "the gradients of `inducing.linalg.reparameterisation`; the cost of its steps is today's.",
        "",
        "| problem | paper: ELBO | seconds | fast: ELBO | seconds | reached | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, result in results.items():
        paper, fast, quiet = result["paper"], result["fast"], result["quiet_seconds"]
        error = (paper["standard_error"] ** 2 + fast["standard_error"] ** 2) ** 0.5
        difference = fast["elbo"] - paper["elbo"]
        verdict = "yes" if difference >= 0 else f"short by {-difference:.3f}"
        if -2 * error <= difference < 0:
            verdict = "within 2 standard errors"
        cells = [f"{side['elbo']:.3f} ± {side['standard_error']:.3f} | {side['seconds']:.0f}" for side in (paper, fast)]
        lines.append(f"| {name} | {cells[0]} | {cells[1]} | {verdict} | {quiet['paper'] / quiet['fast']:.1f} |")
    lines += ["", "The `fast` recipe:", "", *(f"    {line}" for line in str(FAST).splitlines()), ""]
    lines += [
        "The `paper` recipe for UCI regression:",
        "",
        *(f"    {line}" for line in str(PAPER["uci"]).splitlines()),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Run problems, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "write"])
    parser.add_argument("problems", nargs="*", default=["toy", "yacht", "boston"])
    parser.add_argument("--reuse-paper", action="store_true", help="keep the stored runs of the paper's recipe")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    warnings.filterwarnings("ignore", message=".*inducing points for.*data points")
    if arguments.what == "run":
        for name in arguments.problems:
            stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            kept = {"paper": stored[name]["paper"]} if arguments.reuse_paper and name in stored else {}
            result = run(name, kept)
            stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            write_atomically(RESULTS, (json.dumps(stored | {name: result}, indent=1) + "\n").encode())
    stored = json.loads(RESULTS.read_text())
    ordered = {name: stored[name] for name in ("toy", "yacht", "boston") if name in stored}
    write_atomically(PAGE, page(ordered).encode())


if __name__ == "__main__":
    main()
