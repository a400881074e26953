"""All datasets by name, both tables and images: find, download, verify."""

from __future__ import annotations

from inducing.data import image_files, uci

NAMES = (*uci.FOLDERS, *image_files.SETS)
PARTS = {"train": True, "test": False}


def locate(name: str) -> str:
    """Describe the folder of a dataset."""
    return f"{name:14} {where(name)}"


def where(name: str) -> str:
    """Return the folder of a dataset, or "not here", as text."""
    if name in uci.FOLDERS:
        return str(uci.find(name) or "not here")
    found = {part: image_files.find(name, train) for part, train in PARTS.items()}
    folders = dict.fromkeys(str(paths[0].parent) for paths in found.values() if paths)
    missing = [part for part, paths in found.items() if not paths]
    if not folders:
        return "not here"
    return ", ".join(folders) + (f" ({missing[0]} is not here)" if missing else "")


def fetch(name: str) -> str:
    """Download the missing files of a dataset, and describe its folder."""
    if name in uci.FOLDERS:
        uci.download(name)
    else:
        for train in PARTS.values():
            image_files.download(name, train)
    return locate(name)


def verify(name: str) -> str:
    """Read the parts of a dataset that exist on this machine, and describe each. Raise an error if there are none."""
    if name in uci.FOLDERS:
        return uci.verify(name)
    here = [train for train in PARTS.values() if image_files.find(name, train)]
    # if no part exists, the training part raises the error
    return "\n".join(image_files.verify(name, train) for train in here or [True])
