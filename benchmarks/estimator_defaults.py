"""Which weight of the KL, and which noise, the estimators should have by default.

Decided on sets that are not in the table of `benchmarks/estimators.py`: 400 rows to learn from and 600 to judge by, of
kin8nm, naval, power and wine; 500 and 1,000 of Fashion-MNIST, pooled to 7 x 7 pixels, and of an artificial problem with 3
classes.

    INDUCING_DATA=... python benchmarks/estimator_defaults.py
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import make_classification

import inducing
from inducing.data import images, uci
from inducing.estimators.architectures import BNN_FAST

RESULTS = Path(__file__).with_suffix(".jsonl")
WEIGHTS = (1.0, 0.5, 0.2, 0.05)


def table(name: str) -> tuple[np.ndarray, ...]:
    """Rows of the training part of split 0: those to learn from, and those to judge by."""
    data = uci.load(name, 0, torch.float64)
    x, y = data.x_train[:1000].numpy(), data.y_train[:1000, 0].numpy()
    return x[:400], y[:400], x[400:], y[400:]


def classes(name: str) -> tuple[np.ndarray, ...]:
    """Features and labels of 500 rows to learn from and 1,000 to judge by."""
    if name == "fashion-mnist":
        pictures = images.load(name)
        x = torch.nn.functional.avg_pool2d(pictures.x[:1500], 4).flatten(1).double().numpy()
        y = pictures.y[:1500].numpy()
    else:
        x, y = make_classification(1500, 10, n_informative=6, n_classes=3, flip_y=0.05, random_state=0)
    return x[:500], y[:500], x[500:], y[500:]


def judge_regression(name: str, weight: float, likelihood: str) -> dict[str, float]:
    """Log-likelihood of rows that were not learned from, and how many of them a 90 % interval holds."""
    x, y, x_test, y_test = table(name)
    recipe = BNN_FAST.replace(temperature=weight)
    estimator = inducing.BNNRegressor(recipe=recipe, likelihood=likelihood, random_state=0).fit(x, y)
    prediction, targets = estimator.predict_distribution(x_test), torch.from_numpy(y_test)[:, None]
    return {
        "log_likelihood": inducing.metrics.log_likelihood(prediction, targets),
        "coverage_90": inducing.metrics.coverage(prediction, targets, 0.9),
    }


def judge_classes(name: str, weight: float, likelihood: str) -> dict[str, float]:
    """Log-likelihood, accuracy and calibration error of rows that were not learned from."""
    x, y, x_test, y_test = classes(name)
    estimator = inducing.BNNClassifier(recipe=BNN_FAST.replace(temperature=weight), random_state=0).fit(x, y)
    prediction, targets = estimator.predict_distribution(x_test), torch.from_numpy(y_test)
    return {
        "log_likelihood": inducing.metrics.log_likelihood(prediction, targets),
        "accuracy": inducing.metrics.accuracy(prediction, targets),
        "ece": inducing.metrics.expected_calibration_error(prediction, targets, 10),
    }


def main() -> None:
    """Run what is not stored."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    done = {tuple(json.loads(line)[key] for key in ("set", "weight", "likelihood")) for line in lines}
    regression = itertools.product(("power", "wine", "kin8nm", "naval"), WEIGHTS, ("gaussian", "heteroscedastic"))
    work = [(judge_regression, *point) for point in regression]
    work += [(judge_classes, name, weight, "auto") for name in ("fashion-mnist", "artificial") for weight in WEIGHTS]
    for judge, name, weight, likelihood in work:
        if (name, weight, likelihood) in done:
            continue
        record = {"set": name, "weight": weight, "likelihood": likelihood, **judge(name, weight, likelihood)}
        with RESULTS.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(record, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
