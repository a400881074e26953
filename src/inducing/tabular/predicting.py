"""Predictions for a table, a chunk of rows at a time, so that memory does not grow with the table."""

from __future__ import annotations

import io
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import pandas as pd
import torch

from inducing.data.columns import TableError, TableWarning, encode, explain_unseen, looks_numeric, quoted
from inducing.data.tables import read_chunks
from inducing.estimators.classification import Classification
from inducing.prediction.predictive import Predictive
from inducing.tabular.model import TableModel, check_free

QUANTILES = (0.05, 0.5, 0.95)
CHUNK_ROWS = 5000


def predict_table(
    model: TableModel,
    path: Path,
    out: BinaryIO,
    keep: Sequence[str] = (),
    exclude: Sequence[str] = (),
    chunk_rows: int = CHUNK_ROWS,
    progress: Callable[[int], object] = lambda rows: None,
) -> int:
    """Predict all rows of a CSV or Parquet file and write them as CSV, in the same order; return how many there were.

    Arguments:
        model: The model.
        path: The table. It may hold the targets and the columns that the fit excluded; they are not looked at.
        out: Where to write.
        keep: Columns of the table to write before the predictions.
        exclude: Columns of the table that are not looked at, beside those that the fit excluded.
        chunk_rows: Rows at a time.
        progress: Called with the rows of each chunk that is done.
    """
    done = 0
    unseen, imputed = Counter[str](), Counter[str]()
    for chunk in read_chunks(path, chunk_rows, model.text_columns):
        for names, purpose in ((keep, "keep"), (exclude, "exclude")):
            absent = [name for name in names if name not in chunk.columns]
            if absent:
                raise TableError(
                    f"there is no column {quoted(absent)} to {purpose} in the table; it has {quoted(chunk.columns)}"
                )
        if not len(chunk):
            continue
        inputs = chunk.drop(columns=list(exclude))
        if not done:
            _refuse_numbers_for_text(model, inputs)
        with warnings.catch_warnings():
            # told once for all rows, below
            warnings.filterwarnings("ignore", message=".* were not in the training table", category=TableWarning)
            predictions = predict_chunk(model, inputs)
        for column in model.schema_columns:
            imputed[column.name] += int(inputs[column.name].isna().sum())
            if column.kind == "categorical":
                unseen[column.name] += int((encode(column, inputs[column.name]) < 0).sum())
        check_free(tuple(keep), list(predictions.columns))
        written = pd.concat([chunk[list(keep)], predictions], axis=1)
        text = io.StringIO()
        written.to_csv(text, index=False, header=done == 0, lineterminator="\n")
        out.write(text.getvalue().encode())
        done += len(chunk)
        progress(len(chunk))
    if not done:
        raise TableError(f"{path.name} is empty: it has no rows to predict")
    for name, rows in (+unseen).items():
        warnings.warn(explain_unseen(name, rows), TableWarning, stacklevel=2)
    for name, rows in (+imputed).items():
        warnings.warn(
            f"column {name!r}: {rows} missing values were imputed as in the training table", TableWarning, stacklevel=2
        )
    return done


def _refuse_numbers_for_text(model: TableModel, inputs: pd.DataFrame) -> None:
    """Refuse numbers in a column that had none: read as text, they would only be categories never seen."""
    for column in model.schema_columns:
        if column.kind == "categorical" and not looks_numeric(column) and column.name in inputs.columns:
            values = inputs[column.name].dropna()
            if len(values) and pd.to_numeric(values, errors="coerce").notna().all():
                raise TableError(
                    f"column {column.name!r} holds numbers, but was text in the training table: {quoted(column.categories)}"
                )


def predict_chunk(model: TableModel, chunk: pd.DataFrame) -> pd.DataFrame:
    """Predictions for rows, with the index of the rows.

    Of each target the mean, the standard deviation with its two sides (std^2 = aleatoric_std^2 + epistemic_std^2), and
    quantiles; of classes the most probable one and the probability of each.
    """
    estimator, predictive = model.estimator, model.estimator.predict_distribution(model.inputs(chunk))
    if isinstance(estimator, Classification):
        (name,) = model.targets
        probabilities = predictive.mean.numpy()
        columns = {f"{name}_class": estimator.classes_[probabilities.argmax(1)]}
        columns |= {f"{name}={label}": probabilities[:, k] for k, label in enumerate(estimator.classes_.tolist())}
    else:
        columns = _numbers(model.targets, predictive)
    return pd.DataFrame(columns, index=chunk.index)


def _numbers(targets: Sequence[str], predictive: Predictive) -> dict[str, torch.Tensor]:
    quantiles = zip(QUANTILES, predictive.quantile(QUANTILES), strict=True)
    figures = {
        "mean": predictive.mean,
        "std": predictive.stddev,
        "aleatoric_std": predictive.aleatoric.sqrt(),
        "epistemic_std": predictive.epistemic.sqrt(),
        **{f"q{100 * level:02.0f}": values for level, values in quantiles},
    }
    return {f"{name}_{key}": v[:, k].numpy() for k, name in enumerate(targets) for key, v in figures.items()}
