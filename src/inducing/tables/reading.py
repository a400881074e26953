"""Reading tables from CSV and Parquet files, whole or in chunks."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from inducing.extras import require
from inducing.tables.errors import TableError, quoted

CSV, PARQUET = (".csv", ".csv.gz"), (".parquet", ".pq")
# pandas parses numbers exactly since 3.1, where the option is deprecated; before, the last digit may be wrong. Before 3.1 it
# also drops surplus fields of the first row of a chunk without an error
IS_OLD = tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)
# how many times smaller a table is in a .gz file
GZIP_RATIO = 4.0
EXACT: dict[str, Any] = {"float_precision": "round_trip"} if IS_OLD else {}


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a CSV or Parquet file, recognised by its suffix: .csv, .csv.gz, .parquet, .pq.

    Parquet needs an extra: ``pip install "inducing[parquet]"``.
    """
    (table,) = read_chunks(path)
    return table


def read_chunks(path: str | Path, rows: int | None = None, text: Collection[str] = ()) -> Iterator[pd.DataFrame]:
    """Read a CSV or Parquet file in chunks, for files larger than memory. Row labels continue across chunks.

    Arguments:
        path: The file.
        rows: Rows in a chunk. Default: all.
        text: Columns of a CSV file to read as text, even if a chunk of them looks like numbers.
    """
    path = Path(path)
    if not path.name.endswith(CSV + PARQUET):
        raise TableError(f"{path.name} is not a table", f"Use a {', '.join(CSV + PARQUET)} file.")
    if not path.is_file():
        raise TableError(f"{path} is not a file" if path.exists() else f"{path} does not exist")
    is_parquet = path.name.endswith(PARQUET)
    kind = "Parquet file" if is_parquet else "CSV file with a header"
    try:
        yield from _read_parquet(path, rows) if is_parquet else _read_csv(path, rows, text)
    except TableError:
        raise
    except UnicodeDecodeError as error:
        raise TableError(f"{path.name} is not a {kind} in UTF-8 ({error})", "Save it in that encoding.") from error
    except (OSError, ValueError, csv.Error, EOFError, zlib.error) as error:
        # pandas and pyarrow raise ValueErrors; gzip raises the last two for truncated and damaged files
        raise TableError(f"{path.name} is not a {kind}: {error}") from error


def count_rows(path: str | Path) -> int | None:
    """Count the rows of a table approximately, for a progress bar. CSV: the lines. Compressed files: None."""
    path = Path(path)
    if path.name.endswith(PARQUET):
        return int(_open_parquet(path).metadata.num_rows)
    if not path.name.endswith(".csv"):
        return None
    with path.open("rb") as file:
        lines = sum(block.count(b"\n") for block in iter(lambda: file.read(2**20), b""))
    return max(lines - 1, 0)


def measure_table(path: str | Path) -> float:
    """Estimate the memory of a whole table in bytes, without reading it."""
    path = Path(path)
    if not path.is_file() or not path.name.endswith(CSV + PARQUET):
        # the reader says what is wrong
        return 0.0
    if path.name.endswith(PARQUET):
        try:
            metadata = _open_parquet(path).metadata
        except (OSError, ValueError):
            # the reader says what is wrong
            return 0.0
        return float(metadata.num_rows * metadata.num_columns * 8)
    return path.stat().st_size * (GZIP_RATIO if path.name.endswith(".gz") else 1.0)


def copy_columns(path: Path, rows: int, names: Sequence[str]) -> Generator[pd.DataFrame, None, None]:
    """Some columns in chunks of this many rows. Those of a CSV file are text, as it stands in the file."""
    if path.name.endswith(PARQUET):
        yield from (chunk[list(names)] for chunk in read_chunks(path, rows))
        return
    with pd.read_csv(path, usecols=list(names), dtype=str, keep_default_na=False, chunksize=rows) as text:
        yield from (chunk[list(names)] for chunk in text)


def read_headings(path: str | Path) -> list[str]:
    """The names of the columns of a CSV file."""
    return list(next(read_chunks(path, 1)).columns)


def _read_csv(path: Path, rows: int | None, text: Collection[str]) -> Iterator[pd.DataFrame]:
    # read without a header, duplicate headings keep their names, and a second row that is longer is an error
    for count in (1, 2):
        head = pd.read_csv(path, header=None, nrows=count, dtype=str, keep_default_na=False)
        _check_headings(path, head.iloc[0].tolist())
    if IS_OLD and rows is not None:
        _check_fields(path, head.shape[1])
    # without low_memory=False the types of parts of a column may differ
    table = pd.read_csv(path, dtype=dict.fromkeys(text, str), chunksize=rows, low_memory=False, **EXACT)
    yield from [table] if rows is None else table


def _check_fields(path: Path, expected: int) -> None:
    with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as file:
        rows = csv.reader(io.TextIOWrapper(file, encoding="utf-8-sig", newline=""))
        for row in rows:
            if len(row) > expected:
                raise ValueError(f"Expected {expected} fields in line {rows.line_num}, saw {len(row)}")


def _read_parquet(path: Path, rows: int | None) -> Iterator[pd.DataFrame]:
    file = _open_parquet(path)
    _check_headings(path, file.schema_arrow.names)
    if rows is None or file.metadata.num_rows == 0:
        yield file.read().to_pandas()
        return
    first = 0
    for groups in _bundle_groups(file.metadata, rows):
        for batch in file.iter_batches(rows, row_groups=groups):
            yield batch.to_pandas().set_axis(pd.RangeIndex(first, first + len(batch)))
            first += len(batch)


def _bundle_groups(metadata: Any, rows: int) -> Iterator[list[int]]:
    """Consecutive row groups that have together at least so many rows. Those of one call stay in the memory of pyarrow."""
    groups, count = list[int](), 0
    for group in range(metadata.num_row_groups):
        groups, count = [*groups, group], count + metadata.row_group(group).num_rows
        if count >= rows:
            yield groups
            groups, count = [], 0
    if groups:
        yield groups


def _check_headings(path: Path, headings: list[str]) -> None:
    # spreadsheets write semicolons where the comma is the decimal point; such a file would be read as one column
    if sum(heading.count(";") for heading in headings) >= len(headings):
        raise TableError(f"the columns of {path.name} are separated by ';'", "Save it with commas and decimal points.")
    twice = [heading for heading, times in Counter(headings).items() if times > 1 and heading]
    if twice:
        raise TableError(f"several columns of {path.name} have the name {quoted(twice)}", "Rename or remove them.")


def _open_parquet(path: Path) -> Any:
    require("pyarrow")
    from pyarrow import parquet

    return parquet.ParquetFile(path)
