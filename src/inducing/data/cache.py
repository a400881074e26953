"""The folder of data files: the folder in INDUCING_DATA, or a cache of downloads. Both have the same layout.

Every download has a checksum. If none is published, the checksum of the first download is stored next to the file, and a
file with another checksum is an error.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from inducing.extras import require
from inducing.files import write_atomically

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def data_folder() -> Path | None:
    """Return the folder in the environment variable INDUCING_DATA, or None if it is not set."""
    named = os.environ.get("INDUCING_DATA")
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"INDUCING_DATA is {folder}, which is not a folder. Unset it to download the data.")
    return folder


def root() -> Path:
    """Return the folder of all data: the folder in INDUCING_DATA, else the user's cache."""
    return data_folder() or Path(require("pooch").os_cache("inducing"))


def fetch(url: str, name: str, checksum: str | None = None) -> Path:
    """Download a file once, by HTTPS.

    Arguments:
        url: The address of the file.
        name: Path relative to `root`, e.g. "uci/yacht/data.txt".
        checksum: The published checksum, "sha256:..." or "md5:...". Default: the SHA-256 of the first download, which is
            stored in a file next to it, e.g. "uci/yacht/data.txt.sha256".
    """
    _check_encrypted(url)
    pooch = require("pooch")
    path = root() / name
    recorded = read_record(path) if checksum is None else None
    pooch.get_logger().setLevel(logging.WARNING)
    downloader = pooch.HTTPDownloader(progressbar=False, hooks={"response": _check_redirect})
    try:
        found = pooch.retrieve(url, checksum or recorded, fname=path.name, path=path.parent, downloader=downloader)
    except (OSError, ValueError) as error:
        changed = f" Remove {record_of(path)} if the file may have changed." if recorded else ""
        raise FileNotFoundError(
            f"cannot download {url}: {error}. Put the files into a folder and set INDUCING_DATA to it.{changed}"
        ) from error
    if checksum is None and recorded is None:
        write_atomically(record_of(path), f"{hash_file(path)}  {path.name}\n".encode())
    return Path(found)


def hash_file(path: Path, kind: str = "sha256") -> str:
    """Return the checksum of a file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


def record_of(path: Path) -> Path:
    """Return the path of the file with the checksum of the first download, in the format of sha256sum."""
    return path.with_name(f"{path.name}.sha256")


def read_record(path: Path) -> str | None:
    """Return the checksum of the first download of a file, "sha256:...", or None if there is no record."""
    record = record_of(path)
    if not record.is_file():
        return None
    checksum = record.read_text(errors="replace").partition(" ")[0].strip()
    if not re.fullmatch("[0-9a-f]{64}", checksum):
        raise ValueError(f"{record} does not contain a SHA-256 checksum. Remove it.")
    return f"sha256:{checksum}"


def matches_record(path: Path) -> bool:
    """Return whether a file has a record of its first download. Raise an error if its checksum differs."""
    recorded = read_record(path)
    if recorded is not None and f"sha256:{hash_file(path)}" != recorded:
        raise ValueError(f"{path} has changed since its first download. Remove it and fetch it again.")
    return recorded is not None


def _check_encrypted(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in LOOPBACK:
        raise ValueError(f"{url} is not encrypted, so its contents cannot be trusted. Use https.")


def _check_redirect(response: Any, **_: Any) -> None:
    """Raise an error for redirects to addresses that are not encrypted."""
    if response.is_redirect:
        _check_encrypted(urljoin(response.url, response.headers["location"]))
