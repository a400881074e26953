"""All data sets by name, of tables and of images alike: where they are, their download, their check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inducing.data import image_files, uci

NAMES = (*uci.FOLDERS, *image_files.SETS)
PARTS = {"train": True, "test": False}


def check_names(names: Sequence[str]) -> None:
    """Refuse a name that is not a set's before anything is done for the others."""
    for name in names:
        if name not in NAMES:
            raise ValueError(f"unknown data set {name!r}; known are {', '.join(NAMES)}")


def where(name: str) -> str:
    """Say where a set is found, or that it is not here."""
    if name in uci.FOLDERS:
        return str(uci.find(name) or "not here")
    found = {part: image_files.find(name, train) for part, train in PARTS.items()}
    folders = dict.fromkeys(str(paths[0].parent) for paths in found.values() if paths)
    missing = [part for part, paths in found.items() if not paths]
    if not folders:
        return "not here"
    return ", ".join(folders) + (f" ({missing[0]} is not here)" if missing else "")


def download(name: str) -> None:
    """Download the files of a set that are not here."""
    if name in uci.FOLDERS:
        uci.download(name)
        return
    for train in PARTS.values():
        image_files.download(name, train)


def verify(name: str) -> Iterator[str]:
    """Read what is here of a set, and give a line for each part; a set of which nothing is here is an error."""
    if name in uci.FOLDERS:
        yield uci.verify(name)
        return
    here = [train for train in PARTS.values() if image_files.find(name, train)]
    if not here:
        raise FileNotFoundError(f"{name} is not here; `inducing data fetch {name}` gets it")
    for train in here:
        yield image_files.verify(name, train)
