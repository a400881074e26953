"""The effects of columns on the predictions of a fitted model: permutation importances and partial dependence.

The importance of a column is how much worse the test rows are predicted if its values are shuffled among them. The partial
dependence is the average prediction if all test rows had the same value in a column, with the posterior's uncertainty.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from inducing.data.standardise import Standardiser
from inducing.tables.columns.base import Codes, Column
from inducing.tables.columns.text import TextColumn
from inducing.tables.fitting import TableFit, compute_scores

REPEATS, DRAWS = 5, 50
# predictions that importances may take, and the least and most rows for each
PREDICTIONS, LEAST_ROWS, MOST_ROWS = 100_000, 100, 1000
# partial dependence: rows to average, values of a number, categories
DEPENDENCE_ROWS, GRID, MOST_CATEGORIES = 200, 20, 8
# the grid leaves out the tails
CENTRAL = (0.02, 0.98)
BAND = (0.05, 0.95)


class Importance(NamedTuple):
    """The importance of a column.

    Arguments:
        column: Its position in the schema.
        name: Its name.
        increases: For each shuffling of its values, the increase of the error.
    """

    column: int
    name: str
    increases: Float[np.ndarray, " R"]

    @property
    def mean(self) -> float:
        """The mean over the repeats."""
        return float(self.increases.mean())

    @property
    def spread(self) -> float:
        """The standard deviation over the repeats."""
        return float(self.increases.std(ddof=1))


class Dependence(NamedTuple):
    """The average prediction as a function of one column.

    Arguments:
        column: The column.
        values: Values of the column, as codes.
        mean: The average prediction for each value and output.
        low: Lower end of the central 90 % of the posterior draws.
        high: Its upper end.
        deciles: Of the training rows. None for text.
    """

    column: Column
    values: Codes
    mean: Float[np.ndarray, "G O"]
    low: Float[np.ndarray, "G O"]
    high: Float[np.ndarray, "G O"]
    deciles: Float[np.ndarray, " Q"] | None


def measure_importances(fit: TableFit, seed: int = 0) -> list[Importance]:
    """The importances of all columns that are inputs, the largest first.

    The error is the RMSE in regression, in the units of the scores, and minus the log-likelihood in classification.
    """
    problem, random = fit.problem, np.random.default_rng(seed)
    used = [k for k, column in enumerate(problem.encoded.schema.columns) if column.encoded_names]
    most = int(np.clip(PREDICTIONS // (REPEATS * len(used)), LEAST_ROWS, MOST_ROWS))
    chosen = np.sort(random.permutation(len(problem.test))[:most])
    rows, y = problem.encoded.take(problem.test[chosen]), fit.y_test[chosen]
    functions = fit.estimator.sample_functions(DRAWS, seed)
    units = Standardiser.of(problem.y[problem.train]).std if len(problem.targets) > 1 else 1.0

    def error(codes: tuple[Codes, ...]) -> float:
        scores = compute_scores(functions.predict(replace(rows, codes=codes)), y, units)
        return scores["RMSE"] if problem.task == "regression" else -scores["log-likelihood"]

    found, known = [], error(rows.codes)
    for k in used:
        shuffled = (rows.codes[k][random.permutation(len(chosen))] for _ in range(REPEATS))
        errors = [error((*rows.codes[:k], codes, *rows.codes[k + 1 :])) for codes in shuffled]
        found.append(Importance(k, problem.encoded.schema.columns[k].name, np.array(errors) - known))
    return sorted(found, key=lambda importance: -importance.mean)


def compute_dependence(fit: TableFit, k: int, seed: int = 0) -> Dependence:
    """The partial dependence of the predictions on the column at one position of the schema."""
    problem, column = fit.problem, fit.problem.encoded.schema.columns[k]
    chosen = np.sort(np.random.default_rng(seed).permutation(len(problem.test))[:DEPENDENCE_ROWS])
    rows, functions = problem.encoded.take(problem.test[chosen]), fit.estimator.sample_functions(DRAWS, seed)
    known = problem.encoded.codes[k][problem.train]
    if isinstance(column, TextColumn):
        levels, counts = np.unique(known[known >= 0], return_counts=True)
        values, deciles = levels[np.argsort(-counts, kind="stable")][:MOST_CATEGORIES], None
    else:
        known = known[~np.isnan(known)]
        values, deciles = np.unique(known), np.quantile(known, np.arange(1, 10) / 10)
        if len(values) > GRID:
            values = np.unique(np.quantile(known, np.linspace(*CENTRAL, GRID)))
    curves = []
    for value in values:
        codes = np.full(len(chosen), value, dtype=rows.codes[k].dtype)
        outputs = functions(replace(rows, codes=(*rows.codes[:k], codes, *rows.codes[k + 1 :])))
        curves.append(outputs.mean(1).reshape(DRAWS, -1))
    # (G, S, O)
    averages = np.stack(curves)
    low, high = np.quantile(averages, BAND, axis=1)
    return Dependence(column, values, averages.mean(1), low, high, deciles)
