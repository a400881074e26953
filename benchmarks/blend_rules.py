"""Rules for the weights of a blend, compared on small tables that no other table of the documentation reports.

    INDUCING_DATA=... python -m benchmarks.blend_rules run             # what has not been run yet
    INDUCING_DATA=... python -m benchmarks.blend_rules run --folds 0 --sets autos
    python -m benchmarks.blend_rules write                             # benchmarks/blend_rules.md from what has been run

`run` fits the candidates of `AutoRegressor` as it does, to a part of the training rows and to all, and stores their
log-likelihoods of held-out and test rows. Any rule can then be applied to the same fits.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float

from benchmarks.folds import load_fold, read_folds, run_folds
from benchmarks.processes import ROOT
from inducing.estimators import AutoRegressor
from inducing.estimators.division import count_held_out
from inducing.estimators.model_weights import find_weights, share_draws
from inducing.estimators.rows import hold_out_rows
from inducing.files import write_atomically

RESULTS, PAGE = ROOT / "benchmarks" / "blend_rules.jsonl", ROOT / "benchmarks" / "blend_rules.md"
TOLERANCE = 1e-6
SETS = ("autos", "machine", "autompg", "forest", "stock", "pendulum", "solar")
Scores = Float[np.ndarray, "N K"]


def fit_and_score(name: str, fold: int) -> dict[str, list[list[float]]]:
    """Log-likelihoods of held-out rows under models of the other rows, and of test rows under models of all."""
    x, y, x_test, y_test = load_fold(name, fold)
    train, held_out = hold_out_rows(np.zeros(len(y)), count_held_out(len(y)), fold)
    columns: dict[str, list[np.ndarray]] = {"held_out": [], "test": []}
    for cls in AutoRegressor.few_rows.values():
        part, whole = (cls(random_state=fold).fit(x[rows], y[rows]) for rows in (train, slice(None)))
        columns["held_out"].append(part.predict_distribution(x[held_out]).log_prob(y[held_out, None]).numpy())
        columns["test"].append(whole.predict_distribution(x_test).log_prob(y_test[:, None]).numpy())
    return {rows: np.stack(each, 1).round(4).tolist() for rows, each in columns.items()}


def _equal(held_out: Scores) -> np.ndarray:
    return np.full(held_out.shape[1], 1 / held_out.shape[1])


def _best(held_out: Scores) -> np.ndarray:
    return np.eye(held_out.shape[1])[held_out.mean(0).argmax()]


def _only_if_larger_than_error(held_out: Scores) -> np.ndarray:
    """The weights of the highest log-likelihood, unless the best model is as good up to a standard error."""
    found = _largest(held_out, 0.1)
    gains = np.log(np.exp(held_out - held_out.max(1, keepdims=True)) @ found) + held_out.max(1)
    gains = gains - held_out[:, held_out.mean(0).argmax()]
    return found if gains.mean() > gains.std() / np.sqrt(len(gains)) else _best(held_out)


def _largest(held_out: Scores, least: float = 0.0, equal: float = 0.0) -> np.ndarray:
    """The weights of the highest log-likelihood, with ``equal`` more rows for each model that only it can predict.

    Models with weights below ``least`` are left out one by one.
    """
    kept = np.arange(held_out.shape[1])
    while True:
        densities = np.exp(held_out[:, kept] - held_out[:, kept].max(1, keepdims=True))
        weights, change = np.full(len(kept), 1 / len(kept)), 1.0
        while change > TOLERANCE:
            before, weights = weights, weights * ((1 / (densities @ weights)) @ densities) + equal
            weights /= weights.sum()
            change = np.abs(weights - before).max()
        if weights.min() >= least:
            break
        kept = np.delete(kept, weights.argmin())
    found = np.zeros(held_out.shape[1])
    found[kept] = weights
    return found


BEST = "the best of them"
RULES: dict[str, Callable[[Scores], np.ndarray]] = {
    "AutoRegressor": lambda held_out: find_weights(held_out, np.ones(len(held_out))),
    BEST: _best,
    "equal weights": _equal,
    "largest from 0.1, or the best if within an error": _only_if_larger_than_error,
    "largest from 0.1": lambda held_out: _largest(held_out, 0.1),
    "largest": _largest,
    "largest with 1 pseudo-row each": lambda held_out: _largest(held_out, equal=1.0),
    "largest with 5 pseudo-rows each": lambda held_out: _largest(held_out, equal=5.0),
    "largest with 5 % pseudo-rows each": lambda held_out: _largest(held_out, equal=0.05 * len(held_out)),
    "largest with 10 % pseudo-rows each": lambda held_out: _largest(held_out, equal=0.1 * len(held_out)),
}


def read() -> dict[tuple[str, int], dict[str, Scores]]:
    """The log-likelihoods of all stored results."""
    found = read_folds(RESULTS)
    return {fold: {key: np.array(each[key]) for key in ("held_out", "test")} for fold, each in found.items()}


def score(held_out: Scores, test: Scores, rule: str) -> Float[np.ndarray, " M"]:
    """The log-likelihoods of test rows under the mixture, in which each model has its share of a hundred draws."""
    shares = np.array(share_draws(RULES[rule](held_out), 100, 0.5)) / 100
    with np.errstate(divide="ignore"):
        return np.logaddexp.reduce(test + np.log(shares), 1)


def page() -> str:
    """Tables of the mean log-likelihood of test rows by rule and dataset, and of the differences of two rules."""
    results = read()
    sets = [name for name in SETS if any(name == each for each, _ in results)]
    scores: dict[str, list[Float[np.ndarray, " M"]]] = {
        rule: [
            np.concatenate(
                [score(each["held_out"], each["test"], rule) for (own, _), each in results.items() if own == name]
            )
            for name in sets
        ]
        for rule in RULES
    }
    folds = [sum(name == each for each, _ in results) for name in sets]
    lines = [
        "# Rules for the weights of a blend",
        "",
        "Generated by `python -m benchmarks.blend_rules write`: the mean log-likelihood of test rows, with standardised",
        "targets, under mixtures of the candidates of `AutoRegressor` with weights by different rules. All rules have the",
        'same fits. "Largest": the weights of the highest log-likelihood of held-out rows. Pseudo-rows, which only one',
        "model predicts, keep weights away from zero. In brackets: folds. The rule of `AutoRegressor` was chosen by this",
        "table. The targets of solar have eight distinct values, one of which most rows have.",
        "",
        "| rule | " + " | ".join(f"{name} ({number})" for name, number in zip(sets, folds, strict=True)) + " |",
        "| --- |" + " ---: |" * len(sets),
    ]
    for rule, of_sets in scores.items():
        lines.append(f"| {rule} | " + " | ".join(f"{each.mean():.3f}" for each in of_sets) + " |")
    differences = [ours - best for ours, best in zip(scores["AutoRegressor"], scores[BEST], strict=True)]
    cells = [f"{each.mean():+.3f} ± {each.std(ddof=1) / len(each) ** 0.5:.3f}" for each in differences]
    lines.append("| *AutoRegressor minus the best of them* | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", "Differences are paired, row by row, with standard errors over rows.", ""])


def main() -> None:
    """Run folds, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "write"])
    parser.add_argument("--sets", nargs="*", choices=SETS, default=list(SETS))
    parser.add_argument("--folds", nargs="*", type=int, default=list(range(4)))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.what == "run":
        run_folds(RESULTS, arguments.sets, arguments.folds, fit_and_score)
    else:
        write_atomically(PAGE, page().encode())


if __name__ == "__main__":
    main()
