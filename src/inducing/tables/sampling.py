"""A uniform sample of the rows of a file that is larger than memory, in one pass.

Each row gets a random key, and the rows with the smallest keys are kept. Of a target with few distinct values, a row of each
is kept, so that no class is missing.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from inducing.tables.errors import TableError
from inducing.tables.reading import EXACT, PARQUET, measure_table, read_chunks, read_headings

SAMPLE_ROWS, CHUNK_ROWS = 50_000, 50_000
# tables from this size in memory on are streamed
STREAM_BYTES = 250e6
STREAM = ("auto", "always", "never")
# a target with more distinct values has no classes
MOST_CLASSES = 100


class TableSample(NamedTuple):
    """A sample of rows in the order of the file, with their numbers as labels, and the number of all rows."""

    table: pd.DataFrame
    num_rows: int


def is_streamed(path: Path, stream: str) -> bool:
    """Whether a table is streamed: "always", "never", or "auto": if it would need more than 250 MB of memory."""
    return stream == "always" or (stream == "auto" and measure_table(path) > STREAM_BYTES)


def sample_table(
    path: Path,
    targets: Sequence[str] = (),
    seed: int = 0,
    rows: int | None = None,
    progress: Callable[[int], object] = lambda rows: None,
) -> TableSample:
    """Draw a sample of the rows of a CSV or Parquet file.

    Arguments:
        path: The file.
        targets: Target columns. The sample has a row of each of their classes.
        seed: Seed of the sample.
        rows: Size of the sample, at most that of the table. Default: 50,000.
        progress: Called with the number of rows of each chunk.
    """
    rows = SAMPLE_ROWS if rows is None else rows
    random, total, limit = np.random.default_rng(seed), 0, 1.0
    # read as text, since the values of a chunk might look like those of another type
    text = [] if path.name.endswith(PARQUET) else read_headings(path)
    found, keys = list[pd.DataFrame](), np.zeros(0)
    classes: dict[str, set[object]] = {name: set() for name in targets}
    for chunk in read_chunks(path, CHUNK_ROWS, text):
        drawn = random.random(len(chunk))
        for name in [name for name in classes if name in chunk]:
            values = chunk[name].drop_duplicates().dropna()
            new = values[~values.isin(classes[name])]
            classes[name].update(new)
            if len(classes[name]) > MOST_CLASSES:
                del classes[name]
            else:
                drawn[new.index - total] = -1.0
        total += len(chunk)
        keep = drawn < limit
        found.append(chunk[keep])
        keys = np.concatenate([keys, drawn[keep]])
        if len(keys) > 2 * rows:
            found, keys = _keep_smallest(found, keys, rows)
            limit = keys.max()
        progress(len(chunk))
    if not total:
        raise TableError(f"{path.name} has no rows")
    (table,), _ = _keep_smallest(found, keys, rows)
    table = table.sort_index()
    return TableSample(_infer_types(table) if text else table, total)


def _keep_smallest(found: list[pd.DataFrame], keys: np.ndarray, rows: int) -> tuple[list[pd.DataFrame], np.ndarray]:
    smallest = np.argsort(keys, kind="stable")[:rows]
    return [pd.concat(found).iloc[smallest]], keys[smallest]


def _infer_types(table: pd.DataFrame) -> pd.DataFrame:
    """The types that reading the sample as a file gives."""
    text = io.StringIO(table.to_csv(index=False))
    return pd.read_csv(text, low_memory=False, **EXACT).set_axis(table.index)
