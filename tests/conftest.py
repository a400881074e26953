"""Fixtures and small data sets. Shape annotations are checked in tests: here for the inner modules, in test_shapes.py for all.

Modules that meet the user's own arguments are left out here, so that our messages are tested and not the checker's.
"""

import functools
import gc
import gzip
import http.server
import io
import os
import tarfile
import threading
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch

from tests import shape_checks

# shape checks take half of the time of small problems; make test-portable, which repeats the tests, leaves them out
if os.environ.get("INDUCING_CHECK_SHAPES", "1") == "1":
    shape_checks.install("inducing.linalg", "inducing.nn.draw")

from inducing.data import image_files

# small matrices gain nothing from a second thread, and lose much where cores are shared; make test-portable tries two
torch.set_num_threads(int(os.environ.get("INDUCING_TEST_THREADS", "1")))


def pytest_collectstart(collector):
    """Random constants of a module are the same in every run, whatever was imported before."""
    if isinstance(collector, pytest.Module):
        torch.manual_seed(0)


def pytest_collection_finish():
    """What has been imported and collected stays: the garbage collector need not look through it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _seeded():
    """Every test starts from the same random state and leaves torch's global settings as they were."""
    torch.manual_seed(0)
    yield
    assert torch.get_default_dtype() == torch.float32


@pytest.fixture(scope="session")
def real_data():
    """The folder that INDUCING_DATA names, or None."""
    named = os.environ.get("INDUCING_DATA")
    return Path(named) if named else None


@pytest.fixture
def uci_folder(real_data, tmp_path, monkeypatch):
    """A data folder with the UCI yacht set: the real one, or a small set in the same format."""
    if real_data is not None:
        return real_data
    write_uci_set(tmp_path / "uci" / "yacht")
    monkeypatch.setenv("INDUCING_DATA", str(tmp_path))
    return tmp_path


def write_uci_set(folder: Path, num_rows: int = 60, num_splits: int = 20, constant_column: bool = False) -> None:
    """Write a set in the format of the Gal splits: six features, a target, ten per cent of the rows for testing."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True)
    features = random.normal(3.0, 2.0, (num_rows, 6))
    if constant_column:
        features[:, 2] = 0.1
    target = 10 + 5 * np.sin(features[:, :1]) + 0.1 * random.normal(size=(num_rows, 1))
    np.savetxt(folder / "data.txt", np.concatenate([features, target], 1))
    np.savetxt(folder / "index_features.txt", np.arange(6.0))
    np.savetxt(folder / "index_target.txt", [6.0])
    np.savetxt(folder / "n_splits.txt", [num_splits], fmt="%d")
    for split in range(num_splits):
        order = random.permutation(num_rows)
        np.savetxt(folder / f"index_test_{split}.txt", order[: num_rows // 10], fmt="%d")
        np.savetxt(folder / f"index_train_{split}.txt", order[num_rows // 10 :], fmt="%d")


@contextmanager
def served(folder: Path):
    """A web server for a folder on the loopback interface."""
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *args: None})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(quiet, directory=folder)) as httpd:
        threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield httpd
        httpd.shutdown()
    with warnings.catch_warnings():
        # a download that failed leaves its connection to the garbage collector, which else would complain in a later test
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def small_images(tmp_path, monkeypatch):
    """A data folder with small image sets in the published formats, and the package told of their sizes.

    The pixels and labels that were written are returned by name and part; there are no checksums for them.
    """
    written = {}
    for name, described in list(image_files.SETS.items()):
        monkeypatch.setitem(image_files.SETS, name, described._replace(num_train=20, num_test=10))
        for train in (True, False):
            pixels, labels = make_images(20 if train else 10, described.shape)
            write_image_set(tmp_path, name, train, pixels, labels)
            written[name, train] = pixels, labels
    for table in ("SHA256", "MD5"):
        monkeypatch.setattr(image_files, table, {})
    monkeypatch.setenv("INDUCING_DATA", str(tmp_path))
    return written


def make_images(count: int, shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(count)
    return random.integers(0, 256, (count, *shape), np.uint8), random.permutation(np.arange(count, dtype=np.uint8) % 10)


def write_image_set(folder: Path, name: str, train: bool, pixels: np.ndarray, labels: np.ndarray) -> None:
    """Write images as they are published: idx files with gzip, CIFAR-10's binary batches, SVHN's MATLAB files."""
    described = image_files.SETS[name]
    home = folder / described.folder
    home.mkdir(parents=True, exist_ok=True)
    if described.format == "idx":
        stem = "train" if train else "t10k"
        (home / f"{stem}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(pixels[:, 0])))
        (home / f"{stem}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
    elif described.format == "cifar":
        records = np.concatenate([labels[:, None], pixels.reshape(len(pixels), -1)], 1)
        batches = [f"data_batch_{batch}.bin" for batch in range(1, 6)] if train else ["test_batch.bin"]
        for batch, rows in zip(batches, np.split(records, len(batches)), strict=True):
            (home / batch).write_bytes(rows.tobytes())
    else:
        digits = np.where(labels == 0, 10, labels).astype(np.uint8)[:, None]
        variables = {"X": pixels.transpose(2, 3, 1, 0), "y": digits}
        scipy.io.savemat(home / f"{'train' if train else 'test'}_32x32.mat", variables, do_compression=True)


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def pack_cifar(folder: Path) -> Path:
    """Put the batches into an archive as the published one, in its order, and remove them."""
    path = folder / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        notes = tarfile.TarInfo("cifar-10-batches-bin/readme.html")
        archive.addfile(notes, io.BytesIO())
        for file in sorted((folder / "cifar-10-batches-bin").glob("*.bin"), reverse=True):
            archive.add(file, f"cifar-10-batches-bin/{file.name}")
            file.unlink()
    return path
