"""Files of images: read, downloaded, damaged."""

import gzip
import hashlib
import io
import tarfile

import numpy as np
import pytest
import scipy.io
import torch

from inducing.data import image_files, images
from tests.conftest import idx, make_images, pack_cifar, served

NAMES = list(image_files.SETS)


@pytest.fixture
def server(small_images, tmp_path, monkeypatch):
    """The small files behind a web server, with an empty cache and no folder named."""
    pack_cifar(tmp_path)
    with served(tmp_path) as httpd:
        for name, described in list(image_files.SETS.items()):
            below = "" if described.format == "cifar" else f"/{described.folder}"
            source = f"http://127.0.0.1:{httpd.server_port}{below}"
            monkeypatch.setitem(image_files.SETS, name, described._replace(source=source))
        monkeypatch.delenv("INDUCING_DATA")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield httpd


def assert_same(loaded, written):
    pixels, labels = written
    assert torch.equal(loaded.x.mul(255).round().to(torch.uint8), torch.tensor(pixels))
    assert torch.equal(loaded.y, torch.tensor(labels).long())


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_what_was_written_is_read(name, train, small_images):
    loaded = images.load(name, train)
    assert_same(loaded, small_images[name, train])
    assert loaded.x.dtype == torch.float32
    assert loaded.x.is_contiguous()
    assert len(loaded.classes) == 10


def test_the_real_sets_are_what_they_should_be(real_data, small_images, tmp_path, monkeypatch):
    """Sizes, first labels and first pixels of the real files; without them, of the small ones."""
    folder, first = tmp_path, {name: small_images[name, False][1][:3].tolist() for name in NAMES}
    sizes = dict.fromkeys(NAMES, 10)
    if real_data is not None:
        monkeypatch.undo()
        folder = real_data
        first = {"mnist": [7, 2, 1], "fashion-mnist": [9, 2, 1], "cifar10": [3, 8, 8], "notmnist": [3, 5, 9]}
        sizes = {"mnist": 10000, "fashion-mnist": 10000, "notmnist": 10000, "cifar10": 10000, "svhn": 26032}
    for name, size in sizes.items():
        pixels, labels = image_files.read(name, False)
        assert (pixels.shape, labels.shape) == ((size, *image_files.SETS[name].shape), (size,))
        assert set(labels) == set(range(10))
        assert labels[:3].tolist() == first.get(name, labels[:3].tolist())
        if image_files.SETS[name].format == "idx":
            with gzip.open(folder / name / "t10k-images-idx3-ubyte.gz") as stream:
                assert stream.read(16 + 784)[16:] == pixels[0].tobytes()
        if name == "cifar10":
            record = np.fromfile(folder / "cifar-10-batches-bin" / "test_batch.bin", np.uint8, 3073)
            np.testing.assert_array_equal(record[1:].reshape(3, 32, 32), pixels[0])


def test_statistics_of_mnist(real_data, small_images, monkeypatch):
    """The mean and standard deviation that everybody knows; without the real files, those of the small ones."""
    pixels = small_images["mnist", True][0] / 255
    mean, std, tolerance = pixels.mean(), pixels.std(), 1e-5
    if real_data is not None:
        monkeypatch.undo()
        mean, std, tolerance = 0.1307, 0.3081, 1e-4
    train = images.load("mnist")
    (normal,) = images.normalise(train)
    torch.testing.assert_close(normal.x[:500], (train.x[:500] - mean) / std, rtol=0, atol=20 * tolerance)


def test_plain_idx_files(small_images, tmp_path):
    for packed in (tmp_path / "mnist").glob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    assert_same(images.load("mnist"), small_images["mnist", True])


def test_idx_files_that_a_browser_unpacked_without_renaming_them(small_images, tmp_path):
    for packed in (tmp_path / "mnist").glob("*.gz"):
        packed.write_bytes(gzip.decompress(packed.read_bytes()))
    assert_same(images.load("mnist"), small_images["mnist", True])


def test_the_archive_of_cifar(small_images, tmp_path):
    pack_cifar(tmp_path)
    for train in (True, False):
        assert_same(images.load("cifar10", train), small_images["cifar10", train])


