"""A table becomes a problem: which columns are inputs, what is predicted, and which rows are kept for testing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Shaped
from pandas.api import types

from inducing.checks import did_you_mean
from inducing.data.columns import TableError, describe, encode, quoted
from inducing.data.schema import check_table

TASKS = ("regression", "classification")
# whole numbers with at most so many distinct values, and on average so many rows for each, are taken as classes
MOST_CLASSES, ROWS_PER_CLASS = 10, 5
FEWEST_ROWS = 10


@dataclass(frozen=True, eq=False)
class Problem:
    """Inputs, targets, and a split into training and test rows.

    Arguments:
        inputs: The columns that are neither targets nor excluded.
        y: Numbers (N,), or (N, O) for several targets; or labels (N,).
        targets: The names of the targets.
        task: "regression" or "classification".
        reason: Why, in words.
        excluded: Columns that were left out.
        train: Rows for training, by position.
        test: Rows for testing.
    """

    inputs: pd.DataFrame
    y: Shaped[np.ndarray, "N *O"]
    targets: tuple[str, ...]
    task: str
    reason: str
    excluded: tuple[str, ...]
    train: Int[np.ndarray, " T"]
    test: Int[np.ndarray, " H"]


def pose(
    table: pd.DataFrame,
    targets: Sequence[str],
    task: str | None = None,
    exclude: Sequence[str] = (),
    test_fraction: float = 0.1,
    seed: int = 0,
) -> Problem:
    """Make a problem of a table.

    Arguments:
        table: All columns.
        targets: The columns to predict; several are for regression.
        task: "regression" or "classification"; None decides by the target, and says so.
        exclude: Columns that are not inputs.
        test_fraction: Share of the rows to test on, drawn at random; of each class about the same.
        seed: Decides which.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"size": range(20), "colour": ["red", "blue"] * 10})
        >>> problem = pose(table, ["colour"])
        >>> problem.task, problem.reason, len(problem.test)
        ('classification', "'colour' is text", 2)
    """
    check_table(table)
    _check_columns(table, targets, exclude)
    if not 0 < test_fraction < 1:
        raise ValueError(
            f"the test fraction must lie between 0 and 1, got {test_fraction}; 0.1 tests on a tenth of the rows"
        )
    if len(table) < FEWEST_ROWS:
        raise TableError(f"the table has {len(table)} rows; at least {FEWEST_ROWS} are needed to fit and to test")
    if task is None:
        task, reason = _infer(table, targets)
    elif task in TASKS:
        reason = "that was asked for"
    else:
        raise ValueError(f"a task is {' or '.join(TASKS)}, got {task!r}")
    for name in targets:
        _check_target(table[name])
    if task == "classification":
        if len(targets) > 1:
            raise ValueError(f"classification is of one target, but {quoted(targets)} were named; fit a model for each")
        y = _labels(table[targets[0]])
    else:
        y = np.concatenate([_numbers(table[name]) for name in targets], axis=1)
        constant = [name for name, column in zip(targets, y.T, strict=True) if (column == column[0]).all()]
        if constant:
            raise TableError(f"the target {quoted(constant)} is constant: there is nothing to predict")
        y = y[:, 0] if len(targets) == 1 else y
    train, test = _split(y if task == "classification" else np.zeros(len(table)), test_fraction, seed)
    if len(test) == 0:
        raise TableError(
            f"no class of {targets[0]!r} has two rows, one to learn from and one to test on: its {len(table)} rows have "
            f"{len(np.unique(y))} different values. Is it a number to predict? Then use the task regression"
        )
    inputs = table.drop(columns=[*targets, *exclude])
    return Problem(inputs, y, tuple(targets), task, reason, tuple(exclude), train, test)


def _check_columns(table: pd.DataFrame, targets: Sequence[str], exclude: Sequence[str]) -> None:
    if not targets:
        raise ValueError("no target was named: which column is to be predicted?")
    absent = [name for name in (*targets, *exclude) if name not in table.columns]
    if absent:
        hint = did_you_mean(absent[0], map(str, table.columns))
        raise TableError(f"there is no column {quoted(absent)} in the table{hint}; it has {quoted(table.columns)}")
    if len({*targets, *exclude}) < len(targets) + len(exclude):
        raise ValueError(f"a column is named twice among the targets and the excluded: {quoted([*targets, *exclude])}")
    if len(targets) + len(exclude) == table.shape[1]:
        raise TableError(f"no column is left to predict {quoted(targets)} from; the table has {quoted(table.columns)}")


def _check_target(values: pd.Series) -> None:
    empty = values.isna().to_numpy()
    if empty.any():
        raise TableError(
            f"the target {values.name!r} has {int(empty.sum())} missing values (first in row "
            f"{values.index[int(empty.argmax())]}); remove those rows"
        )


def _infer(table: pd.DataFrame, targets: Sequence[str]) -> tuple[str, str]:
    """Text and truth values are classes, and so are few distinct whole numbers."""
    if len(targets) > 1:
        return "regression", "there are several targets"
    values = table[targets[0]]
    name = repr(targets[0])
    if types.is_bool_dtype(values.dtype):
        return "classification", f"{name} is true or false"
    if describe(values, impute=False).kind == "categorical":
        return "classification", f"{name} is text"
    # above 2^53 float64 does not tell whole numbers apart
    numbers, distinct = values.dropna().astype(float), values.nunique()
    if (numbers % 1 == 0).all() and 2 <= distinct <= min(MOST_CLASSES, len(numbers) / ROWS_PER_CLASS):
        return "classification", f"{name} has {distinct} distinct whole numbers"
    return "regression", f"{name} is numeric"


def _numbers(values: pd.Series) -> Float[np.ndarray, "N 1"]:
    column = describe(values, impute=False)
    if column.kind != "numeric":
        raise TableError(f"the target {column.name!r} is text, e.g. {column.categories[0]!r}; regression needs numbers")
    return encode(column, values)[:, None]


def _labels(values: pd.Series) -> Shaped[np.ndarray, " N"]:
    """Truth values, whole numbers, or text."""
    if types.is_bool_dtype(values.dtype):
        labels = values.to_numpy(dtype=bool)
    elif types.is_integer_dtype(values.dtype):
        # float64 does not tell whole numbers above 2^53 apart
        labels = values.to_numpy(dtype=getattr(values.dtype, "numpy_dtype", values.dtype))
    elif describe(values, impute=False).kind == "categorical":
        labels = np.array([str(value) for value in values], dtype=object)
    else:
        numbers = _numbers(values)[:, 0]
        if (numbers % 1 != 0).any():
            raise TableError(
                f"the target {values.name!r} holds fractions, e.g. {numbers[numbers % 1 != 0][0]:g}, which are no classes; "
                "use regression"
            )
        labels = numbers.astype(np.int64)
    classes = np.unique(labels)
    if len(classes) < 2:
        raise TableError(
            f"the target {values.name!r} has only one class, {classes.tolist()[0]!r}: nothing is to be told apart"
        )
    return labels


def _split(
    groups: Shaped[np.ndarray, " N"], test_fraction: float, seed: int
) -> tuple[Int[np.ndarray, " T"], Int[np.ndarray, " H"]]:
    """Draw test rows, spread evenly over the groups; each group keeps at least one row for training."""
    order = np.random.default_rng(seed).permutation(len(groups))
    _, kind = np.unique(groups, return_inverse=True)
    order = order[np.argsort(kind[order], kind="stable")]
    first = np.r_[True, kind[order][1:] != kind[order][:-1]]
    candidates = order[~first]
    number = min(max(1, round(test_fraction * len(groups))), len(candidates))
    # evenly spaced positions in an order by group are a stratified sample
    test = np.sort(candidates[((np.arange(number) + 0.5) * len(candidates) / number).astype(int)])
    return np.setdiff1d(np.arange(len(groups)), test), test
