import numpy as np
import pytest
import torch

from inducing.data import uci
from tests.conftest import served, write_uci_set


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A small set in the format of the Gal splits."""
    path = tmp_path / "uci" / "yacht"
    write_uci_set(path, constant_column=True)
    monkeypatch.setenv("INDUCING_DATA", str(tmp_path))
    return path


@pytest.fixture
def server(tmp_path, monkeypatch):
    """The same files behind a web server on the loopback interface, with an empty cache."""
    root = tmp_path / "web"
    write_uci_set(root / "yacht" / "data")
    with served(root) as httpd:
        monkeypatch.delenv("INDUCING_DATA", raising=False)
        monkeypatch.setattr(uci, "SOURCE", f"http://127.0.0.1:{httpd.server_port}")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield httpd


def test_features_and_targets_are_standardised_from_the_training_rows(uci_folder):
    split = uci.load("yacht", 3)
    torch.testing.assert_close(split.x_train.mean(0), torch.zeros(6), rtol=0, atol=1e-5)
    torch.testing.assert_close(split.x_train.std(0, correction=0), torch.ones(6), rtol=0, atol=1e-5)
    torch.testing.assert_close(split.y_train.std(correction=0).item(), 1.0, rtol=0, atol=1e-5)
    table = np.loadtxt(uci_folder / "uci" / "yacht" / "data.txt")
    test = np.loadtxt(uci_folder / "uci" / "yacht" / "index_test_3.txt").astype(int)
    np.testing.assert_allclose(split.y_test[:, 0], table[test, 6], rtol=1e-6)
    train = np.setdiff1d(np.arange(len(table)), test)
    np.testing.assert_allclose([split.target_mean, split.target_std], [table[train, 6].mean(), table[train, 6].std()])


def test_the_real_sets_are_what_they_should_be(real_data, folder, monkeypatch):
    """Sizes of all nine sets; without the real data, of the small one."""
    sizes = {"yacht": (54, 6, 6)}
    if real_data is not None:
        monkeypatch.setenv("INDUCING_DATA", str(real_data))
        sizes = {
            "boston": (455, 51, 13),
            "concrete": (927, 103, 8),
            "energy": (691, 77, 8),
            "kin8nm": (7373, 819, 8),
            "naval": (10741, 1193, 16),
            "power": (8611, 957, 4),
            "protein": (41157, 4573, 9),
            "wine": (1439, 160, 11),
            "yacht": (277, 31, 6),
        }
    for name, (train, test, features) in sizes.items():
        split = uci.load(name, 0)
        assert (*split.x_train.shape, len(split.x_test)) == (train, features, test)
        assert all(torch.isfinite(tensor).all() for tensor in split[:4])


def test_a_constant_feature_becomes_zero(folder):
    split = uci.load("yacht", 0)
    assert split.x_train[:, 2].abs().max() < 1e-6
    assert split.x_test[:, 2].abs().max() < 1e-6


def test_dtype(folder):
    assert {tensor.dtype for tensor in uci.load("yacht", 0, torch.float64)[:4]} == {torch.float64}


def test_download_fills_a_cache(server):
    first = uci.load("yacht", 1)
    server.server_close()
    again = uci.load("yacht", 1)
    assert torch.equal(first.x_train, again.x_train)


def test_a_missing_download_says_what_to_do(server):
    with pytest.raises(FileNotFoundError, match=r"cannot download .*INDUCING_DATA"):
        uci.load("boston")


def test_unknown_sets_and_splits_are_refused(folder):
    with pytest.raises(ValueError, match="unknown UCI dataset"):
        uci.load("iris")
    with pytest.raises(ValueError, match="yacht has splits 0 to 19, got 20"):
        uci.load("yacht", 20)


def test_missing_and_corrupt_files_are_named(folder, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"bostonHousing.*txt is missing"):
        uci.load("boston")
    (folder / "index_test_0.txt").write_text("1\n2\n")
    with pytest.raises(ValueError, match="split 0 of yacht is corrupt"):
        uci.load("yacht", 0)
    (folder / "data.txt").write_text("<html>not found</html>")
    with pytest.raises(ValueError, match=r"data\.txt is not a table of numbers"):
        uci.load("yacht", 0)
    monkeypatch.setenv("INDUCING_DATA", str(folder / "nowhere"))
    with pytest.raises(FileNotFoundError, match="not a folder"):
        uci.load("yacht", 0)


def test_a_set_is_found_downloaded_and_verified_as_a_whole(server):
    assert uci.find("yacht") is None
    with pytest.raises(FileNotFoundError, match="yacht is missing"):
        uci.verify("yacht")
    folder = uci.download("yacht")
    server.server_close()
    assert uci.find("yacht") == folder
    assert len(list(folder.glob("*.txt"))) == 44
    assert uci.verify("yacht") == "yacht: 20 splits of 54 + 6 rows, 6 features, as first downloaded"
    (folder / "index_train_7.txt").write_text((folder / "index_train_7.txt").read_text() + "\n")
    with pytest.raises(ValueError, match=r"index_train_7\.txt has changed"):
        uci.verify("yacht")


def test_a_set_is_downloaded_into_the_folder_that_is_named(server, tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    monkeypatch.setenv("INDUCING_DATA", str(tmp_path / "own"))
    assert uci.download("yacht") == tmp_path / "own" / "uci" / "yacht"
    assert uci.load("yacht", 19).x_test.shape == (6, 6)
