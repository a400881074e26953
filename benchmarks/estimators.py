"""The regressors with their defaults, beside those of other packages.

    python -m benchmarks.estimators run                       # everything that has not been run yet
    python -m benchmarks.estimators run --sets yacht --folds 0 --models BNNRegressor
    python -m benchmarks.estimators run --folds 5 6 7 8 9 --sets diabetes boston concrete energy yacht
    python -m benchmarks.estimators write                     # docs/estimators.md from what has been run

Each result is a line of benchmarks/estimators.jsonl, written as soon as it is there; what is in the file is not done again.
The datasets are diabetes in five folds, and splits 0 to 4 of nine UCI datasets (from INDUCING_DATA or by download). Folds 5
to 9 are splits 5 to 9, and diabetes shuffled anew. One choice has seen their figures: degrees of freedom on energy.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_diabetes
from sklearn.model_selection import KFold

import inducing
from benchmarks.estimator_page import FOLDS, REGRESSION, REGRESSORS, UCI, Results, figure, page
from benchmarks.estimator_peers import MOST_GP_ROWS, PEERS
from inducing.files import write_atomically

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "estimators.jsonl"
PAGE = ROOT / "docs" / "estimators.md"

Fold = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def load(name: str, fold: int) -> Fold:
    """Training inputs and targets, test inputs and targets."""
    if name in UCI:
        split = inducing.data.uci.load(name, fold, torch.float64)
        y_train = split.target_mean + split.target_std * split.y_train
        return split.x_train.numpy(), y_train.numpy()[:, 0], split.x_test.numpy(), split.y_test.numpy()[:, 0]
    x, y = load_diabetes(return_X_y=True)
    folds = KFold(FOLDS, shuffle=True, random_state=fold // FOLDS)
    train, test = list(folds.split(x, y))[fold % FOLDS]
    return x[train], y[train], x[test], y[test]


def run_fold(model: str, data: Fold, fold: int) -> dict[str, Any]:
    """Test log-likelihood, RMSE, CRPS and coverage of one model on one fold."""
    x, y, x_test, y_test = data
    start = time.perf_counter()
    if model in PEERS:
        prediction = PEERS[model](x, y, x_test, fold)
    else:
        estimator = getattr(inducing, model)(random_state=fold).fit(x, y)
        prediction = estimator.predict_distribution(x_test)
    targets = torch.from_numpy(y_test)[:, None]
    metrics = inducing.metrics
    return {
        "log_likelihood": metrics.log_likelihood(prediction, targets),
        "rmse": metrics.rmse(prediction, targets),
        "crps": metrics.crps(prediction, targets),
        **{f"coverage_{level}": metrics.coverage(prediction, targets, level / 100) for level in (50, 90, 95)},
        "test_rows": len(y_test),
        "seconds": time.perf_counter() - start,
    }


def read() -> Results:
    """All stored results; the last line for each set, fold and model counts."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    records = [json.loads(line) for line in lines]
    return {(record["set"], record["fold"], record["model"]): record for record in records}


def run(sets: list[str], folds: list[int], models: list[str]) -> None:
    """Run what is not stored, fold by fold, so that a part of it is already a fair comparison."""
    for fold in folds:
        for name in sets:
            for model in REGRESSORS:
                if (models and model not in models) or (name, fold, model) in read():
                    continue
                data = load(name, fold)
                if model == "GaussianProcess" and len(data[0]) > MOST_GP_ROWS:
                    continue
                result = run_fold(model, data, fold)
                record = {"set": name, "fold": fold, "model": model, **result}
                with RESULTS.open("a") as file:
                    file.write(json.dumps(record) + "\n")
                shown = {key: round(value, 3) for key, value in result.items() if isinstance(value, float)}
                print(name, fold, model, shown, flush=True)


def main() -> None:
    """Run folds, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "write"])
    parser.add_argument("--sets", nargs="*", default=[*REGRESSION])
    parser.add_argument("--folds", nargs="*", type=int, default=list(range(FOLDS)))
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.what == "run":
        run(arguments.sets, arguments.folds, arguments.models)
    write_atomically(PAGE, page(read()).encode())
    figure(read()).savefig(PAGE.with_suffix(".png"), dpi=150)


if __name__ == "__main__":
    main()
