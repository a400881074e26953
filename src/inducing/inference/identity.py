"""Identity of a run: its settings and data, and the differences between two runs.

A checkpoint continues only the same run, and processes that train together must have the same run.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor

from inducing.files import tensor_bytes
from inducing.inference.batches import Augment, Data
from inducing.inference.row_file import RowFile


def checksums(tensors: Iterable[Tensor]) -> list[int]:
    """Return the CRC-32 checksum of each tensor."""
    return [zlib.crc32(tensor_bytes(tensor)) for tensor in tensors]


def data_checksums(data: Data) -> list[int]:
    """Return the checksums of tensors, or of a file of rows. Other data have none."""
    if isinstance(data, RowFile):
        return [data.checksum]
    return checksums(data if isinstance(data, tuple | list) else [])


def augment_identity(augment: Augment | None) -> str | None:
    """Return the name of an augmentation, with the arguments of a `functools.partial`."""
    if augment is None:
        return None
    if not isinstance(augment, functools.partial):
        return str(getattr(augment, "__qualname__", type(augment).__qualname__))
    arguments = [_describe(value) for value in augment.args]
    arguments += [f"{name}={_describe(value)}" for name, value in sorted(augment.keywords.items())]
    return f"{augment_identity(augment.func)}({', '.join(arguments)})"


def differences(theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[str]:
    """Iterate over the names of the settings that differ between two runs, with both values if they are short."""
    for key in [*ours, *(theirs.keys() - ours.keys())]:
        our, their = ours.get(key), theirs.get(key)
        if isinstance(our, dict) and isinstance(their, dict):
            names = [name for name in [*our, *(their.keys() - our.keys())] if our.get(name) != their.get(name)]
            yield from (f"{name} ({str(their.get(name))[:80]} and not {our.get(name)})" for name in names)
        elif their != our:
            short = isinstance(our, int | str) and key != "network"
            yield f"{key} ({str(their)[:80]} and not {our})" if short else key


def _describe(value: object) -> str:
    if not isinstance(value, Tensor):
        return repr(value)
    return f"tensor {tuple(value.shape)} {zlib.crc32(tensor_bytes(value)):08x}"
