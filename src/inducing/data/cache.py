"""Where data files are: the folder that INDUCING_DATA names, or a cache that downloads fill."""

from __future__ import annotations

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


def fetch(url: str, folder: str, name: str) -> Path:
    """Download a file once, into the user's cache."""
    path = Path(pooch.os_cache("inducing")) / folder
    try:
        return Path(pooch.retrieve(url, known_hash=None, fname=name, path=path, progressbar=False))
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"cannot download {url}: {error}. Put the files into a folder by hand and name it in INDUCING_DATA"
        ) from error
