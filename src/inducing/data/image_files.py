"""The files of MNIST, Fashion-MNIST, notMNIST, CIFAR-10 and SVHN: their paths, sources, sizes and checksums.

The folder in INDUCING_DATA, or the cache of downloads, contains

    mnist, fashion-mnist, notmnist/{train,t10k}-{images-idx3,labels-idx1}-ubyte, plain or .gz
    cifar-10-batches-bin/{data_batch_1 to 5,test_batch}.bin, or cifar-10-binary.tar.gz
    svhn/{train,test}_32x32.mat, or .npz with X (N, 32, 32, 3) and y, digits 0 to 9

The datasets are described in datasets.json. The authors of SVHN publish no .npz. Our .npz was cropped again from their
full-size photographs: it has the same digits, but not the same pixels. Call results on it "re-cropped SVHN".
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from inducing.checks import check_known
from inducing.data.cache import data_folder, fetch, hash_file, matches_record, root
from inducing.data.formats import read_bytes, read_idx, read_mat, read_members, read_npz

# pixels and labels
Arrays = tuple[UInt8[np.ndarray, "N C H W"], UInt8[np.ndarray, " N"]]


class ImageSet(NamedTuple):
    """Description of an image dataset.

    Arguments:
        format: "idx", "cifar" or "svhn".
        folder: Folder below the data folder.
        shape: Channels, height and width.
        num_train: Number of training images.
        num_test: Number of test images.
        home: Web page of the authors.
        source: Address of the files. MNIST: a copy with the checksums of the original. notMNIST: a sample in this format,
            made with its author's permission.
        classes: Names of the labels.
    """

    format: str
    folder: str
    shape: list[int]
    num_train: int
    num_test: int
    home: str
    source: str
    classes: list[str]


class File(NamedTuple):
    """A file of a dataset.

    Arguments:
        names: Possible paths in the data folder, in order of preference.
        download: Path of a download.
        url: Address of the published file.
    """

    names: tuple[str, ...]
    download: str
    url: str


_FILE = json.loads(Path(__file__).with_name("datasets.json").read_text())
SETS = {name: ImageSet(**entry) for name, entry in _FILE["sets"].items()}
# for each format the names of the files, their possible paths, and which of these paths is the published file's
FORMATS: dict[str, Any] = _FILE["formats"]
# SHA-256 of the published files. MD5 as published by the authors of Fashion-MNIST and CIFAR-10, and by torchvision for SVHN;
# none is published for notMNIST. Fashion-MNIST is often repacked, so its MD5 is required only for downloads.
SHA256: dict[str, str] = _FILE["sha256"]
MD5: dict[str, str] = _FILE["md5"]


def read(name: str, train: bool) -> Arrays:
    """Read pixels from 0 to 255 and labels, and check their number and shape."""
    described = _find_set(name)
    count = described.num_train if train else described.num_test
    wanted = files(name, train)
    paths = [_find(file) or _download_missing(name, file) for file in wanted]
    if described.format == "idx":
        pixels, labels = read_idx(paths[0], (count, *described.shape[1:]))[:, None], read_idx(paths[1], (count,))
    elif described.format == "cifar":
        pixels, labels = _read_cifar(paths, [file.names[0] for file in wanted], count)
    else:
        pixels, labels = _read_svhn(paths[0], count)
    if labels.max() >= len(described.classes):
        raise ValueError(f"{paths[-1]} has a label {labels.max()}. Labels must be 0 to {len(described.classes) - 1}")
    return np.ascontiguousarray(pixels), labels


def files(name: str, train: bool) -> list[File]:
    """List the files with the training or the test images of a dataset."""
    described = _find_set(name)
    layout, found = FORMATS[described.format], []
    for file in layout["train" if train else "test"]:
        places = [place.format(folder=described.folder, file=file) for place in layout["places"]]
        published = places[layout["published"]]
        found.append(File(tuple(places), published, f"{described.source}/{Path(published).name}"))
    return found


def find(name: str, train: bool) -> list[Path] | None:
    """Find the files of the training or the test images without a download. Return None if one is missing."""
    paths = [_find(file) for file in files(name, train)]
    return [path for path in paths if path] if all(paths) else None


def download(name: str, train: bool) -> list[Path]:
    """Download the missing files of the training or the test images."""
    return [_find(file) or _download(file) for file in files(name, train)]


def verify(name: str, train: bool) -> str:
    """Read the training or the test images, compare known checksums, and describe the result."""
    part = "train" if train else "test"
    paths = find(name, train)
    if paths is None:
        raise FileNotFoundError(f"{name} {part} is missing. Run `inducing data fetch {name}`")
    origins = dict.fromkeys(map(_check_origin, files(name, train), paths))
    pixels, labels = read(name, train)
    size = " x ".join(str(length) for length in pixels.shape[1:])
    counts = f"{len(pixels)} images of {size}, labels {labels.min()} to {labels.max()}"
    return f"{name} {part}: {counts}, {', '.join(origins)}"


def _check_origin(file: File, path: Path) -> str:
    """Compare a file with its known checksum, and describe the result. `read` compares the members of an archive."""
    is_archive = path.name.endswith(".tar.gz")
    known = file.names[0] if is_archive else path.relative_to(root()).as_posix()
    if known in SHA256:
        if not is_archive:
            _compare_checksum(path.read_bytes(), known, path)
        return "SHA-256 matches"
    if path.suffix == ".npz":
        return "not the published .mat"
    if known in MD5:
        return "MD5 matches" if hash_file(path, "md5") == MD5[known] else "not the published files byte for byte"
    return "as first downloaded" if matches_record(path) else "no checksum known"


def _find_set(name: str) -> ImageSet:
    check_known("image dataset", name, SETS)
    return SETS[name]


def _find(file: File) -> Path | None:
    return next((root() / name for name in file.names if (root() / name).is_file()), None)


def _download(file: File) -> Path:
    checksums = {"sha256": SHA256, "md5": MD5}
    known = [f"{kind}:{table[file.download]}" for kind, table in checksums.items() if file.download in table]
    return fetch(file.url, file.download, known[0] if known else None)


def _download_missing(name: str, file: File) -> Path:
    """Download a missing file. Raise an error if INDUCING_DATA is set, since its folder is not changed."""
    folder = data_folder()
    if folder is None:
        return _download(file)
    wanted = " or ".join(str(folder / place) for place in file.names)
    advice = f"Run `inducing data fetch {name}`, or unset INDUCING_DATA to use the cache"
    raise FileNotFoundError(f"{wanted} is missing. {advice}. Its source is {file.url} (see {SETS[name].home})")


def _compare_checksum(contents: bytes, name: str, path: Path) -> None:
    found = hashlib.sha256(contents).hexdigest()
    if SHA256.get(name, found) != found:
        raise ValueError(f"{name} of {path} is not the published file: its SHA-256 is {found}, expected {SHA256[name]}")


def _read_cifar(paths: list[Path], names: list[str], count: int) -> Arrays:
    size = count // len(names) * (1 + 3 * 32 * 32)
    archive = next((path for path in paths if path.name.endswith(".tar.gz")), None)
    if archive is None:
        batches = [read_bytes(path, size) for path in paths]
    else:
        batches = read_members(archive, names, size)
        for name, batch in zip(names, batches, strict=True):
            _compare_checksum(batch, name, archive)
    # a byte for the label, then the red, green and blue planes
    records = np.frombuffer(b"".join(batches), np.uint8).reshape(count, -1)
    return records[:, 1:].reshape(count, 3, 32, 32), records[:, 0]


def _read_svhn(path: Path, count: int) -> Arrays:
    if path.suffix == ".npz":
        pixels, labels = read_npz(path, {"X": (count, 32, 32, 3), "y": (count,)})
        return pixels.transpose(0, 3, 1, 2), labels
    pixels, labels = read_mat(path, {"X": (32, 32, 3, count), "y": (count, 1)})
    if labels.min() < 1 or labels.max() > 10:
        raise ValueError(f"{path} has labels {labels.min()} to {labels.max()}, expected 1 to 10 (10 is the digit 0)")
    return pixels.transpose(3, 2, 0, 1), labels[:, 0] % 10
