"""Atomic writing of files, and checksums of their content."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary file in the same folder, then rename it to ``path``."""
    with open_atomically(path) as file:
        file.write(content)


@contextmanager
def open_atomically(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file in the same folder for writing, and rename it to ``path`` at the end of the block.

    A symbolic link is followed and stays a link. An existing file keeps its permissions, and its owner and group if the
    process may set them. If the block raises, the temporary file is removed, and an existing file is not changed.
    """
    target, before = _resolve(path)
    handle, temporary = _create_temporary(target, before)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def check_writable(path: Path) -> None:
    """Raise the error that writing to ``path`` would raise. No file is left behind."""
    target, before = _resolve(path)
    try:
        handle, temporary = _create_temporary(target, before)
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror}. Choose another folder") from error
    os.close(handle)
    os.unlink(temporary)


def digest(header: dict[str, Any], tensors: dict[str, Tensor], with_shapes: bool = True) -> str:
    """Return the SHA-256 checksum of a JSON header and named tensors.

    Arguments:
        header: The header, without its checksum.
        tensors: The tensors.
        with_shapes: Whether the checksum covers dtypes and shapes: True for model files, False for checkpoints.
    """
    total = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        described = json.dumps([name, str(tensor.dtype), list(tensor.shape)]) if with_shapes else name
        total.update(described.encode())
        total.update(tensor_bytes(tensor))
    return total.hexdigest()


def tensor_bytes(tensor: Tensor) -> memoryview:
    """Return the memory of a tensor as bytes."""
    # via uint8, since NumPy does not have all dtypes, e.g. bfloat16
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def _resolve(path: Path) -> tuple[Path, os.stat_result | None]:
    """Resolve symbolic links. Return the path of the file, and its status if it exists."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        folder = target.parent if path.is_symlink() else path.parent
        raise FileNotFoundError(f"there is no folder {folder} for {path.name}. Create it first")
    try:
        before = os.stat(target)
    except FileNotFoundError:
        return target, None
    if not stat.S_ISREG(before.st_mode):
        kind = KINDS.get(stat.S_IFMT(before.st_mode), "not a regular file")
        raise OSError(f"{path} is {kind}. Pass the path of a file")
    if not os.access(target, os.W_OK):
        raise PermissionError(f"{path} is write-protected. Choose another name, or change its permissions")
    return target, before


def _create_temporary(target: Path, before: os.stat_result | None) -> tuple[int, Path]:
    """Create an empty file in the folder of ``target``, with the permissions of the file that it will replace.

    A new file gets the default permissions of the system. The umask is never read, since reading it changes it for all
    threads.
    """
    # shortened, since the whole name might exceed the limit of the file system
    temporary = target.parent / f".{target.name[:40]}.{secrets.token_hex(8)}"
    # private until it has the permissions of the existing file
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if before is None else 0o600)
    try:
        if before is not None and os.name == "posix":
            _copy_permissions(handle, before)
    except BaseException:
        os.close(handle)
        os.unlink(temporary)
        raise
    return handle, temporary


def _copy_permissions(handle: int, before: os.stat_result) -> None:
    mode = stat.S_IMODE(before.st_mode)
    # only root may change the owner of a file; members of a group may change its group
    with suppress(PermissionError):
        os.fchown(handle, before.st_uid, -1)
    try:
        os.fchown(handle, -1, before.st_gid)
    except PermissionError:
        # if the group changes, it gets only the permissions of others
        mode = mode & ~stat.S_IRWXG | (mode & stat.S_IRWXO) << 3
    os.fchmod(handle, mode)
