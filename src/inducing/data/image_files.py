"""The files of MNIST, Fashion-MNIST, notMNIST, CIFAR-10 and SVHN: where they are, where they come from, what they must hold.

Below the folder that INDUCING_DATA names, or in the cache, which downloads fill, lie

    mnist, fashion-mnist, notmnist/{train,t10k}-{images-idx3,labels-idx1}-ubyte, plain or .gz
    cifar-10-batches-bin/{data_batch_1 to 5,test_batch}.bin, or cifar-10-binary.tar.gz
    svhn/{train,test}_32x32.mat, or .npz with X (N, 32, 32, 3) and y, digits 0 to 9

The authors of SVHN publish no .npz. The one we use was cropped again from their full-size photographs: the same digits,
not the same pixels. Results on it are results on "re-cropped SVHN".
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pooch
from jaxtyping import UInt8

from inducing.data.cache import data_folder, fetch, matches_record, root
from inducing.data.formats import decode_cifar, read_bytes, read_idx, read_mat, read_members, read_npz


class ImageSet(NamedTuple):
    """What is known of a set.

    Arguments:
        format: "idx", "cifar" or "svhn".
        folder: Its folder below the data folder.
        shape: Channels, height and width.
        num_train: Training images.
        num_test: Test images.
        home: The page of its authors.
        source: The address below which its files are. Of MNIST it is a copy, which checksums make as good as the original,
            of notMNIST a sample in this format, made with its author's permission.
        classes: What the labels mean.
    """

    format: str
    folder: str
    shape: tuple[int, int, int]
    num_train: int
    num_test: int
    home: str
    source: str
    classes: tuple[str, ...]


class File(NamedTuple):
    """A file of a set.

    Arguments:
        names: Where it may be below the data folder, in order of preference.
        download: The one of them that is downloaded.
        url: Where it is published.
    """

    names: tuple[str, ...]
    download: str
    url: str


DIGITS = tuple("0123456789")
GARMENTS = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
OBJECTS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SETS = {
    "mnist": ImageSet(
        "idx", "mnist", (1, 28, 28), 60000, 10000,
        "http://yann.lecun.com/exdb/mnist", "https://ossci-datasets.s3.amazonaws.com/mnist", DIGITS,
    ),
    "fashion-mnist": ImageSet(
        "idx", "fashion-mnist", (1, 28, 28), 60000, 10000,
        "https://github.com/zalandoresearch/fashion-mnist",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion", GARMENTS,
    ),
    "notmnist": ImageSet(
        "idx", "notmnist", (1, 28, 28), 60000, 10000,
        "http://yaroslavvb.blogspot.com/2011/09/notmnist-dataset.html",
        "https://raw.githubusercontent.com/davidflanagan/notMNIST-to-MNIST/master", tuple("ABCDEFGHIJ"),
    ),
    "cifar10": ImageSet(
        "cifar", "cifar-10-batches-bin", (3, 32, 32), 50000, 10000,
        "https://www.cs.toronto.edu/~kriz/cifar.html", "https://www.cs.toronto.edu/~kriz", OBJECTS,
    ),
    "svhn": ImageSet(
        "svhn", "svhn", (3, 32, 32), 73257, 26032,
        "http://ufldl.stanford.edu/housenumbers", "https://ufldl.stanford.edu/housenumbers", DIGITS,
    ),
}  # fmt: skip

# Of files that are the published ones byte for byte.
SHA256 = {
    "mnist/train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "mnist/train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "mnist/t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "mnist/t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    "cifar-10-batches-bin/data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "cifar-10-batches-bin/data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "cifar-10-batches-bin/data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "cifar-10-batches-bin/data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "cifar-10-batches-bin/data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "cifar-10-batches-bin/test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}

# As published: by the authors of Fashion-MNIST and CIFAR-10 on their pages, of SVHN by torchvision. For notMNIST there are
# none. Fashion-MNIST is often repacked, so that other files are refused as downloads only.
MD5 = {
    "fashion-mnist/train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "fashion-mnist/train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "fashion-mnist/t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "fashion-mnist/t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
    "svhn/train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "svhn/test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
}


def read(name: str, train: bool) -> tuple[UInt8[np.ndarray, "N C H W"], UInt8[np.ndarray, " N"]]:
    """Read pixels from 0 to 255 and labels, and check that there are as many of them, of the shape, as there should be."""
    described = _described(name)
    count = described.num_train if train else described.num_test
    paths = [_find(file) or _get(name, file) for file in files(name, train)]
    if described.format == "idx":
        pixels, labels = read_idx(paths[0], (count, *described.shape[1:]))[:, None], read_idx(paths[1], (count,))
    elif described.format == "cifar":
        pixels, labels = _read_cifar(paths, [file.names[0] for file in files(name, train)], count)
    else:
        pixels, labels = _read_svhn(paths[0], count)
    if labels.max() >= len(described.classes):
        raise ValueError(f"{paths[-1]} holds a label {labels.max()}; labels are from 0 to {len(described.classes) - 1}")
    return np.ascontiguousarray(pixels), labels


def files(name: str, train: bool) -> list[File]:
    """List the files that hold the training or the test images of a set."""
    described = _described(name)
    folder, source = described.folder, described.source
    if described.format == "idx":
        stem = "train" if train else "t10k"
        names = [f"{stem}-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1")]
        return [File((f"{folder}/{n}", f"{folder}/{n}.gz"), f"{folder}/{n}.gz", f"{source}/{n}.gz") for n in names]
    if described.format == "cifar":
        archive = "cifar-10-binary.tar.gz"
        names = [f"data_batch_{batch}.bin" for batch in range(1, 6)] if train else ["test_batch.bin"]
        return [File((f"{folder}/{n}", archive), archive, f"{source}/{archive}") for n in names]
    stem = f"{'train' if train else 'test'}_32x32"
    return [File((f"{folder}/{stem}.mat", f"{folder}/{stem}.npz"), f"{folder}/{stem}.mat", f"{source}/{stem}.mat")]


def find(name: str, train: bool) -> list[Path] | None:
    """Find the files of the training or the test images without a download; None if one is missing."""
    paths = [_find(file) for file in files(name, train)]
    return [path for path in paths if path] if all(paths) else None


def download(name: str, train: bool) -> list[Path]:
    """Find the files of the training or the test images, or download them."""
    return [_find(file) or _download(file) for file in files(name, train)]


def verify(name: str, train: bool) -> str:
    """Read the training or the test images that are here, compare checksums where they are known, and say what was seen."""
    paths = find(name, train)
    part = "train" if train else "test"
    if paths is None:
        raise FileNotFoundError(f"{name} {part} is not here; `inducing data fetch {name}` gets it")
    for path in paths:
        if str(path.relative_to(root())) in SHA256:
            _compare_checksum(path.read_bytes(), str(path.relative_to(root())), path)
    pixels, labels = read(name, train)  # which compares the checksums of an archive's members
    archived = paths[0].name.endswith(".tar.gz")
    names = (
        [file.names[0] for file in files(name, train)]
        if archived
        else [str(path.relative_to(root())) for path in paths]
    )
    if all(known in SHA256 for known in names):
        origin = "SHA-256 matches"
    elif paths[0].suffix == ".npz":
        origin = "not the published .mat"
    elif all(known in MD5 for known in names):
        same = all(pooch.file_hash(path, "md5") == MD5[known] for path, known in zip(paths, names, strict=True))
        origin = "MD5 matches" if same else "not the published files byte for byte"
    else:
        origin = "as first downloaded" if all(map(matches_record, paths)) else "no checksum known"
    size = " x ".join(str(length) for length in pixels.shape[1:])
    return f"{name} {part}: {len(pixels)} images of {size}, labels {labels.min()} to {labels.max()}, {origin}"


def _described(name: str) -> ImageSet:
    if name not in SETS:
        raise ValueError(f"unknown image set {name!r}; known are {', '.join(SETS)}")
    return SETS[name]


def _find(file: File) -> Path | None:
    places = [root() / name for name in file.names]
    return next((place for place in places if place.is_file()), None)


def _download(file: File) -> Path:
    checksums = {"sha256": SHA256, "md5": MD5}
    known = [f"{kind}:{table[file.download]}" for kind, table in checksums.items() if file.download in table]
    return fetch(file.url, file.download, known[0] if known else None)


def _get(name: str, file: File) -> Path:
    """Download a file that is missing, but never where the user has named a folder of their own."""
    folder = data_folder()
    if folder is None:
        return _download(file)
    wanted = " or ".join(str(folder / place) for place in file.names)
    raise FileNotFoundError(
        f"{wanted} is missing. Get it from {file.url} (see {SETS[name].home}), run `inducing data fetch {name}` to have it "
        "downloaded into the folder that INDUCING_DATA names, or unset INDUCING_DATA to use the cache"
    )


def _compare_checksum(contents: bytes, name: str, path: Path) -> None:
    found = hashlib.sha256(contents).hexdigest()
    if SHA256.get(name, found) != found:
        raise ValueError(f"{name} of {path} has SHA-256 {found}, expected {SHA256[name]}; it is not the published file")


def _read_cifar(
    paths: list[Path], names: list[str], count: int
) -> tuple[UInt8[np.ndarray, "N 3 32 32"], UInt8[np.ndarray, " N"]]:
    size = count // len(names) * (1 + 3 * 32 * 32)
    archive = next((path for path in paths if path.name.endswith(".tar.gz")), None)
    if archive is not None:
        batches = read_members(archive, names, size)
        for name, batch in zip(names, batches, strict=True):
            _compare_checksum(batch, name, archive)
    else:
        batches = [read_bytes(path, size) for path in paths]
    return decode_cifar(b"".join(batches))


def _read_svhn(path: Path, count: int) -> tuple[UInt8[np.ndarray, "N 3 32 32"], UInt8[np.ndarray, " N"]]:
    if path.suffix == ".npz":
        pixels, labels = read_npz(path, {"X": (count, 32, 32, 3), "y": (count,)})
        return pixels.transpose(0, 3, 1, 2), labels
    pixels, labels = read_mat(path, {"X": (32, 32, 3, count), "y": (count, 1)})
    if labels.min() < 1 or labels.max() > 10:
        raise ValueError(
            f"{path} holds labels from {labels.min()} to {labels.max()}; they are 1 to 10, where 10 is the digit 0"
        )
    return pixels.transpose(3, 2, 0, 1), labels[:, 0] % 10
