"""The estimators with their defaults, beside those of other packages and a tuned logistic regression.

    python -m benchmarks.estimators run                       # everything that has not been run yet
    python -m benchmarks.estimators run --sets yacht --folds 0 --models BNNRegressor
    python -m benchmarks.estimators run --folds 5 6 7 8 9 --sets diabetes boston concrete energy yacht
    python -m benchmarks.estimators write                     # docs/estimators.md from what has been run

Each result is a line of benchmarks/estimators.jsonl, written as soon as it is there; what is in the file is not done again.
Regression: diabetes in five folds, and splits 0 to 4 of nine UCI datasets (from INDUCING_DATA or by download).
Classification: digits and breast cancer in five stratified folds. Folds 5 to 9 of regression are splits 5 to 9, and diabetes
shuffled anew: no choice has seen their figures.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import inducing
from benchmarks.estimator_peers import MOST_GP_ROWS, PEERS
from inducing.experiments.paper import published
from inducing.files import write_atomically

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "estimators.jsonl"
PAGE = ROOT / "docs" / "estimators.md"
UCI = ("boston", "concrete", "energy", "yacht", "wine", "kin8nm", "power", "naval", "protein")
REGRESSION = ("diabetes", *UCI)
CLASSIFICATION = ("digits", "breast-cancer")
OURS = ("BNNRegressor", "DeepGPRegressor", "AutoRegressor")
REGRESSORS = (*PEERS, *OURS)
CLASSIFIERS = ("LogisticRegression", "BoostedTrees", "BNNClassifier", "DeepGPClassifier")
FOLDS = 5
BINS = 10

Fold = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def load(name: str, fold: int) -> Fold:
    """Training inputs and targets, test inputs and targets."""
    if name in UCI:
        split = inducing.data.uci.load(name, fold, torch.float64)
        y_train = split.target_mean + split.target_std * split.y_train
        return split.x_train.numpy(), y_train.numpy()[:, 0], split.x_test.numpy(), split.y_test.numpy()[:, 0]
    sets = {"diabetes": load_diabetes, "digits": load_digits, "breast-cancer": load_breast_cancer}
    x, y = sets[name](return_X_y=True)
    kind = KFold if name == "diabetes" else StratifiedKFold
    folds = kind(FOLDS, shuffle=True, random_state=fold // FOLDS)
    train, test = list(folds.split(x, y))[fold % FOLDS]
    return x[train], y[train], x[test], y[test]


def run_regression(model: str, data: Fold, fold: int) -> dict[str, Any]:
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


def run_classification(model: str, data: Fold, fold: int) -> dict[str, Any]:
    """Accuracy and log-likelihood on one fold, and what the calibration error pooled over folds is made from."""
    x, y, x_test, y_test = data
    start = time.perf_counter()
    if model == "LogisticRegression":
        pipeline = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000))
        grid = {"logisticregression__C": np.logspace(-3, 2, 11)}
        estimator: Any = GridSearchCV(pipeline, grid, cv=5).fit(x, y)
    elif model == "BoostedTrees":
        estimator = HistGradientBoostingClassifier(random_state=fold).fit(x, y)
    else:
        estimator = getattr(inducing, model)(random_state=fold).fit(x, y)
    probabilities = estimator.predict_proba(x_test)
    confidence, right = probabilities.max(1), estimator.classes_[probabilities.argmax(1)] == y_test
    true = probabilities[np.arange(len(y_test)), np.searchsorted(estimator.classes_, y_test)]
    return {
        "accuracy": float(right.mean()),
        "log_likelihood": float(np.log(true.clip(1e-300)).mean()),
        "confidence": confidence.round(6).tolist(),
        "right": right.tolist(),
        "test_rows": len(y_test),
        "seconds": time.perf_counter() - start,
    }


def read() -> dict[tuple[str, int, str], dict[str, Any]]:
    """All stored results; the last line for each set, fold and model counts."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    records = [json.loads(line) for line in lines]
    return {(record["set"], record["fold"], record["model"]): record for record in records}


def run(sets: list[str], folds: list[int], models: list[str]) -> None:
    """Run what is not stored, fold by fold, so that a part of it is already a fair comparison."""
    for fold in folds:
        for name in sets:
            regression = name in REGRESSION
            for model in REGRESSORS if regression else CLASSIFIERS:
                if (models and model not in models) or (name, fold, model) in read():
                    continue
                work, data = run_regression if regression else run_classification, load(name, fold)
                if model == "GaussianProcess" and len(data[0]) > MOST_GP_ROWS:
                    continue
                result = work(model, data, fold)
                record = {"set": name, "fold": fold, "model": model, **result}
                with RESULTS.open("a") as file:
                    file.write(json.dumps(record) + "\n")
                shown = {key: round(value, 3) for key, value in result.items() if isinstance(value, float)}
                print(name, fold, model, shown, flush=True)


