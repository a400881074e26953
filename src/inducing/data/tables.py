"""Reading tables, whole or in chunks. What becomes of their columns is said by a `Schema`."""

from __future__ import annotations

import functools
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from inducing.data.columns import Column, TableError, TableWarning, quoted
from inducing.data.schema import Schema

__all__ = ["Column", "Schema", "TableError", "TableWarning", "estimate_rows", "read_chunks", "read_table"]

CSV, PARQUET = (".csv", ".csv.gz"), (".parquet", ".pq")
# pandas reads numbers exactly since 3.1, where the option is deprecated; before, the last digit of some is wrong
PANDAS = tuple(int(part) for part in pd.__version__.split(".")[:2])
EXACT: dict[str, Any] = {"float_precision": "round_trip"} if PANDAS < (3, 1) else {}


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a CSV or Parquet file, known by its ending: .csv, .csv.gz, .parquet, .pq.

    Parquet needs the extra: ``pip install 'inducing[parquet]'``.
    """
    chunks = list(read_chunks(path))
    return chunks[0] if len(chunks) == 1 else pd.concat(chunks, ignore_index=True)


def read_chunks(path: str | Path, rows: int | None = None, text: Collection[str] = ()) -> Iterator[pd.DataFrame]:
    """Read a CSV or Parquet file so many rows at a time, for files larger than memory. Rows are numbered through.

    Arguments:
        path: The file.
        rows: Rows at a time; None reads it at once.
        text: Columns of a CSV file to read as text even where a chunk of them looks like numbers.
    """
    path = Path(path)
    if not path.name.endswith(CSV + PARQUET):
        raise TableError(f"{path.name}: a table is a {', '.join(CSV + PARQUET)} file")
    if not path.is_file():
        raise TableError(f"{path} is not a file")
    kind = "Parquet file" if path.name.endswith(PARQUET) else "CSV file with a heading"
    try:
        if path.name.endswith(PARQUET):
            file = _parquet().ParquetFile(path)
            _check_headings(path, file.schema_arrow.names)
            if rows is None or file.metadata.num_rows == 0:
                yield file.read().to_pandas()
            else:
                first = 0
                for batch in file.iter_batches(rows):
                    chunk = batch.to_pandas()
                    chunk.index = pd.RangeIndex(first, first + len(chunk))
                    first += len(chunk)
                    yield chunk
            return
        # read as rows, headings that are there twice keep their names, and a longer row below them is an error
        for count in (1, 2):
            first = pd.read_csv(path, header=None, nrows=count, dtype=str, keep_default_na=False)
            _check_headings(path, first.iloc[0].tolist())
        read = functools.partial(pd.read_csv, path, dtype=dict.fromkeys(text, str), **EXACT)
        if rows is None:
            yield read()
        else:
            yield from read(chunksize=rows)
    except TableError:
        raise
    except UnicodeDecodeError as error:
        raise TableError(f"{path.name} is not a {kind} in UTF-8 ({error}); save it with that encoding") from error
    except (OSError, ValueError, EOFError, zlib.error) as error:
        # the errors of pandas and pyarrow are ValueErrors; gzip has the last two for truncated and damaged files
        raise TableError(f"{path.name} is not a {kind}: {error}") from error


def _check_headings(path: Path, headings: list[str]) -> None:
    # what spreadsheets write where the comma belongs to numbers would be read as one column
    if sum(heading.count(";") for heading in headings) >= len(headings):
        raise TableError(
            f"the columns of {path.name} are separated by ';'; save it with commas, and numbers with points"
        )
    twice = [heading for heading, times in Counter(headings).items() if times > 1 and heading]
    if twice:
        raise TableError(f"several columns of {path.name} have the heading {quoted(twice)}; rename or remove them")


def estimate_rows(path: str | Path) -> int | None:
    """About how many rows a table has, for a progress bar: the lines of a CSV file; None for a compressed one."""
    path = Path(path)
    if path.name.endswith(PARQUET):
        return int(_parquet().ParquetFile(path).metadata.num_rows)
    if not path.name.endswith(".csv"):
        return None
    with path.open("rb") as file:
        lines = sum(block.count(b"\n") for block in iter(lambda: file.read(2**20), b""))
    return max(lines - 1, 0)


def _parquet() -> Any:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError("Parquet is an extra: pip install 'inducing[parquet]'; or save the table as CSV") from error
    return parquet