def test_svhn_as_npz(small_images, tmp_path):
    (tmp_path / "svhn" / "test_32x32.mat").unlink()
    pixels, labels = small_images["svhn", False]
    np.savez(tmp_path / "svhn" / "test_32x32.npz", X=pixels.transpose(0, 2, 3, 1), y=labels)
    assert_same(images.load("svhn", train=False), (pixels, labels))
    assert image_files.verify("svhn", False).endswith("not the published .mat")


def test_dtype(small_images):
    assert images.load("svhn", dtype=torch.float64).x.dtype == torch.float64
    with pytest.raises(RuntimeError, match="can't be cast"):
        images.load("svhn", dtype=torch.uint8)


def test_unknown_names_are_refused(small_images):
    with pytest.raises(ValueError, match="unknown image dataset"):
        images.load("cifar")


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_says_where_to_get_it(name, small_images, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("INDUCING_DATA", str(tmp_path / "empty"))
    with pytest.raises(FileNotFoundError, match=r"is missing.*fetch .*INDUCING_DATA") as caught:
        images.load(name)
    assert image_files.files(name, True)[0].url in str(caught.value)
    assert image_files.SETS[name].home in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_download_fills_a_cache(name, server, small_images):
    assert image_files.find(name, True) is None
    first = images.load(name)
    server.server_close()
    assert image_files.find(name, True) is not None
    assert torch.equal(images.load(name).x, first.x)
    assert_same(first, small_images[name, True])


def test_download_into_the_folder_that_is_named(server, small_images, tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    monkeypatch.setenv("INDUCING_DATA", str(tmp_path / "own"))
    assert image_files.download("cifar10", False) == [tmp_path / "own" / "cifar-10-binary.tar.gz"]
    assert_same(images.load("cifar10", False), small_images["cifar10", False])


def test_a_download_with_another_checksum_is_refused(server, monkeypatch):
    monkeypatch.setitem(image_files.SHA256, "mnist/train-images-idx3-ubyte.gz", "0" * 64)
    with pytest.raises(FileNotFoundError, match=r"cannot download .*train-images.*does not match.*INDUCING_DATA"):
        images.load("mnist")


def test_a_missing_download_says_what_to_do(server, tmp_path):
    (tmp_path / "svhn" / "train_32x32.mat").unlink()
    with pytest.raises(FileNotFoundError, match=r"cannot download .*train_32x32\.mat.*INDUCING_DATA"):
        images.load("svhn")


def test_verify_compares_checksums(small_images, tmp_path, monkeypatch):
    assert (
        image_files.verify("mnist", True) == "mnist train: 20 images of 1 x 28 x 28, labels 0 to 9, no checksum known"
    )
    monkeypatch.setitem(image_files.SHA256, "mnist/train-labels-idx1-ubyte.gz", "0" * 64)
    with pytest.raises(ValueError, match=r"train-labels-idx1-ubyte\.gz is not the published file.*expected 000"):
        image_files.verify("mnist", True)
    monkeypatch.setitem(image_files.SHA256, "cifar-10-batches-bin/test_batch.bin", "0" * 64)
    batch = (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").read_bytes()
    pack_cifar(tmp_path)
    with pytest.raises(ValueError, match=r"test_batch\.bin of .*tar\.gz is not the published file.*expected 000"):
        images.load("cifar10", False)
    assert image_files.verify("cifar10", True).endswith("no checksum known")
    digest = hashlib.sha256(batch).hexdigest()
    monkeypatch.setitem(image_files.SHA256, "cifar-10-batches-bin/test_batch.bin", digest)
    assert image_files.verify("cifar10", False).endswith("SHA-256 matches")


IMAGES, LABELS = "mnist/t10k-images-idx3-ubyte.gz", "mnist/t10k-labels-idx1-ubyte.gz"
PIXELS = make_images(10, (1, 28, 28))[0][:, 0]


def idx_file(array):
    return gzip.compress(idx(array))


def mat_file(**variables):
    stream = io.BytesIO()
    scipy.io.savemat(stream, variables)
    return stream.getvalue()


def npz_file(**arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def tar_file(**members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, size in members.items():
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            info.size = size
            archive.addfile(info, io.BytesIO(bytes(size)))
    return stream.getvalue()


class Trap:
    """Unpickling this would be noticed."""

    def __reduce__(self):
        return pytest.fail, ("a file was executed",)


SVHN = np.zeros((32, 32, 3, 10), np.uint8)
DAMAGE = {
    "idx truncated": (IMAGES, idx_file(PIXELS)[:4000], "is not an idx file"),
    "idx truncated inside": (IMAGES, gzip.compress(idx(PIXELS)[:-1]), "only 7839 bytes"),
    "idx too long": (IMAGES, gzip.compress(idx(PIXELS) + b"x"), "more than 7840 bytes"),
    "idx with a flipped bit": (IMAGES, gzip.compress(idx(PIXELS), 0)[:-9] + b"!" + gzip.compress(idx(PIXELS), 0)[-8:], "CRC"),
    "idx is html": (IMAGES, b"<html>not found</html>", "is not an idx file"),
    "idx is empty": (IMAGES, b"", "is not an idx file"),
    "labels for images": (IMAGES, idx_file(np.zeros(10, np.uint8)), r"expected shape \(10, 28, 28\)"),
    "training images for test images": (IMAGES, idx_file(PIXELS.repeat(2, 0)), r"\[20, 28, 28\], expected"),
    "a header that claims terabytes": (IMAGES, gzip.compress(bytes([0, 0, 8, 3]) + b"\xff" * 12), "expected shape"),
    "a header alone": (IMAGES, bytes([0, 0, 8, 3, 0]), "expected shape"),
    "label 10": (LABELS, idx_file(np.arange(1, 11, dtype=np.uint8)), "label 10"),
    "cifar truncated": ("cifar-10-batches-bin/test_batch.bin", bytes(3073 * 9), "only 27657 bytes"),
    "cifar too long": ("cifar-10-batches-bin/test_batch.bin", bytes(3073 * 11), "more than 30730 bytes"),
    "cifar mislabelled": ("cifar-10-batches-bin/test_batch.bin", b"\x0b" * 30730, "label 11"),
    "archive truncated": ("cifar-10-binary.tar.gz", tar_file(test_batch=30730)[:80], "is not a tar.gz archive"),
    "archive is html": ("cifar-10-binary.tar.gz", b"<html>", "is not a tar.gz archive"),
    "archive without the batch": ("cifar-10-binary.tar.gz", tar_file(data_batch_1=30730), "test_batch.bin"),
    "archive with a large batch": ("cifar-10-binary.tar.gz", tar_file(test_batch=30731), "more than 30730 bytes"),
    "mat truncated": ("svhn/test_32x32.mat", mat_file(y=np.ones((10, 1), np.uint8), X=SVHN)[:1000], "is not a MATLAB file"),
    "mat is html": ("svhn/test_32x32.mat", b"<html>" * 100, "is not a MATLAB file"),
    "mat of another shape": ("svhn/test_32x32.mat", mat_file(X=SVHN[..., :9], y=np.ones((10, 1), np.uint8)), r"X is .*\(32, 32, 3, 9\).*expected"),
    "mat of other variables": ("svhn/test_32x32.mat", mat_file(X=SVHN), "y is missing"),
    "mat with label 0": ("svhn/test_32x32.mat", mat_file(X=SVHN, y=np.zeros((10, 1), np.uint8)), "labels 0 to 0"),
    "npz truncated": ("svhn/test_32x32.npz", npz_file(X=SVHN)[:1000], "is not a NumPy archive"),
    "npz of another dtype": ("svhn/test_32x32.npz", npz_file(X=SVHN.transpose(3, 0, 1, 2) / 1.0, y=np.zeros(10, np.uint8)), "X is .*float64"),
    "npz with objects": ("svhn/test_32x32.npz", npz_file(X=np.array([Trap()]), y=np.zeros(10, np.uint8)), "X is .*object"),
    "npz with label 10": ("svhn/test_32x32.npz", npz_file(X=SVHN.transpose(3, 0, 1, 2), y=np.full(10, 10, np.uint8)), "label 10"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_files_are_named(case, small_images, tmp_path):
    file, contents, message = DAMAGE[case]
    name = {"m": "mnist", "c": "cifar10", "s": "svhn"}[file[0]]
    # the damaged file stands alone
    for path in (tmp_path / image_files.SETS[name].folder).glob("*test*"):
        path.unlink()
    (tmp_path / file).write_bytes(contents)
    with pytest.raises(ValueError, match=message) as caught:
        images.load(name, train=False)
    assert str(tmp_path / file) in str(caught.value)
