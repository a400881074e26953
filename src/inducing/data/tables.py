"""Reading tables, whole or in chunks. What becomes of their columns is said by a `Schema`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from inducing.data.columns import Column, TableError, TableWarning
from inducing.data.schema import Schema

__all__ = ["Column", "Schema", "TableError", "TableWarning", "read_chunks", "read_table"]

CSV, PARQUET = (".csv", ".csv.gz"), (".parquet", ".pq")


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a CSV or Parquet file, known by its ending: .csv, .csv.gz, .parquet, .pq.

    Parquet needs the extra: ``pip install 'inducing[parquet]'``.
    """
    chunks = list(read_chunks(path))
    return chunks[0] if len(chunks) == 1 else pd.concat(chunks, ignore_index=True)


def read_chunks(path: str | Path, rows: int | None = None) -> Iterator[pd.DataFrame]:
    """Read a CSV or Parquet file so many rows at a time, for files larger than memory; None reads it at once."""
    path = Path(path)
    if not path.name.endswith(CSV + PARQUET):
        raise TableError(f"{path.name}: a table is a {', '.join(CSV + PARQUET)} file")
    if not path.is_file():
        raise TableError(f"{path} is not a file")
    kind = "Parquet file" if path.name.endswith(PARQUET) else "CSV file with a heading"
    try:
        if path.name.endswith(PARQUET):
            file = _parquet().ParquetFile(path)
            if rows is None or file.metadata.num_rows == 0:
                yield file.read().to_pandas()
            else:
                yield from (batch.to_pandas() for batch in file.iter_batches(rows))
        elif rows is None:
            yield pd.read_csv(path)
        else:
            yield from pd.read_csv(path, chunksize=rows)
    except (OSError, ValueError) as error:
        # the errors of pandas and pyarrow are ValueErrors
        raise TableError(f"{path.name} is not a {kind}: {error}") from error


def _parquet() -> Any:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError("Parquet is an extra: pip install 'inducing[parquet]'; or save the table as CSV") from error
    return parquet