def calibration_error(records: list[dict[str, Any]]) -> float:
    """The expected calibration error in ten bins of confidence, pooled over folds."""
    confidence = np.concatenate([record["confidence"] for record in records])
    right = np.concatenate([record["right"] for record in records])
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [abs((right[bins == b] - confidence[bins == b]).sum()) for b in range(BINS)]
    return float(sum(gaps) / len(right))


def cell(records: list[dict[str, Any]], key: str, digits: int = 2) -> str:
    """Mean over folds, with its standard error."""
    values = np.array([record[key] for record in records])
    error = f" ± {values.std(ddof=1) / math.sqrt(len(values)):.{digits}f}" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{error}"


def page(results: dict[tuple[str, int, str], dict[str, Any]]) -> str:
    """The tables as Markdown."""

    def of(name: str, model: str, first: int = 0) -> list[dict[str, Any]]:
        keys = [(name, fold, model) for fold in range(first, first + FOLDS)]
        return [results[key] for key in keys if key in results]

    def of_new(name: str, model: str) -> list[dict[str, Any]]:
        return of(name, model, FOLDS)

    lines = [
        "# Estimators: results of the defaults",
        "",
        "Generated by `python -m benchmarks.estimators`. Every estimator has its default settings. For comparison:",
        "scikit-learn's `RidgeCV`, `HistGradientBoosting` (both with one variance for all rows, from cross-validation)",
        "and `GaussianProcessRegressor` (constant * RBF + white kernel, maximum likelihood from five starts; at most",
        "2,000 rows);",
        "CatBoost and NGBoost with a Gaussian likelihood, stopped by a tenth of the training rows; for classes,",
        "`HistGradientBoosting` and logistic regression (penalty selected from a grid of eleven by cross-validation).",
        "",
        "- Numbers are means over folds with standard errors. The log-likelihood is in nats per row on the original",
        "  scale.",
        '- "In 50 %", "in 90 %" and "in 95 %" are the fractions of test rows inside these central intervals.',
        "- Seconds are for one fold, fit and prediction, on a machine that was not idle.",
        "- The paper's numbers are for global inducing points with ScalePrior, and for deep Gaussian processes with",
        "  two layers, trained for 10,000 and 20,000 steps on 20 splits.",
        "",
        "The stored runs of the regressors are older than the present number of steps: for at most 1,000 rows, 400",
        "(BNN) or 500 (deep Gaussian process) at a learning rate of 0.1, instead of 1,000 or 1,500 at 0.03. On five",
        "other datasets with 400 rows, the change lowered the mean log-likelihood of held-out rows by 0.003 and 0.005",
        "nats (`benchmarks/estimator_steps.py`).",
        "",
        "How the defaults were chosen:",
        "",
        "- The weight of the KL and the noise: on other datasets, with `benchmarks/estimator_defaults.py`. For the",
        "  noise of deep Gaussian processes also with the ELBO of the training rows of energy and yacht (split 0);",
        "  rows held out of these showed that Gaussian tails are too light.",
        "- The number of steps, the number of inducing points and the initial variance of Gaussian processes: on the",
        "  other datasets.",
        "- The sizes of the networks and the prior: on split 0 of boston, concrete, energy and yacht, which is fold",
        "  0 here.",
        "",
        "The choices were not blind. Two of them followed results on test folds of this table. Fold 1 of energy, at",
        "-2.84 with Gaussian tails, was the reason to examine the tails. With the KL weighted by rows / 2,500,",
        "BNNRegressor was above the Gaussian process on four datasets but covered 85 to 95 % on three only (yacht",
        "0.82, boston 0.96); therefore rows / 1,750 was tried on the other datasets, at 200 and 400 rows. The rows",
        "held out of energy's split 0 are test rows of other splits. So the results on these folds are slightly",
        "optimistic. Splits that were run once, at the end, are further below.",
        "",
        "## Regression",
        "",
        *regression_table(of),
        "",
        *regression_verdicts(of),
        "",
        "### Splits that were not used for any choice",
        "",
        "The same on splits 5 to 9, and on five folds of diabetes with another shuffle, run once with the settings",
        "of the table above. Splits share rows with each other.",
        "",
        *regression_table(of_new),
        "",
        *regression_verdicts(of_new),
        "",
        "## Classification",
        "",
        "ECE: the expected calibration error in ten bins, over all folds together.",
        "",
        "| dataset | model | folds | accuracy | log-likelihood | ECE | seconds |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in CLASSIFICATION:
        for model in CLASSIFIERS:
            if not (records := of(name, model)):
                continue
            cells = [cell(records, "accuracy", 3), cell(records, "log_likelihood", 3)]
            cells += [f"{calibration_error(records):.3f}", f"{np.mean([r['seconds'] for r in records]):.0f}"]
            lines.append(f"| {name} | {model} | {len(records)} | " + " | ".join(cells) + " |")
    lines += ["", *classification_verdicts(of), ""]
    return "\n".join(lines)


def regression_table(of: Any) -> list[str]:
    """Figures of all regressors on all sets, and the paper's."""
    lines = [
        "| dataset | model | folds | log-likelihood | RMSE | CRPS | in 50 % | in 90 % | in 95 % | seconds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in REGRESSION:
        for model in REGRESSORS:
            if not (records := of(name, model)):
                continue
            cells = [cell(records, key) for key in ("log_likelihood", "rmse", "crps")]
            cells += [f"{np.mean([r[f'coverage_{level}'] for r in records]):.3f}" for level in (50, 90, 95)]
            seconds = f"{np.mean([r['seconds'] for r in records]):.0f}"
            lines.append(f"| {name} | {model} | {len(records)} | " + " | ".join(cells) + f" | {seconds} |")
        lines += paper_rows(name)
    return lines


def paper_rows(name: str) -> list[str]:
    """The paper's log-likelihood and RMSE of the same models, where it has them."""
    tables = {"BNN": ("uci_bnn", "ScalePrior"), "deep GP": ("uci_dgp", "2")}
    lines = []
    for model, (table, row) in tables.items():
        if found := published()[table].get(name):
            # some are misprinted
            figures = (found[row]["global"].get(key) for key in ("test_log_likelihood", "rmse"))
            cells = " | ".join("" if each is None else f"{each[0]:.2f} ± {each[1]:.2f}" for each in figures)
            lines.append(f"| {name} | the paper: {model} | 20 | {cells} | | | | | |")
    return lines


def regression_verdicts(of: Any) -> list[str]:
    """How often each regressor is ahead of the Gaussian process, and how often its intervals hold what they say."""
    lines = []
    for model in OURS:
        ahead, covered, done = [], [], []
        for name in REGRESSION:
            ours, theirs = of(name, model), of(name, "GaussianProcess")
            if not (len(ours) == len(theirs) == FOLDS):
                continue
            done.append(name)
            if np.mean([r["log_likelihood"] for r in ours]) > np.mean([r["log_likelihood"] for r in theirs]):
                ahead.append(name)
            if 0.85 <= np.average([r["coverage_90"] for r in ours], weights=[r["test_rows"] for r in ours]) <= 0.95:
                covered.append(name)
        lines.append(
            f"- `{model}`: of {len(done)} datasets, higher log-likelihood than the Gaussian process on {len(ahead)} "
            f"({', '.join(ahead) or 'none'}); 90 % intervals cover 85 to 95 % on {len(covered)} "
            f"({', '.join(covered) or 'none'})."
        )
    return lines


def classification_verdicts(of: Any) -> list[str]:
    """Whether each classifier is as accurate as logistic regression."""
    lines = []
    for model in CLASSIFIERS[1:]:
        for name in CLASSIFICATION:
            ours, theirs = of(name, model), of(name, CLASSIFIERS[0])
            if not (len(ours) == len(theirs) == FOLDS):
                continue
            accuracies = [np.mean([r["accuracy"] for r in records]) for records in (ours, theirs)]
            word = "reached" if accuracies[0] >= accuracies[1] else "not reached"
            lines.append(
                f"- `{model}` on {name}: accuracy of logistic regression {word} ({accuracies[0]:.3f}, "
                f"{accuracies[1]:.3f}); ECE {calibration_error(ours):.3f}."
            )
    return lines


def main() -> None:
    """Run folds, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "write"])
    parser.add_argument("--sets", nargs="*", default=[*REGRESSION, *CLASSIFICATION])
    parser.add_argument("--folds", nargs="*", type=int, default=list(range(FOLDS)))
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.what == "run":
        run(arguments.sets, arguments.folds, arguments.models)
    write_atomically(PAGE, page(read()).encode())


if __name__ == "__main__":
    main()
