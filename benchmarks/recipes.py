"""Time to quality: what the "fast" recipe needs to reach the ELBO that the "paper" recipe ends with.

    python benchmarks/recipes.py run toy yacht boston    # both recipes on each problem, one after the other
    python benchmarks/recipes.py write                   # docs/recipes.md from what has been run

Both sides run in the same process on the same data, so their ratio means something although their times do not. Results
are kept in benchmarks/recipes.json; a problem that is run again is replaced. The UCI sets come from INDUCING_DATA or by
download.
"""

from __future__ import annotations

import argparse
import json
import warnings
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


def run(name: str) -> dict[str, Any]:
    """Train with both recipes; find when the fast one first had the ELBO that the other ends with."""
    results: dict[str, Any] = {}
    for side in ("paper", "fast"):
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
        if side == "fast":
            results["reached"] = reached(history, results["paper"]["elbo"])
    return results


def reached(history: inducing.History, target: float, window: int = 50) -> float | None:
    """Seconds until the mean ELBO of the last steps is that of the target for the first time, or None."""
    values = torch.tensor(history.elbo)
    for end in range(window, len(values) + 1):
        if values[end - window : end].mean() >= target:
            return history[end - 1].seconds
    return None


def page(results: dict[str, Any]) -> str:
    """The table as Markdown."""
    lines = [
        "# Recipes: time to quality",
        "",
        "Made by `python benchmarks/recipes.py`. Both recipes in one run on the same machine: the ratio counts, not the",
        "seconds. Toy: 100 inducing points, shared precision. UCI: split 0, inducing points at all training rows, a",
        "precision for each output. ELBO in nats per data point from 1,000 samples after training, with its standard error.",
        "",
        "| problem | paper: ELBO | seconds | fast: ELBO | seconds | paper's ELBO reached after | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, result in results.items():
        paper, fast, time = result["paper"], result["fast"], result["reached"]
        when = "not reached" if time is None else f"{time:.0f} s"
        ratio = paper["seconds"] / (time or fast["seconds"])
        cells = [f"{side['elbo']:.3f} ± {side['standard_error']:.3f} | {side['seconds']:.0f}" for side in (paper, fast)]
        lines.append(f"| {name} | {cells[0]} | {cells[1]} | {when} | {ratio:.1f} |")
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
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    warnings.filterwarnings("ignore", message=".*inducing points for.*data points")
    if arguments.what == "run":
        for name in arguments.problems:
            result = run(name)
            stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            write_atomically(RESULTS, (json.dumps(stored | {name: result}, indent=1) + "\n").encode())
    stored = json.loads(RESULTS.read_text())
    ordered = {name: stored[name] for name in ("toy", "yacht", "boston") if name in stored}
    write_atomically(PAGE, page(ordered).encode())


if __name__ == "__main__":
    main()
