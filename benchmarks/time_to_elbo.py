"""The ELBO against training time: the default recipe of an earlier version, that of this version, and the paper's recipe.

    git worktree add ../before 00a979a
    INDUCING_DATA=... python -m benchmarks.time_to_elbo ../before/src     # time_to_elbo.json, docs/time_to_elbo.png

Four problems, each with a network of two hidden layers of 50 units and with a deep Gaussian process of two layers, both with
at most 100 global inducing points. Every run has a fresh process with one thread, and the runs of a problem follow each
other. The paper's recipe takes 5,000 to 20,000 steps; it stops after twice the time of the earlier version. ELBOs are those
of the training steps, averaged over 25 steps.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.versions import THIS_VERSION, run_version

ROOT = Path(__file__).parents[1]
RESULTS, FIGURE = ROOT / "benchmarks" / "time_to_elbo.json", ROOT / "docs" / "time_to_elbo.png"
PROBLEMS, MODELS = ("toy", "yacht", "boston", "kin8nm"), ("mlp", "deep_gp")
TITLES = {"mlp": "Bayesian neural network", "deep_gp": "deep Gaussian process"}
LABELS = {"before": "before", "after": "this version", "paper": "the paper's recipe"}
COLOURS = {"before": "tab:gray", "after": "tab:blue", "paper": "tab:orange"}
# steps in one mean, and points of a curve
WINDOW, POINTS = 25, 200


def train(problem: str, model: str, recipe: str, seconds: float) -> dict[str, Any]:
    """Train, and return times and ELBOs. It uses only what the earlier version has, too."""
    import torch

    import inducing

    torch.set_flush_denormal(True)
    warnings.simplefilter("ignore")
    if problem == "toy":
        data = inducing.data.toy.cubic()
        x, y = data.x, data.y
    else:
        split = inducing.data.uci.load(problem, 0)
        x, y = split.x_train, split.y_train
    points = {"inducing_points": x[:100], "inducing_targets": y[:100], "generator": torch.Generator().manual_seed(0)}
    if model == "mlp":
        network = inducing.models.mlp(x.shape[1], 1, [50, 50], **points)
    else:
        network = inducing.models.deep_gp(x.shape[1], 1, 2, **points)
    name = {
        "fast": "fast",
        "paper": "paper:dgp" if model == "deep_gp" else "paper:toy" if problem == "toy" else "paper",
    }
    settings = inducing.inference.recipes.as_recipe(name[recipe]).replace(batch_size=1000)
    history = inducing.fit(
        network,
        inducing.Gaussian(),
        (x, y),
        settings,
        callbacks=[lambda record: record.seconds > seconds],
        progress=False,
        seed=0,
    )
    elbo = np.convolve([record.elbo for record in history.records], np.ones(WINDOW) / WINDOW, "valid")
    times = np.array([record.seconds for record in history.records])[WINDOW - 1 :]
    kept = np.unique(np.geomspace(1, len(elbo), POINTS).astype(int) - 1)
    return {"seconds": times[kept].round(3).tolist(), "elbo": elbo[kept].round(4).tolist(), "steps": len(history)}


def measure(before: Path) -> list[dict[str, Any]]:
    """All runs, one after the other."""
    curves = []
    for model in MODELS:
        for problem in PROBLEMS:
            earlier = run_version(before, "time_to_elbo", problem, model, "fast", "inf")
            after = run_version(THIS_VERSION, "time_to_elbo", problem, model, "fast", "inf")
            limit = str(2 * earlier["seconds"][-1])
            paper = run_version(THIS_VERSION, "time_to_elbo", problem, model, "paper", limit)
            found = {"before": earlier, "after": after, "paper": paper}
            curves.append({"problem": problem, "model": model, "curves": found})
            ends = ", ".join(
                f"{name} {each['elbo'][-1]:.3f} in {each['seconds'][-1]:.0f} s" for name, each in found.items()
            )
            print(f"{model} {problem}: {ends}", flush=True)
    return curves


def draw(results: list[dict[str, Any]]) -> None:
    """The figure: a panel for each problem and model."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5.2), layout="constrained")
    panels = figure.subplots(len(MODELS), len(PROBLEMS))
    for result in results:
        axes = panels[MODELS.index(result["model"]), PROBLEMS.index(result["problem"])]
        for name, curve in result["curves"].items():
            axes.plot(curve["seconds"], curve["elbo"], color=COLOURS[name], label=LABELS[name])
        best = max(max(curve["elbo"]) for curve in result["curves"].values())
        axes.set(title=result["problem"], xscale="log", ylim=(best - 2.0, best + 0.1))
    for axes, model in zip(panels[:, 0], MODELS, strict=True):
        axes.set_ylabel(f"{TITLES[model]}\nELBO, nats per data point")
    for axes in panels[-1]:
        axes.set_xlabel("seconds of training")
    panels[0, 0].legend(loc="lower right", frameon=False)
    FigureCanvasAgg(figure).print_png(str(FIGURE))


def worker(problem: str, model: str, recipe: str, seconds: str) -> None:
    """Print the result of one run."""
    print(json.dumps(train(problem, model, recipe, float(seconds))))


def main() -> None:
    """Measure and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", nargs="?", type=Path, help="folder with the package of the earlier version")
    parser.add_argument("--draw", action="store_true", help="draw the figure from what was measured before")
    arguments = parser.parse_args()
    if not arguments.draw:
        if arguments.before is None:
            parser.error("name the folder of the earlier version, or --draw")
        RESULTS.write_text(json.dumps(measure(arguments.before)) + "\n")
    draw(json.loads(RESULTS.read_text()))


if __name__ == "__main__":
    main()
