"""Which weight of the KL the neural networks of tables should have by default, and which noise regressors.

Decided on sets that are not in the table of `benchmarks/estimators.py`. Regression: 200, 400 or 900 rows to learn from and
600 to judge by, of kin8nm, power, wine, and of Friedman's first and third problem; the weight is rows / WHOLE, not below a
tenth. Classes: Fashion-MNIST and MNIST pooled to 7 x 7 pixels, scikit-learn's wine, and two artificial problems.

Noise: with 400 rows of the same sets, of protein and of naval. Of yacht and energy, which are in that table, only the ELBO
of their training rows (split 0) is looked at, and that of deep Gaussian processes alone: it is not comparable where the
posterior is cold.

    INDUCING_DATA=... python benchmarks/estimator_defaults.py
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_wine, make_classification, make_friedman1, make_friedman3

import inducing
from inducing.data import images, uci
from inducing.estimators.architectures import BNN_CLASSES_FAST, BNN_FAST, LEAST_TEMPERATURE

RESULTS = Path(__file__).with_suffix(".jsonl")
TABLES = ("kin8nm", "power", "wine", "friedman1", "friedman3")
ROWS = (200, 400, 900)
WHOLE = (1250, 1750, 2500)
CLASSES = ("fashion-mnist", "mnist", "sklearn-wine", "two", "three")
WEIGHTS = (0.4, 0.2, 0.1, 0.05)
NOISE = {
    "BNNRegressor": ("gaussian", "heteroscedastic"),
    "DeepGPRegressor": ("gaussian", "heteroscedastic", "heteroscedastic-student-t"),
}
TRAINING_ONLY = ("yacht", "energy")
FIGURES = ("log_likelihood", "coverage_90", "elbo", "accuracy", "ece")


def table(name: str, rows: int) -> tuple[np.ndarray, ...]:
    """Rows to learn from, and rows to judge by; those of UCI sets are of the training part of split 0."""
    if name == "friedman1":
        x, y = make_friedman1(rows + 600, 8, noise=1.0, random_state=0)
    elif name == "friedman3":
        x, y = make_friedman3(rows + 600, noise=0.05, random_state=0)
    else:
        data = uci.load(name, 0, torch.float64)
        x, y = data.x_train[: rows + 600].numpy(), data.y_train[: rows + 600, 0].numpy()
    # nats are of standardised targets, so that sets can be compared
    y = (y - y[:rows].mean()) / y[:rows].std()
    return x[:rows], y[:rows], x[rows:], y[rows:]


def classes(name: str) -> tuple[np.ndarray, ...]:
    """Features and labels to learn from, and to judge by."""
    if name in ("fashion-mnist", "mnist"):
        rows, pictures = 500 if name == "fashion-mnist" else 1400, images.load(name)
        x = torch.nn.functional.avg_pool2d(pictures.x[: rows + 1000], 4).flatten(1).double().numpy()
        y = pictures.y[: rows + 1000].numpy()
    elif name == "sklearn-wine":
        x, y = load_wine(return_X_y=True)
        rows, order = 90, np.random.default_rng(0).permutation(len(x))
        x, y = x[order], y[order]
    elif name == "two":
        rows, settings = 450, {"n_informative": 6, "n_redundant": 20, "class_sep": 1.5, "n_clusters_per_class": 1}
        x, y = make_classification(rows + 1000, 30, n_classes=2, flip_y=0.02, random_state=1, **settings)
    else:
        rows = 500
        x, y = make_classification(rows + 1000, 10, n_informative=6, n_classes=3, flip_y=0.05, random_state=0)
    return x[:rows], y[:rows], x[rows:], y[rows:]


def judge_regression(name: str, rows: int, whole: int) -> dict[str, float]:
    """Log-likelihood of rows that were not learned from, and how many of them a 90 % interval holds."""
    recipe = BNN_FAST.replace(temperature=min(1.0, max(LEAST_TEMPERATURE, rows / whole)))
    return score(inducing.BNNRegressor(recipe=recipe, random_state=0), *table(name, rows))


def judge_noise(name: str, model: str, likelihood: str) -> dict[str, float]:
    """The ELBO, and where rows were left to judge by, the same as above."""
    estimator = getattr(inducing, model)(likelihood=likelihood, random_state=0)
    if name in TRAINING_ONLY:
        data = uci.load(name, 0, torch.float64)
        return {"elbo": estimator.fit(data.x_train.numpy(), data.y_train[:, 0].numpy()).elbo_}
    found = score(estimator, *table(name, 400))
    return found | ({} if model == "BNNRegressor" else {"elbo": estimator.elbo_})


def score(estimator: Any, x: Any, y: Any, x_test: Any, y_test: Any) -> dict[str, float]:
    """Fit, and judge by other rows."""
    prediction, targets = estimator.fit(x, y).predict_distribution(x_test), torch.from_numpy(y_test)[:, None]
    return {
        "log_likelihood": inducing.metrics.log_likelihood(prediction, targets),
        "coverage_90": inducing.metrics.coverage(prediction, targets, 0.9),
    }


def judge_classes(name: str, weight: float) -> dict[str, float]:
    """Log-likelihood, accuracy and calibration error of rows that were not learned from."""
    x, y, x_test, y_test = classes(name)
    recipe = BNN_CLASSES_FAST.replace(temperature=weight)
    estimator = inducing.BNNClassifier(recipe=recipe, random_state=0).fit(x, y)
    prediction, targets = estimator.predict_distribution(x_test), torch.from_numpy(y_test)
    return {
        "log_likelihood": inducing.metrics.log_likelihood(prediction, targets),
        "accuracy": inducing.metrics.accuracy(prediction, targets),
        "ece": inducing.metrics.expected_calibration_error(prediction, targets, 10),
    }


def main() -> None:
    """Run what is not stored, and print the means."""
    points = [{"set": name, "rows": rows, "whole": whole} for whole in WHOLE for name in TABLES for rows in ROWS]
    points += [{"set": name, "weight": weight} for weight in WEIGHTS for name in CLASSES]
    for model, choices in NOISE.items():
        sets = (*TABLES, "protein", "naval", *(TRAINING_ONLY if model == "DeepGPRegressor" else ()))
        points += [{"set": name, "model": model, "likelihood": each} for each in choices for name in sets]
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    records = [json.loads(line) for line in lines]
    warnings.simplefilter("ignore", UserWarning)
    for point in points:
        if any(point.items() <= record.items() for record in records):
            continue
        name, *rest = point.values()
        judge = judge_regression if "rows" in point else judge_noise if "likelihood" in point else judge_classes
        record = point | judge(name, *rest)
        records.append(record)
        with RESULTS.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(record, flush=True)
    groups = [{"whole": whole} for whole in WHOLE] + [{"weight": weight} for weight in WEIGHTS]
    groups += [{"model": model, "likelihood": each} for model, choices in NOISE.items() for each in choices]
    for group in groups:
        chosen = [record for record in records if group.items() <= record.items()]
        columns = {key: [record[key] for record in chosen if key in record] for key in FIGURES}
        print(group, {key: round(float(np.mean(v)), 3) for key, v in columns.items() if v})


if __name__ == "__main__":
    main()
