"""Writing files so that a reader finds the old content or the new, never half of it."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary file beside ``path``, then put it in place in one step."""
    with open_atomically(path) as file:
        file.write(content)


@contextmanager
def open_atomically(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside ``path`` for writing; at the end of the block put it in place in one step.

    A symbolic link is followed and stays a link. An existing file keeps its permissions, and its owner and group where
    the process may set them. If the block raises, the temporary file is removed, and an older file stays as it was.
    """
    place, before = _find_place(path)
    handle, temporary = _create_beside(place, before)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, place)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def check_writable(path: Path) -> None:
    """Raise now what writing to ``path`` would raise later. Nothing is left behind."""
    place, before = _find_place(path)
    try:
        handle, temporary = _create_beside(place, before)
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror}; choose another place") from error
    os.close(handle)
    os.unlink(temporary)


def _find_place(path: Path) -> tuple[Path, os.stat_result | None]:
    """Follow symbolic links to the file that is written; return also its status, if it exists."""
    place = Path(os.path.realpath(path))
    if not place.parent.is_dir():
        folder = place.parent if path.is_symlink() else path.parent
        raise FileNotFoundError(f"there is no folder {folder} for {path.name}; make it first")
    try:
        before = os.stat(place)
    except FileNotFoundError:
        return place, None
    if not stat.S_ISREG(before.st_mode):
        kind = KINDS.get(stat.S_IFMT(before.st_mode), "not a regular file")
        raise OSError(f"{path} is {kind}; name a file to write")
    if not os.access(place, os.W_OK):
        raise PermissionError(f"{path} is write-protected; choose another name, or change its permissions")
    return place, before


def _create_beside(place: Path, before: os.stat_result | None) -> tuple[int, Path]:
    """Create an empty file beside ``place`` with the permissions of the file that it will replace.

    A new file gets the permissions that the kernel gives to any new file: the umask is never read, since reading it
    changes it for all threads.
    """
    # the whole name might exceed the limit of the file system
    temporary = place.parent / f".{place.name[:40]}.{secrets.token_hex(8)}"
    # private until it has the permissions of its predecessor
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
    # only root may give a file away; members of a group may give it to the group
    with suppress(PermissionError):
        os.fchown(handle, before.st_uid, -1)
    try:
        os.fchown(handle, -1, before.st_gid)
    except PermissionError:
        # another group gets no more than everybody
        mode = mode & ~stat.S_IRWXG | (mode & stat.S_IRWXO) << 3
    os.fchmod(handle, mode)
