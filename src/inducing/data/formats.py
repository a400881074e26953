"""Readers of image files: idx, plain bytes and tar archives of them, MATLAB and NumPy archives.

Each reader knows the expected size of the file and reads no more. No code in a file is executed. A damaged file raises a
ValueError with its path.
"""

from __future__ import annotations

import gzip
import math
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, cast

import numpy as np
from jaxtyping import UInt8

Shape = tuple[int, ...]


def read_idx(path: Path, shape: Shape) -> UInt8[np.ndarray, "..."]:
    """Read an idx file of bytes, plain or gzip, which must contain an array of this shape.

    An idx file contains the bytes 0, 0, 8 (unsigned bytes), the number of axes, their lengths as big-endian int32, then the
    array.
    """
    with _errors_with_path(path, "an idx file"), path.open("rb") as plain:
        # some browsers unpack files without renaming them
        stream = gzip.GzipFile(fileobj=plain) if plain.peek(2)[:2] == b"\x1f\x8b" else plain
        header = stream.read(4 + 4 * len(shape))
        if header != bytes([0, 0, 8, len(shape)]) + np.array(shape, ">u4").tobytes():
            lengths = np.frombuffer(header[4 : len(header) // 4 * 4], ">u4").tolist()
            raise ValueError(f"it starts with {list(header[:4])} and the shape {lengths}, expected shape {shape}")
        return np.frombuffer(_read_exactly(stream, math.prod(shape)), np.uint8).reshape(shape)


def read_bytes(path: Path, size: int) -> bytes:
    """Read a plain file of a known size."""
    with _errors_with_path(path, "a whole file"), path.open("rb") as stream:
        return _read_exactly(stream, size)


def read_members(path: Path, names: list[str], size: int) -> list[bytes]:
    """Read files of a known size from a tar.gz archive, without unpacking it."""
    found: dict[str, bytes] = {}
    with _errors_with_path(path, "a tar.gz archive"), tarfile.open(path, "r:gz") as archive:
        for member in archive:
            name = member.name.removeprefix("./")
            if name in names and member.isreg():
                found[name] = _read_exactly(cast(IO[bytes], archive.extractfile(member)), size)
            if len(found) == len(names):
                return [found[name] for name in names]
        raise ValueError(f"it does not contain {', '.join(name for name in names if name not in found)}")


def read_mat(path: Path, shapes: dict[str, Shape]) -> list[np.ndarray]:
    """Read variables of known shapes, all uint8, from a MATLAB file (up to version 7.2, which SVHN uses)."""
    import scipy.io

    with _errors_with_path(path, "a MATLAB file"):
        _compare({name: (tuple(shape), kind) for name, shape, kind in scipy.io.whosmat(path)}, shapes)
        variables = scipy.io.loadmat(path, variable_names=list(shapes))
        return [variables[name] for name in shapes]


def read_npz(path: Path, shapes: dict[str, Shape]) -> list[np.ndarray]:
    """Read arrays of known shapes, all uint8, from a NumPy archive."""
    headers = {}
    with _errors_with_path(path, "a NumPy archive"):
        with zipfile.ZipFile(path) as archive:
            for entry in archive.namelist():
                with archive.open(entry) as member:
                    np.lib.format.read_magic(member)
                    shape, _, kind = np.lib.format.read_array_header_1_0(member)
                    headers[entry.removesuffix(".npy")] = (shape, str(kind))
        _compare(headers, shapes)
        with np.load(path, allow_pickle=False) as arrays:
            return [arrays[name] for name in shapes]


@contextmanager
def _errors_with_path(path: Path, kind: str) -> Iterator[None]:
    """Convert all errors to a ValueError with the path, since parsers fail on damaged files in many ways."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        raise ValueError(f"{path} is not {kind} as expected: {error}") from error


def _read_exactly(stream: BinaryIO | gzip.GzipFile | IO[bytes], size: int) -> bytes:
    """Read the rest of a file, which must have ``size`` bytes. Reading one more makes gzip verify its checksum."""
    contents = stream.read(size + 1)
    if len(contents) != size:
        found = f"only {len(contents)}" if len(contents) < size else f"more than {size}"
        raise ValueError(f"it has {found} bytes, expected {size}")
    return contents


def _compare(found: dict[str, tuple[Shape, str]], shapes: dict[str, Shape]) -> None:
    for name, shape in shapes.items():
        if found.get(name) != (shape, "uint8"):
            raise ValueError(f"{name} is {found.get(name, 'missing')}, expected uint8 of shape {shape}")
