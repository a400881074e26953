"""The model file of a table, and predictions for new rows in chunks, so that memory does not grow with the table."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd

from inducing.estimators.auto import Auto
from inducing.estimators.base import NetworkEstimator
from inducing.estimators.predictions import PredictionsOfClasses
from inducing.prediction.predictive import Predictive
from inducing.saving import load, save
from inducing.saving.values import fits
from inducing.tables.columns.text import TextColumn
from inducing.tables.errors import TableError, TableWarning, check_present, counted, quoted
from inducing.tables.reading import copy_columns, read_chunks
from inducing.tables.schema import Unseen, warn_of_unseen

QUANTILES = (0.05, 0.5, 0.95)
CHUNK_ROWS = 5000


@dataclass(frozen=True, eq=False)
class TableModel:
    """A fitted estimator with the names of its targets.

    Arguments:
        estimator: The fitted estimator.
        targets: The names of its targets.
        excluded: Columns that tables may have and that are not inputs.
    """

    estimator: NetworkEstimator | Auto
    targets: tuple[str, ...]
    excluded: tuple[str, ...] = ()

    def save(self, path: str | Path) -> None:
        """Write the model file. `inducing.load` returns a dictionary with the estimator under "estimator"."""
        save({"estimator": self.estimator, "targets": [*self.targets], "excluded": [*self.excluded]}, path)

    @classmethod
    def load(cls, path: str | Path) -> TableModel:
        """Read a model file, or a fitted estimator that `inducing.save` wrote; its targets are y, or y1, y2, ..."""
        contents: Any = load(path)
        if isinstance(contents, NetworkEstimator | Auto):
            count = contents.targets_.num_targets
            return cls(contents, ("y",) if count == 1 else tuple(f"y{target + 1}" for target in range(count)))
        if not isinstance(contents, dict) or not isinstance(contents.get("estimator"), NetworkEstimator | Auto):
            found = type(contents).__name__
            raise ValueError(f"{path} contains a {found}, not an estimator. Fit a model to a table first.")
        estimator, targets, excluded = (contents.get(key, []) for key in ("estimator", "targets", "excluded"))
        if not all(fits(names, list[str] | tuple[str, ...]) for names in (targets, excluded)):
            raise ValueError(f"targets and excluded in {path} must be lists of column names")
        if len(targets) != estimator.targets_.num_targets:
            raise ValueError(f"{path} names {len(targets)} targets, but the model has {estimator.targets_.num_targets}")
        return cls(estimator, tuple(targets), tuple(excluded))

    def select_inputs(self, table: pd.DataFrame) -> pd.DataFrame:
        """The table without its targets and excluded columns."""
        inputs = set(self.estimator.input_names or ())
        return table.drop(columns=[n for n in (*self.targets, *self.excluded) if n in table and n not in inputs])

    def tabulate(self, predictive: Predictive, index: pd.Index) -> pd.DataFrame:
        """Predictions as a table.

        For each target: mean, standard deviation and its two parts (std^2 = aleatoric_std^2 + epistemic_std^2), and
        quantiles. For classes: the most probable class, and the probability of each.
        """
        columns: dict[str, np.ndarray] = {}
        if isinstance(self.estimator, PredictionsOfClasses):
            (name,), classes = self.targets, self.estimator.classes_
            probabilities = predictive.mean.numpy()
            columns[f"{name}_class"] = classes[probabilities.argmax(1)]
            columns |= {f"{name}={label}": probabilities[:, k] for k, label in enumerate(classes.tolist())}
            return pd.DataFrame(columns, index=index)
        statistics = {
            "mean": predictive.mean,
            "std": predictive.stddev,
            "aleatoric_std": predictive.aleatoric.sqrt(),
            "epistemic_std": predictive.epistemic.sqrt(),
        }
        quantiles = predictive.quantile(QUANTILES)
        statistics |= {f"q{100 * level:02.0f}": quantiles[k] for k, level in enumerate(QUANTILES)}
        for k, target in enumerate(self.targets):
            columns |= {f"{target}_{name}": values[:, k].numpy() for name, values in statistics.items()}
        return pd.DataFrame(columns, index=index)


def predict_table(
    model: TableModel,
    path: Path,
    out: BinaryIO,
    keep: Sequence[str] = (),
    exclude: Sequence[str] = (),
    chunk_rows: int = CHUNK_ROWS,
    progress: Callable[[int], object] = lambda rows: None,
) -> int:
    """Predict all rows of a CSV or Parquet file, write CSV in the same order, and return the number of rows.

    Arguments:
        model: The model.
        path: The table. Targets and columns that the fit excluded are ignored.
        out: The file to write to.
        keep: Columns of the table to copy before the predictions.
        exclude: More columns to ignore.
        chunk_rows: Rows in a chunk.
        progress: Called with the number of rows of each finished chunk.
    """
    done, imputed, unseen = 0, Counter[str](), Unseen()
    schema = model.estimator.schema_
    # a chunk of a CSV file might show text as numbers or booleans
    text = [column for column in schema.columns if isinstance(column, TextColumn)] if schema else []
    with closing(copy_columns(path, chunk_rows, keep)) as copies:
        for chunk in read_chunks(path, chunk_rows, [column.name for column in text]):
            check_present(keep, chunk.columns, " to keep")
            check_present(exclude, chunk.columns, " to exclude")
            if not len(chunk):
                continue
            inputs: Any = model.select_inputs(chunk.drop(columns=list(exclude)))
            if schema is not None:
                used = [column.name for column in schema.columns if column.encoded_names and column.name in inputs]
                imputed.update(inputs[used].isna().sum().to_dict())
                encoded = schema.encode_columns(inputs)
                if not done:
                    _check_text(text, inputs)
                unseen = encoded.find_unseen(inputs, unseen)
                inputs = encoded
            predictions = model.tabulate(model.estimator.predict_distribution(inputs), chunk.index)
            if twice := [name for name in keep if name in predictions]:
                raise TableError(
                    f"the predictions also have columns named {quoted(twice)}", "Rename them in the table."
                )
            copied = [next(copies).set_axis(chunk.index)] if keep else []
            written = pd.concat([*copied, predictions], axis=1)
            out.write(written.to_csv(index=False, header=not done, lineterminator="\n").encode())
            done += len(chunk)
            progress(len(chunk))
    if not done:
        raise TableError(f"{path.name} has no rows")
    warn_of_unseen(unseen)
    for name, rows in (+imputed).items():
        warnings.warn(f"column {name!r}: {counted(rows, 'missing value')} imputed", TableWarning, stacklevel=2)
    return done


def _check_text(columns: Sequence[TextColumn], inputs: pd.DataFrame) -> None:
    """Refuse numbers in a text column. They were read as text, and would be unseen categories."""
    for column in columns:
        values = inputs[column.name].dropna()
        is_numeric = len(values) > 0 and pd.to_numeric(values, errors="coerce").notna().all()
        if is_numeric and not column.has_numeric_category:
            raise column.wrong_type("numeric")
