"""The command `inducing predict`.

Modules that read tables are imported inside the command: `inducing --help` does not need them.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO, cast

import typer

from inducing.cli.tables import Exclude, check_files, progress_bar, table_messages
from inducing.files import open_atomically
from inducing.inference.parallel.ranks import is_first

STDOUT = Path("-")


@table_messages("predict")
def predict(
    model: Annotated[Path, typer.Argument(help="A model file of `inducing fit`.")],
    table: Annotated[Path, typer.Argument(help="New rows: .csv, .csv.gz or .parquet, of any size.")],
    out: Annotated[Path, typer.Option(help="File to write: .csv or .csv.gz. Default: print.", dir_okay=False)] = STDOUT,
    keep: Annotated[list[str] | None, typer.Option(help="Column to copy to the predictions (repeatable).")] = None,
    exclude: Exclude = None,
) -> None:
    """Predict the rows of a table: mean, standard deviation and quantiles, or the probabilities of classes."""
    from inducing.tables.errors import counted
    from inducing.tables.predicting import TableModel, predict_table
    from inducing.tables.reading import CSV, PARQUET, count_rows

    if not is_first():
        # under torchrun the first process writes
        return
    check_files({"model": model, "table": table}, {"out": None if out == STDOUT else out})
    if out.suffix in (".parquet", ".pq"):
        raise ValueError(f"predictions are CSV. Name the file {out.with_suffix('.csv').name}, not {out.name}.")
    if model.name.endswith(CSV + PARQUET):
        raise ValueError(f"{model} is not a model file. The order is: inducing predict MODEL TABLE.")
    loaded = TableModel.load(model)
    opened = nullcontext(sys.stdout.buffer) if out == STDOUT else open_atomically(out)
    with progress_bar() as bar, opened as written, _compressed(written, out) as file:
        task = bar.add_task("predict", total=None)
        # a file that cannot be read is refused below, with the reason
        with suppress(OSError, ValueError):
            bar.update(task, total=None if bar.disable else count_rows(table))
        rows = predict_table(loaded, table, file, keep or (), exclude or (), progress=partial(bar.advance, task))
        file.flush()
        bar.update(task, total=rows)
    if out != STDOUT:
        typer.echo(f"{counted(rows, 'row')}: {out}")


@contextmanager
def _compressed(file: BinaryIO, path: Path) -> Iterator[BinaryIO]:
    """The file, or one that compresses what is written, by the name of the path."""
    if path.suffix != ".gz":
        yield file
        return
    # without the time, so that the same predictions are the same file
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as compressed:
        yield cast(BinaryIO, compressed)
