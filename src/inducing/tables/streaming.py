"""Fitting to tables larger than memory.

1. A pass over the file draws a sample of its rows (`sampling`). It gives the schema, the scales, the test rows and the
   baselines.
2. Another pass encodes all rows into a binary file. Rows of the sample keep the cross-fitted encoding of their text columns.
3. The estimator is trained on shuffled blocks of this file, with checkpoints.

The binary file and the checkpoints are in one folder, from which the same command continues after an interruption.
"""

from __future__ import annotations

import json
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inducing.estimators.base import NetworkEstimator
from inducing.estimators.streaming import fit_file
from inducing.estimators.training import Rows
from inducing.inference.identity import checksums
from inducing.inference.parallel.ranks import join
from inducing.inference.row_file import RowFile
from inducing.tables.columns.text import TextColumn
from inducing.tables.errors import TableError
from inducing.tables.problem import Problem, read_targets
from inducing.tables.reading import PARQUET, read_chunks
from inducing.tables.sampling import CHUNK_ROWS
from inducing.tables.schema import Unseen, warn_of_unseen

# the folders of a stream: for the training rows, and for all rows; and the files in each, of which the third are incomplete
PARTS = ("training", "all")
FILES = ("rows", "rows.json", ".rows.*", "training-*")


@dataclass(frozen=True)
class TableStream:
    """A table that is read in chunks.

    Arguments:
        path: The table.
        num_rows: Number of its rows.
        folder: Folder for the encoded rows and the checkpoints.
        progress: Opens a progress bar while rows are encoded: a context manager that returns a function, which is called
            with the number of rows of each chunk.
    """

    path: Path
    num_rows: int
    folder: Path
    progress: Callable[[], AbstractContextManager[Callable[[int], object]]] = lambda: nullcontext(id)

    def fit(self, estimator: NetworkEstimator, problem: Problem) -> NetworkEstimator:
        """Fit to all rows of the table but the test rows of the problem, which is about a sample of the rows."""
        sample = problem.encoded.take(problem.train), problem.y[problem.train]
        num_train = self.num_rows - len(problem.test)
        # a second fit, to all rows, leaves the files of the first alone
        part = self.folder / PARTS[0 if len(problem.test) else 1]

        def write(known: Rows) -> RowFile:
            path, ranks = part / "rows", join()
            source = self._identify(problem, known)
            if ranks.first and RowFile.find(path, source) is None:
                _remove(part)
                part.mkdir(parents=True, exist_ok=True)
                with self.progress() as advance:
                    RowFile.write(path, chain([known[:2]], self._encode(estimator, problem, advance)), source)
            ranks.broadcast(0)
            file = RowFile.find(path, source)
            if file is None:
                raise OSError(f"{path} was changed by another program. Start again")
            return file

        return fit_file(estimator, sample, num_train, write, lambda file: _name_checkpoints(estimator, file, part))

    def remove_files(self) -> None:
        """Remove the encoded rows and the checkpoints. Other files in the folder stay."""
        for part in PARTS:
            _remove(self.folder / part)
        with suppress(OSError):
            self.folder.rmdir()

    def _encode(
        self, estimator: NetworkEstimator, problem: Problem, advance: Callable[[int], object]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Encode all rows that are not in the sample."""
        schema, unseen, sampled = estimator.schema_, Unseen(), problem.inputs.index.to_numpy()
        assert schema is not None
        # a chunk of a CSV file might show text as numbers or booleans
        columns = (*schema.columns, *problem.target_columns)
        text = [column.name for column in columns if isinstance(column, TextColumn)]
        for chunk in read_chunks(self.path, CHUNK_ROWS, text):
            advance(len(chunk))
            rows = chunk[~np.isin(chunk.index.to_numpy(), sampled)]
            if not len(rows):
                continue
            try:
                y = estimator.targets_.encode(read_targets(problem, rows))
                inputs = rows.drop(columns=[*problem.targets, *problem.excluded])
                encoded = schema.encode_columns(inputs)
            except TableError as error:
                raise TableError(self._with_line(error.problem), error.advice) from error
            except ValueError as error:
                where = f"rows {rows.index[0]} to {rows.index[-1]}"
                advice = "A log scale needs positive targets: --target-transform none." * ("log scale" in str(error))
                raise TableError(f"{where}: {error}", advice) from error
            unseen = encoded.find_unseen(inputs, unseen)
            yield estimator.inputs_.apply(encoded.to_numpy(), torch.float64), y
        warn_of_unseen(unseen)

    def _with_line(self, problem: str) -> str:
        """The message with the line of a CSV file beside the row, which counts from 0 after the header."""
        if self.path.name.endswith(PARQUET):
            return problem
        return re.sub(r"\brow (\d+)", lambda found: f"row {found[1]}, line {int(found[1]) + 2},", problem)

    def _identify(self, problem: Problem, known: Rows) -> dict[str, Any]:
        """What determines the encoded rows."""
        status = self.path.stat()
        return {
            "table": [str(self.path.resolve()), status.st_size, status.st_mtime_ns],
            "schema": zlib.crc32(json.dumps(problem.encoded.schema.to_json()).encode()),
            "columns": [*problem.targets, *problem.excluded],
            "sample": [zlib.crc32(problem.inputs.index.to_numpy().tobytes()), *checksums(known)],
        }


def _remove(folder: Path) -> None:
    for path in [path for name in FILES for path in folder.glob(name)]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with suppress(OSError):
        folder.rmdir()


def _name_checkpoints(estimator: NetworkEstimator, file: RowFile, folder: Path) -> Path:
    """A folder for each choice of settings, so that changed settings start again."""
    settings = {name: repr(value) for name, value in estimator.get_params(deep=False).items() if name != "verbose"}
    del settings["schema"]
    settings["rows"] = str(file.checksum)
    checkpoints = folder / f"training-{zlib.crc32(json.dumps(settings, sort_keys=True).encode()):08x}"
    checkpoints.mkdir(exist_ok=True)
    return checkpoints
