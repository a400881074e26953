"""Where data files are: the folder that INDUCING_DATA names, or a cache that downloads fill. Both are laid out alike."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pooch


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


def fetch(url: str, name: str, sha256: str | None = None) -> Path:
    """Download a file once.

    Arguments:
        url: Where it is published.
        name: Its place below `root`, e.g. "uci/yacht/data.txt".
        sha256: Its checksum, if one is known; another file is refused.
    """
    path = root() / name
    pooch.get_logger().setLevel(logging.WARNING)
    try:
        return Path(pooch.retrieve(url, known_hash=sha256, fname=path.name, path=path.parent, progressbar=False))
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"cannot download {url}: {error}. Put the files into a folder by hand and name it in INDUCING_DATA"
        ) from error
