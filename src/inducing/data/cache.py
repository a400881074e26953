"""Where data files are: the folder that INDUCING_DATA names, or a cache that downloads fill. Both are laid out alike.

Every download has a checksum. Where none is published, that of the first download is kept beside the file, and a file that
differs later is refused.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pooch

from inducing.files import write_atomically

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def data_folder() -> Path | None:
    """The folder that the environment variable INDUCING_DATA names, if it is set."""
    named = os.environ.get("INDUCING_DATA")
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"INDUCING_DATA names {folder}, which is not a folder; unset it to download the data")
    return folder


def root() -> Path:
    """The folder of all data: the one that INDUCING_DATA names, else the user's cache."""
    return data_folder() or Path(pooch.os_cache("inducing"))


def fetch(url: str, name: str, checksum: str | None = None) -> Path:
    """Download a file once, by HTTPS.

    Arguments:
        url: Where it is published.
        name: Its place below `root`, e.g. "uci/yacht/data.txt".
        checksum: The published one, "sha256:..." or "md5:...". Default: the SHA-256 of the first download, which is kept in
            a file beside it, e.g. "uci/yacht/data.txt.sha256".
    """
    _check_encrypted(url)
    path = root() / name
    recorded = read_record(path) if checksum is None else None
    pooch.get_logger().setLevel(logging.WARNING)
    downloader = pooch.HTTPDownloader(progressbar=False, hooks={"response": _check_redirect})
    try:
        found = pooch.retrieve(url, checksum or recorded, fname=path.name, path=path.parent, downloader=downloader)
    except (OSError, ValueError) as error:
        changed = f". Remove {record_of(path)} if the file may differ from the first download" if recorded else ""
        raise FileNotFoundError(
            f"cannot download {url}: {error}. Put the files into a folder by hand and name it in INDUCING_DATA{changed}"
        ) from error
    if checksum is None and recorded is None:
        write_atomically(record_of(path), f"{pooch.file_hash(found)}  {path.name}\n".encode())
    return Path(found)


def record_of(path: Path) -> Path:
    """The file beside a download that holds its first checksum, as the command sha256sum writes it."""
    return path.with_name(f"{path.name}.sha256")


def read_record(path: Path) -> str | None:
    """The checksum of the first download of a file, "sha256:..."; None if there was none."""
    record = record_of(path)
    if not record.is_file():
        return None
    checksum = record.read_text(errors="replace").partition(" ")[0].strip()
    if not re.fullmatch("[0-9a-f]{64}", checksum):
        raise ValueError(f"{record} holds no SHA-256 checksum; remove it")
    return f"sha256:{checksum}"


def matches_record(path: Path) -> bool:
    """Whether a file is known to be as it was first downloaded; one that is known to differ is an error."""
    recorded = read_record(path)
    if recorded is not None and f"sha256:{pooch.file_hash(path)}" != recorded:
        raise ValueError(f"{path} has changed since its first download; remove it and fetch it again")
    return recorded is not None


def _check_encrypted(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in LOOPBACK:
        raise ValueError(f"{url} is not encrypted, so its contents cannot be trusted; use https")


def _check_redirect(response: Any, **_: Any) -> None:
    """Refuse to be sent on to an address that is not encrypted."""
    if response.is_redirect:
        _check_encrypted(urljoin(response.url, response.headers["location"]))
