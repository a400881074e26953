"""A prediction problem from a table: the inputs, the target, the task, and the rows that are held out for testing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Shaped
from pandas.api import types

from inducing.checks import check_known
from inducing.estimators.likelihoods import CLASSIFICATION, REGRESSION
from inducing.estimators.rows import hold_out_rows
from inducing.estimators.targets import (
    choose_log_scale,
    label_effect_targets,
    narrow_labels,
    numeric_effect_targets,
)
from inducing.tables.columns import describe_column, encode
from inducing.tables.columns.base import Column
from inducing.tables.columns.categorical import CategoricalColumn
from inducing.tables.columns.dates import DateColumn
from inducing.tables.errors import TableError, check_complete, check_present, counted, quoted
from inducing.tables.schema import EncodedTable, check_table, learn_schema, warn_of_unseen

# integers are classes if they have at most MAX_CLASSES distinct values with at least ROWS_PER_CLASS rows each on average
MAX_CLASSES, ROWS_PER_CLASS = 10, 5
MIN_ROWS = 10
# that are left without the test rows
LEAST_TRAINING_ROWS = 3
# a text target with more classes than this and fewer than three rows per class on average is free text
MANY_CLASSES = 50


@dataclass(frozen=True, eq=False)
class Problem:
    """Inputs, targets, and a split into training and test rows.

    Arguments:
        inputs: The columns that are neither targets nor excluded.
        encoded: The same as numbers, by the schema of the training rows.
        y: Numbers (N,), or (N, O) for several targets; or labels (N,).
        targets: The names of the targets.
        target_columns: What the targets were read as.
        task: "regression" or "classification".
        reason: Why this task.
        excluded: Columns that are ignored.
        is_log: Whether the logarithm of each number is modelled.
        target_transform: The setting by which this was chosen.
        train: Positions of the training rows.
        test: Positions of the test rows.
    """

    inputs: pd.DataFrame
    encoded: EncodedTable
    y: Shaped[np.ndarray, "N *O"]
    targets: tuple[str, ...]
    target_columns: tuple[Column, ...]
    task: str
    reason: str
    excluded: tuple[str, ...]
    is_log: tuple[bool, ...]
    target_transform: str
    train: Int[np.ndarray, " T"]
    test: Int[np.ndarray, " H"]


def make_problem(
    table: pd.DataFrame,
    targets: Sequence[str],
    task: str | None = None,
    exclude: Sequence[str] = (),
    test_fraction: float = 0.1,
    seed: int = 0,
    impute: bool = True,
    likelihood: str | None = None,
    target_transform: str = "auto",
    include: Sequence[str] | None = None,
    num_rows: int | None = None,
) -> Problem:
    """Make a prediction problem from a table.

    Arguments:
        table: All columns.
        targets: The columns to predict. Several are possible in regression.
        task: "regression" or "classification". Default: inferred from the likelihood, else from the target.
        exclude: Columns to ignore.
        test_fraction: Fraction of the rows to test on, drawn at random and stratified by class. 0: no test rows.
        seed: Seed of the test rows.
        impute: Whether missing inputs are replaced by the median of the training rows, or are a category of their own.
        likelihood: Name of the likelihood that the model will have. Default: that of the task.
        target_transform: As in `BNNRegressor`.
        include: Columns to use even if they look like row numbers. Default: none.
        num_rows: Number of rows of which the table is a sample. Default: it is the whole table.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"size": range(20), "colour": ["red", "blue"] * 10})
        >>> problem = make_problem(table, ["colour"])
        >>> problem.task, problem.reason, len(problem.test)
        ('classification', "'colour' is text", 2)
    """
    check_table(table)
    _check_columns(table, targets, exclude)
    check_present(include or (), table.columns, " to include")
    if not 0 <= test_fraction < 1:
        raise ValueError(f"test_fraction must be at least 0 and below 1, got {test_fraction}")
    check_known("likelihood", likelihood or "auto", ("auto", *REGRESSION, *CLASSIFICATION))
    if len(table) < MIN_ROWS:
        raise TableError(f"the table has {counted(len(table), 'row')}; at least {MIN_ROWS} are needed")
    _check_targets(table, targets)
    columns = [_describe_target(table[name]) for name in targets]
    task, reason = (task, "requested") if task else _infer_task(table[list(targets)], columns[0], likelihood)
    check_known("task", task, ("regression", "classification"))
    if task == "classification" and len(targets) > 1:
        raise ValueError(f"classification has one target, got {quoted(targets)}. Fit a model for each.")
    y = _encode_targets(table, columns, task)
    _check_variation(y, targets, task)
    groups = y if task == "classification" else np.zeros(len(table))
    number = max(1, round(test_fraction * len(groups))) if test_fraction else 0
    train, test = hold_out_rows(groups, number, seed)
    if test_fraction and not len(test):
        raise TableError(f"no class of {targets[0]!r} has two rows", "If it is a number to predict, use regression.")
    if test_fraction and len(train) < LEAST_TRAINING_ROWS:
        raise ValueError(
            f"a test fraction of {test_fraction:g} leaves {counted(len(train), 'training row')} of {len(groups)}. At least "
            f"{LEAST_TRAINING_ROWS} are needed."
        )
    inputs = table.drop(columns=[*targets, *exclude])
    is_log: tuple[bool, ...] = ()
    if task == "classification":
        numbers = label_effect_targets(y[train])
    else:
        is_log = choose_log_scale(target_transform, likelihood or "auto", y[train])
        numbers = numeric_effect_targets(y[train], is_log, targets)
    encoded = learn_schema(inputs, impute, train, numbers, include or (), num_rows)
    warn_of_unseen(encoded.find_unseen(inputs))
    names, ignored = tuple(targets), tuple(exclude)
    return Problem(
        inputs, encoded, y, names, tuple(columns), task, reason, ignored, is_log, target_transform, train, test
    )


def read_targets(problem: Problem, table: pd.DataFrame) -> Shaped[np.ndarray, "N *O"]:
    """The targets of further rows of the table that a problem was made from."""
    _check_targets(table, problem.targets)
    return _encode_targets(table, problem.target_columns, problem.task)


def _check_targets(table: pd.DataFrame, targets: Sequence[str]) -> None:
    for name in targets:
        check_complete(table[name], f"target {name!r}", "Remove those rows.")


def _encode_targets(table: pd.DataFrame, columns: Sequence[Column], task: str) -> Shaped[np.ndarray, "N *O"]:
    if task == "classification":
        return _to_labels(columns[0], table[columns[0].name])
    y = np.stack([_to_numbers(column, table[column.name]) for column in columns], 1)
    return y[:, 0] if len(columns) == 1 else y


def _check_variation(y: Shaped[np.ndarray, "N *O"], targets: Sequence[str], task: str) -> None:
    """Refuse targets with one class or one value."""
    for name, values in zip(targets, y.reshape(len(y), -1).T, strict=True):
        if task == "classification" and len(classes := np.unique(values)) < 2:
            raise TableError(f"target {name!r} has only one class, {classes.tolist()[0]!r}")
        if task == "regression" and (values == values[0]).all():
            raise TableError(f"target {name!r} is constant, so there is nothing to predict")


def _describe_target(values: pd.Series) -> Column:
    column = describe_column(values, impute=False)
    if isinstance(column, DateColumn):
        raise TableError(f"target {column.name!r} holds dates", "Convert it to numbers.")
    if isinstance(column, CategoricalColumn) and MANY_CLASSES < len(column.categories) > len(values) / 3:
        size = f"{len(column.categories)} categories in {len(values)} rows"
        raise TableError(f"target {column.name!r} looks like free text: it has {size}", "Choose another target.")
    # texts may be signs for missing values
    encode(column, values)
    return column


def _check_columns(table: pd.DataFrame, targets: Sequence[str], exclude: Sequence[str]) -> None:
    named = [*targets, *exclude]
    if not targets:
        raise ValueError("no target is given. Name the column to predict.")
    check_present(named, table.columns)
    if len(set(named)) < len(named):
        raise ValueError(f"a column is named twice among targets and excluded columns: {quoted(named)}")
    if len(named) == table.shape[1]:
        raise TableError(f"no input columns are left to predict {quoted(targets)}; the table has {quoted(table)}")


def _infer_task(targets: pd.DataFrame, column: Column, likelihood: str | None) -> tuple[str, str]:
    """The task and the reason for it. Text, booleans and integers with few distinct values are classes."""
    if likelihood not in (None, "auto"):
        return "classification" if likelihood in CLASSIFICATION else "regression", f"the likelihood is {likelihood}"
    if targets.shape[1] > 1:
        return "regression", "there are several targets"
    values, name = targets[column.name], repr(column.name)
    if types.is_bool_dtype(values.dtype):
        return "classification", f"{name} is true or false"
    if isinstance(column, CategoricalColumn):
        return "classification", f"{name} is text"
    numbers, distinct = column.to_codes(values), values.nunique()
    if (numbers % 1 == 0).all() and 2 <= distinct <= min(MAX_CLASSES, len(numbers) / ROWS_PER_CLASS):
        return "classification", f"{name} has {distinct} distinct whole numbers"
    return "regression", f"{name} is numeric"


def _to_numbers(column: Column, values: pd.Series) -> Float[np.ndarray, " N"]:
    if isinstance(column, CategoricalColumn):
        raise TableError(f"target {column.name!r} is text, e.g. {column.categories[0]!r}", "Regression needs numbers.")
    return encode(column, values)


def _to_labels(column: Column, values: pd.Series) -> Shaped[np.ndarray, " N"]:
    """Booleans, integers or text."""
    labels = narrow_labels(values)
    if isinstance(column, CategoricalColumn):
        labels = np.array([str(value) for value in values], dtype=object)
    elif labels.dtype.kind not in "biu":
        numbers = column.to_codes(values)
        if (fractions := numbers[numbers % 1 != 0]).size:
            raise TableError(f"target {column.name!r} has fractions, e.g. {fractions[0]:g}", "Use regression.")
        labels = numbers.astype(np.int64)
    return labels
