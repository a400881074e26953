"""The classifiers with their defaults, beside a tuned logistic regression and boosted trees: ten folds of four datasets.

    python -m benchmarks.classifiers run                      # everything that has not been run yet
    python -m benchmarks.classifiers run --sets wine --models BNNClassifier
    python -m benchmarks.classifiers write                    # docs/classifiers.md from what has been run

Each result is a line of benchmarks/classifiers.jsonl with the predictions of all test rows of a fold, written as soon as it
is finished. What is in the file is not done again. Each row is a test row of one fold, and models are compared on all rows.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import inducing
from benchmarks.classifier_page import CLASSIFIERS, FOLDS, Results, page
from benchmarks.cover_types import generate
from inducing.files import write_atomically

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "classifiers.jsonl", ROOT / "docs" / "classifiers.md"
LEAST_PROBABILITY = 1e-300
SETS = {
    "digits": lambda: load_digits(return_X_y=True),
    "breast-cancer": lambda: load_breast_cancer(return_X_y=True),
    "wine": lambda: load_wine(return_X_y=True),
    "cover types": lambda: generate(3000, seed=0),
}


def make(model: str, seed: int) -> Any:
    """An unfitted classifier."""
    if model == "LogisticRegression":
        pipeline = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000))
        grid = {"logisticregression__C": np.logspace(-3, 2, 11)}
        return GridSearchCV(pipeline, grid, cv=5, scoring="neg_log_loss")
    if model == "BoostedTrees":
        return HistGradientBoostingClassifier(random_state=seed)
    return getattr(inducing, model)(random_state=seed)


def run_fold(name: str, fold: int, model: str) -> dict[str, Any]:
    """For each test row of a fold: log-probability of its class, largest probability, and whether that class is right."""
    x, y = SETS[name]()
    train, test = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(x, y))[fold]
    start = time.perf_counter()
    classifier = make(model, fold).fit(x[train], y[train])
    probabilities = classifier.predict_proba(x[test])
    seconds = time.perf_counter() - start
    of_class = probabilities[np.arange(len(test)), np.searchsorted(classifier.classes_, y[test])]
    return {
        "log_probability": np.log(of_class.clip(LEAST_PROBABILITY)).round(5).tolist(),
        "confidence": probabilities.max(1).round(5).tolist(),
        "right": (classifier.classes_[probabilities.argmax(1)] == y[test]).astype(int).tolist(),
        "seconds": round(seconds, 1),
    }


def read() -> Results:
    """All stored results."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    records = [json.loads(line) for line in lines]
    return {(record["set"], record["fold"], record["model"]): record for record in records}


def run(sets: list[str], folds: list[int], models: list[str]) -> None:
    """Run what is not stored, fold by fold, so that a part of it is already a fair comparison."""
    for fold in folds:
        for name in sets:
            for model in models:
                if (name, fold, model) in read():
                    continue
                result = run_fold(name, fold, model)
                with RESULTS.open("a") as file:
                    file.write(json.dumps({"set": name, "fold": fold, "model": model, **result}) + "\n")
                accuracy, log_likelihood = np.mean(result["right"]), np.mean(result["log_probability"])
                print(name, fold, model, f"{accuracy:.3f} {log_likelihood:.3f} {result['seconds']} s", flush=True)


def main() -> None:
    """Run folds, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "write"])
    parser.add_argument("--sets", nargs="*", choices=SETS, default=[*SETS])
    parser.add_argument("--folds", nargs="*", type=int, default=list(range(FOLDS)))
    parser.add_argument("--models", nargs="*", choices=CLASSIFIERS, default=[*CLASSIFIERS])
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.what == "run":
        run(arguments.sets, arguments.folds, arguments.models)
    else:
        write_atomically(PAGE, page(read(), list(SETS)).encode())


if __name__ == "__main__":
    main()
