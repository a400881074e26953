"""Mixtures of four global posteriors on UCI regression: nats and test log-likelihood gained over the best component.

    INDUCING_DATA=... python -m benchmarks.mixtures          # mixtures.json, mixtures.md; datasets in mixtures.json are kept
    INDUCING_DATA=... python -m benchmarks.mixtures yacht    # this dataset only

One network with a hidden layer is fitted with four seeds, split 0, one thread. A first fit learns the noise variance, which
is then fixed for all components, since a mixture is a posterior of one model.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from typing import Any

import torch

import inducing
from benchmarks.processes import ROOT
from inducing.data import uci
from inducing.prediction.predictive import Predictive

RESULTS, PAGE = ROOT / "benchmarks" / "mixtures.json", ROOT / "benchmarks" / "mixtures.md"
DATASETS = ("yacht", "energy")
COMPONENTS, HIDDEN, INDUCING = 4, 50, 50
SETTINGS = {"num_steps": 1000, "elbo_samples": 3000, "test_samples": 400}
INTRODUCTION = f"""# Mixtures of posteriors

Made by `python -m benchmarks.mixtures` from `mixtures.json`. A network with {HIDDEN} hidden units and {INDUCING} global
inducing points, fitted with {COMPONENTS} seeds for {SETTINGS["num_steps"]:,} steps, split 0. The noise variance was learned
in a fit before, and is the same for all. ELBOs are nats for the whole training set, from {SETTINGS["elbo_samples"]} draws of
each component. The mixture has the weights with the highest ELBO, the ensemble has equal weights. At most
log {COMPONENTS} = {math.log(COMPONENTS):.2f} nats can be gained. Test log-likelihoods are means over the test rows on the
original scale, from {SETTINGS["test_samples"]} functions. Gains are over the component with the highest ELBO, with the
standard error over the test rows. Seconds of one thread: all fits, then the rest (weights, densities, both ELBOs).

"""
HEADINGS = (
    "dataset",
    "ELBOs of the components",
    "mixture ELBO",
    "gain",
    "weights",
    "ensemble ELBO",
    "test LL, best",
    "gain, mixture",
    "gain, ensemble",
    "seconds",
)


def fitted(seed: int, likelihood: inducing.Gaussian, x: torch.Tensor, y: torch.Tensor) -> inducing.Network:
    """One component, with its own inducing points and initial values."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(x), generator=generator)[:INDUCING]
    points = {"inducing_points": x[rows], "inducing_targets": y[rows]}
    network = inducing.models.mlp(x.shape[1], 1, [HIDDEN], generator=generator, **points)
    inducing.fit(network, likelihood, (x, y), num_steps=SETTINGS["num_steps"], seed=seed, progress=False)
    return network


def run(name: str) -> dict[str, Any]:
    """Fit the components, and compare them with their mixture."""
    data = uci.load(name, 0)
    rows, start = (data.x_train, data.y_train), time.process_time()
    likelihood = inducing.Gaussian()
    fitted(COMPONENTS, likelihood, *rows)
    likelihood.requires_grad_(False)
    networks = [fitted(seed, likelihood, *rows) for seed in range(COMPONENTS)]
    seconds, start = time.process_time() - start, time.process_time()
    ensemble, mixture = inducing.Mixture(networks), inducing.Mixture(networks)
    mixture.optimise_weights(likelihood, rows, SETTINGS["elbo_samples"])
    equal, bound = (each.elbo(likelihood, rows, SETTINGS["elbo_samples"]) for each in (ensemble, mixture))
    evaluation = time.process_time() - start

    def log_likelihoods(model: inducing.Network | inducing.Mixture) -> list[float]:
        predictive: Predictive = inducing.predict(model, likelihood, data.x_test, SETTINGS["test_samples"])
        predictive = predictive.unstandardise(data.target_mean, data.target_std)
        return [round(each, 4) for each in predictive.log_prob(data.y_test).flatten().tolist()]

    best = int(bound.component_elbos.argmax())
    models = {"best": networks[best], "mixture": mixture, "ensemble": ensemble}
    return {
        "elbos": bound.component_elbos.tolist(),
        "mixture": float(bound.value),
        "mixture_error": float(bound.standard_error),
        "ensemble": float(equal.value),
        "weights": mixture.weights.tolist(),
        "noise_variance": likelihood.noise_variance.item(),
        "log_likelihoods": {key: log_likelihoods(model) for key, model in models.items()},
        "seconds": [seconds, evaluation],
    }


def page(results: dict[str, Any]) -> str:
    """The table."""
    lines = [HEADINGS, ["---", "---", *["---:"] * (len(HEADINGS) - 2)]]
    for name, found in results.items():
        scores = {key: torch.tensor(values) for key, values in found["log_likelihoods"].items()}
        gains = [scores[key] - scores["best"] for key in ("mixture", "ensemble")]
        lines.append(
            [
                name,
                ", ".join(f"{each:.1f}" for each in found["elbos"]),
                f"{found['mixture']:.1f} ± {found['mixture_error']:.1f}",
                f"{found['mixture'] - max(found['elbos']):+.2f}",
                ", ".join(f"{each:.2f}" for each in found["weights"]),
                f"{found['ensemble']:.1f}",
                f"{scores['best'].mean():.3f}",
                *(f"{gain.mean():+.3f} ± {gain.std() / len(gain) ** 0.5:.3f}" for gain in gains),
                " + ".join(f"{each:.0f}" for each in found["seconds"]),
            ]
        )
    return INTRODUCTION + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def stored() -> dict[str, Any]:
    """The results in mixtures.json."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def main() -> None:
    """Measure the datasets that are not in mixtures.json, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("datasets", nargs="*", default=list(DATASETS), help="names of datasets")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in parser.parse_args().datasets:
        if name not in stored():
            found = run(name)
            RESULTS.write_text(json.dumps(stored() | {name: found}) + "\n")
            print(page({name: found}).splitlines()[-1], flush=True)
    PAGE.write_text(page(stored()))


if __name__ == "__main__":
    main()
