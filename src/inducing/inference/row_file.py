"""Training rows in a file, for data larger than memory: written once, and read in shuffled blocks.

An epoch takes blocks of as many consecutive rows as a batch has, in random order. The rows of GROUP blocks are in memory at
a time, and are shuffled among their batches. The order depends only on the seed and the number of the epoch.
"""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from inducing.files import open_atomically, write_atomically
from inducing.linalg.noise import seeded

# blocks that are shuffled together
GROUP = 64


@dataclass(frozen=True)
class RowFile:
    """Rows in a binary file: inputs in float32, real targets in float64, labels in int64. `inducing.fit` accepts it as data.

    Arguments:
        path: The file. Its description is beside it, with the suffix ".json".
        num_rows: Number of rows.
        num_inputs: Inputs of a row.
        num_targets: Targets of a row. None: a label.
        checksum: CRC-32 of the file.
        dtype: Of the inputs and the real targets in batches.
    """

    path: Path
    num_rows: int
    num_inputs: int
    num_targets: int | None
    checksum: int
    dtype: torch.dtype = torch.float64

    def __len__(self) -> int:
        return self.num_rows

    @classmethod
    def write(cls, path: Path, parts: Iterable[tuple[Tensor, Tensor]], source: dict[str, Any]) -> RowFile:
        """Write rows part by part.

        Arguments:
            path: The file to write.
            parts: Inputs (K, D), and targets (K, O) or labels (K,).
            source: What the rows were made from, as JSON. See `find`.
        """
        num_rows = checksum = 0
        with open_atomically(path) as file:
            for x, y in parts:
                layout = _layout(x.shape[1], None if y.ndim == 1 else y.shape[1])
                records = np.empty(len(x), layout)
                with np.errstate(over="ignore"):
                    records["x"], records["y"] = x.numpy(), y.numpy()
                if len(large := np.argwhere(np.isinf(records["x"]))):
                    row, column = large[0]
                    raise ValueError(f"input {column} has the standardised value {x[row, column]:g}. Remove this row")
                content = records.tobytes()
                file.write(content)
                checksum, num_rows = zlib.crc32(content, checksum), num_rows + len(x)
        if not num_rows:
            raise ValueError("there are no rows to write")
        found = cls(path, num_rows, x.shape[1], None if y.ndim == 1 else y.shape[1], checksum)
        described = {"rows": num_rows, "inputs": found.num_inputs, "targets": found.num_targets, "checksum": checksum}
        write_atomically(path.with_suffix(".json"), json.dumps(described | {"source": source}).encode())
        return found

    @classmethod
    def find(cls, path: Path, source: dict[str, Any]) -> RowFile | None:
        """A file that was written from this source and is complete, or None."""
        try:
            known = json.loads(path.with_suffix(".json").read_text())
            found = cls(path, known["rows"], known["inputs"], known["targets"], known["checksum"])
            is_complete = path.stat().st_size == found.num_rows * found._layout.itemsize
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return found if is_complete and known.get("source") == json.loads(json.dumps(source)) else None

    def read(self, first: int, count: int) -> tuple[Float[Tensor, "K D"], Shaped[Tensor, "K *O"]]:
        """Read consecutive rows."""
        records = np.fromfile(self.path, self._layout, count, offset=first * self._layout.itemsize)
        x, y = torch.from_numpy(records["x"].astype(np.float64)), torch.from_numpy(records["y"].copy())
        return x.to(self.dtype), y if self.num_targets is None else y.to(self.dtype)

    def count_batches(self, batch_size: int) -> int:
        """Number of batches in an epoch."""
        return -(-self.num_rows // batch_size)

    def since(self, batch_size: int, seed: int, step: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The endless stream of batches from a step on."""
        first, skip = divmod(step, self.count_batches(batch_size))
        for epoch in itertools.count(first):
            random = seeded(seed, f"order of epoch {epoch}")
            blocks = torch.randperm(self.count_batches(batch_size), generator=random)
            for number, group in enumerate(blocks.split(GROUP)):
                order = torch.randperm(sum(self._size(block, batch_size) for block in group.tolist()), generator=random)
                here = skip - number * GROUP if epoch == first else 0
                if here >= len(group):
                    continue
                parts = [self.read(block * batch_size, batch_size) for block in group.tolist()]
                x, y = (torch.cat(tensors)[order] for tensors in zip(*parts, strict=True))
                batches = list(zip(x.split(batch_size), y.split(batch_size), strict=True))
                yield from batches[max(here, 0) :]

    def _size(self, block: int, batch_size: int) -> int:
        return min(batch_size, self.num_rows - block * batch_size)

    @property
    def _layout(self) -> np.dtype:
        return _layout(self.num_inputs, self.num_targets)


def _layout(inputs: int, targets: int | None) -> np.dtype:
    y = ("y", "<i8") if targets is None else ("y", "<f8", (targets,))
    return np.dtype([("x", "<f4", (inputs,)), y])
