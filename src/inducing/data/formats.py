"""Readers of image files: idx, CIFAR-10 records, tar archives of them, MATLAB and NumPy archives.

Each reader is told the size that the file must have, and refuses another before it makes room for the contents. Files are
data: nothing in them is executed. What is wrong with a file is a ValueError that names it.
"""

from __future__ import annotations

import gzip
import math
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

import numpy as np
from jaxtyping import UInt8


def read_idx(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Read an idx file of bytes, plain or gzip, which must hold an array of this shape.

    An idx file is the bytes 0, 0, 8 (unsigned bytes), the number of axes, their lengths as big-endian int32, then the array.
    """
    with _opened(path) as stream:
        header = stream.read(4 + 4 * len(shape))
        if header[:3] != b"\0\0\x08" or len(header) < 4:
            raise ValueError(f"{path} is not an idx file of bytes: it begins with {header[:4].hex(' ') or 'nothing'}")
        found = tuple(int(length) for length in np.frombuffer(header[4 : len(header) // 4 * 4], ">u4"))
        if header[3] != len(shape) or found != shape:
            axes = f"{header[3]} axes" if header[3] != len(shape) else f"shape {found}"
            raise ValueError(f"{path} holds an array of {axes}, expected shape {shape}")
        return np.frombuffer(_exactly(stream, math.prod(shape), path), np.uint8).reshape(shape)


def read_bytes(path: Path, size: int) -> bytes:
    """Read a plain file of a known size."""
    with path.open("rb") as stream:
        return _exactly(stream, size, path)


def read_members(path: Path, names: list[str], size: int) -> list[bytes]:
    """Read files of a known size from a tar.gz archive, without unpacking it."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                name = member.name.removeprefix("./")
                if name in names and member.isreg():
                    if member.size != size:
                        raise ValueError(f"{name} in {path} has {member.size} bytes, expected {size}")
                    stream = archive.extractfile(member)
                    assert stream is not None  # of regular files it never is
                    found[name] = _exactly(stream, size, path)
                if len(found) == len(names):
                    break
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is not a whole tar.gz archive: {error}") from error
    if missing := [name for name in names if name not in found]:
        raise ValueError(f"{path} does not hold {', '.join(missing)}")
    return [found[name] for name in names]


def decode_cifar(records: bytes) -> tuple[UInt8[np.ndarray, "N 3 32 32"], UInt8[np.ndarray, " N"]]:
    """Split records of CIFAR-10's binary version: a byte for the label, then the red, green and blue planes."""
    table = np.frombuffer(records, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    return table[:, 1:].reshape(-1, 3, 32, 32), table[:, 0]


def read_mat(path: Path, shapes: dict[str, tuple[int, ...]]) -> list[np.ndarray]:
    """Read variables of known shapes, all uint8, from a MATLAB file (up to version 7.2, as SVHN's are)."""
    # here, since it takes a third of a second to import
    import scipy.io

    with _damage_named(path, "a MATLAB file"):
        headers = {name: (tuple(shape), kind) for name, shape, kind in scipy.io.whosmat(path)}
    _compare(path, headers, shapes)
    with _damage_named(path, "a whole MATLAB file"):
        variables = scipy.io.loadmat(path, variable_names=list(shapes))
    return [variables[name] for name in shapes]


def read_npz(path: Path, shapes: dict[str, tuple[int, ...]]) -> list[np.ndarray]:
    """Read arrays of known shapes, all uint8, from a NumPy archive."""
    headers = {}
    with _damage_named(path, "a NumPy archive"), zipfile.ZipFile(path) as archive:
        for entry in archive.namelist():
            with archive.open(entry) as member:
                np.lib.format.read_magic(member)
                shape, _, kind = np.lib.format.read_array_header_1_0(member)
                headers[entry.removesuffix(".npy")] = (shape, str(kind))
    _compare(path, headers, shapes)
    with _damage_named(path, "a whole NumPy archive"), np.load(path, allow_pickle=False) as arrays:
        return [arrays[name] for name in shapes]


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO | gzip.GzipFile]:
    """Open a file, through gzip if its first bytes say so."""
    with path.open("rb") as plain:
        packed = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        if not packed:
            yield plain
            return
        try:
            with gzip.GzipFile(fileobj=plain) as stream:
                yield stream
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{path} is not a whole gzip file: {error}") from error


@contextmanager
def _damage_named(path: Path, kind: str) -> Iterator[None]:
    """A damaged file fails in a parser in many ways; say which file it was."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        raise ValueError(f"{path} is not {kind}: {error}") from error


def _exactly(stream: BinaryIO | gzip.GzipFile | IO[bytes], size: int, path: Path) -> bytes:
    """Read the rest of a file, which must be so many bytes; one more is asked for, so that gzip checks its checksum."""
    contents = stream.read(size + 1)
    if len(contents) != size:
        held = f"only {len(contents)}" if len(contents) < size else f"more than {size}"
        raise ValueError(f"{path} holds {held} bytes of contents, expected {size}")
    return contents


def _compare(path: Path, found: dict[str, tuple[tuple[int, ...], str]], shapes: dict[str, tuple[int, ...]]) -> None:
    for name, shape in shapes.items():
        if name not in found:
            raise ValueError(f"{path} holds {', '.join(found) or 'nothing'}; expected {', '.join(shapes)}")
        if found[name] != (shape, "uint8"):
            raise ValueError(
                f"{name} in {path} is {found[name][1]} of shape {found[name][0]}, expected uint8 of {shape}"
            )
