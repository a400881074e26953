"""How many steps the default fits of estimators need, and at which learning rate.

Uses the datasets of `benchmarks/estimator_defaults.py`, which are not in the table of `benchmarks/estimators.py`, with 400
training and 600 test rows; for classes, its numbers of rows. Each line of the results has the log-likelihood of the test
rows, the ELBO, the number of steps, and the CPU seconds of the fit.

    INDUCING_DATA=... python -m benchmarks.estimator_steps
"""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from sklearn.base import is_classifier

import inducing
from benchmarks.estimator_defaults import CLASSES, TABLES, classes, table

RESULTS = Path(__file__).with_suffix(".jsonl")
# steps and learning rate
SETTINGS = {
    "DeepGPRegressor": ((1500, 0.03), (500, 0.03), (300, 0.1), (500, 0.1), (600, 0.1)),
    "BNNRegressor": ((1000, 0.03), (330, 0.03), (200, 0.1), (330, 0.1), (400, 0.1)),
    "DeepGPClassifier": ((1000, 0.03), (300, 0.06), (400, 0.06), (500, 0.06), (400, 0.1)),
    "BNNClassifier": (
        (1500, 0.03),
        *((500, 0.04), (600, 0.05), (750, 0.03), (750, 0.05), (500, 0.06), (400, 0.1), (500, 0.1)),
    ),
}


def fit_and_score(model: str, name: str, steps: int, rate: float) -> dict[str, Any]:
    """Fit with these settings, and score."""
    data = classes(name) if model.endswith("Classifier") else table(name, 400)
    estimator = getattr(inducing, model)(random_state=0)
    num_rows = len(data[0])
    recipe = estimator._fast_recipe(num_rows, num_rows).replace(num_steps=steps, learning_rate=rate)
    estimator.set_params(recipe=recipe)
    start = time.process_time()
    estimator.fit(*data[:2])
    seconds = time.process_time() - start
    prediction, targets = estimator.predict_distribution(data[2]), torch.from_numpy(data[3])
    return {
        "log_likelihood": inducing.metrics.log_likelihood(
            prediction, targets if is_classifier(estimator) else targets[:, None]
        ),
        "elbo": estimator.elbo_,
        "steps": len(estimator.history_),
        "cpu_seconds": round(seconds, 2),
    }


def main() -> None:
    """Go through all settings that have no result yet."""
    warnings.simplefilter("ignore")
    done = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    known = {(row["model"], row["name"], row["num_steps"], row["learning_rate"]) for row in done}
    for model, settings in SETTINGS.items():
        for name in CLASSES if model.endswith("Classifier") else TABLES:
            for steps, rate in settings:
                if (model, name, steps, rate) in known:
                    continue
                row = {"model": model, "name": name, "num_steps": steps, "learning_rate": rate}
                row |= fit_and_score(model, name, steps, rate)
                with RESULTS.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(row, flush=True)
                done.append(row)
    print_means(done)


def print_means(rows: list[dict[str, Any]]) -> None:
    """Print the mean log-likelihood and time of each setting over all sets."""
    for model, settings in SETTINGS.items():
        for steps, rate in settings:
            key = {"model": model, "num_steps": steps, "learning_rate": rate}
            chosen = [row for row in rows if key.items() <= row.items()]
            for name in ("log_likelihood", "elbo", "cpu_seconds"):
                key[name] = round(sum(row[name] for row in chosen) / max(len(chosen), 1), 3)
            print(key | {"sets": len(chosen)})


if __name__ == "__main__":
    main()
