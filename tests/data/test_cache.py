"""Downloads: once, by HTTPS, and never another file than the first."""

import hashlib

import pooch
import pytest

from inducing.data import cache, image_files, uci
from tests.conftest import served


@pytest.fixture
def web(tmp_path, monkeypatch):
    """A folder behind a web server, its address, and an empty cache."""
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "data.txt").write_text("first")
    monkeypatch.delenv("INDUCING_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with served(tmp_path / "web") as httpd:
        yield tmp_path / "web", f"http://127.0.0.1:{httpd.server_port}/data.txt"


@pytest.mark.parametrize("kind", ["md5", "sha256"])
def test_a_published_checksum_decides(kind, web):
    _, url = web
    with pytest.raises(FileNotFoundError, match="does not match"):
        cache.fetch(url, "set/data.txt", f"{kind}:{hashlib.new(kind, b'other').hexdigest()}")
    path = cache.fetch(url, "set/data.txt", f"{kind}:{hashlib.new(kind, b'first').hexdigest()}")
    assert path.read_text() == "first"
    assert list(path.parent.iterdir()) == [path]


def test_the_first_download_decides_where_no_checksum_is_published(web):
    folder, url = web
    path = cache.fetch(url, "set/data.txt")
    record = path.with_name("data.txt.sha256")
    assert record.read_text() == f"{hashlib.sha256(b'first').hexdigest()}  data.txt\n"
    assert cache.matches_record(path)
    # a file that was damaged is downloaded again
    path.write_text("damaged")
    with pytest.raises(ValueError, match="has changed"):
        cache.matches_record(path)
    assert cache.fetch(url, "set/data.txt").read_text() == "first"
    # and one that is another by now is refused
    (folder / "data.txt").write_text("second")
    assert cache.fetch(url, "set/data.txt").read_text() == "first"
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"does not match.*Remove .*data\.txt\.sha256"):
        cache.fetch(url, "set/data.txt")
    record.unlink()
    assert cache.fetch(url, "set/data.txt").read_text() == "second"


def test_a_record_that_is_none(web):
    path = cache.fetch(web[1], "set/data.txt")
    cache.record_of(path).write_bytes(b"\xffnothing")
    with pytest.raises(ValueError, match="SHA-256 checksum"):
        cache.fetch(web[1], "set/data.txt")


def test_addresses_that_are_not_encrypted_are_refused(web, monkeypatch):
    monkeypatch.setattr(pooch, "retrieve", lambda *_, **__: pytest.fail("a download was started"))
    with pytest.raises(ValueError, match="not encrypted"):
        cache.fetch("http://example.org/data.txt", "set/data.txt")


def test_redirects_to_addresses_that_are_not_encrypted_are_refused(web, monkeypatch):
    folder, url = web
    # the server sends the address of a folder on to the same one with a slash
    (folder / "folder").mkdir()
    refused = []

    def refuse(address):
        refused.append(address)
        if address.endswith("/folder/"):
            raise ValueError("not encrypted")

    monkeypatch.setattr(cache, "_check_encrypted", refuse)
    with pytest.raises(FileNotFoundError, match="not encrypted"):
        cache.fetch(url.replace("data.txt", "folder"), "set/data.txt")
    assert len(refused) == 2


def test_all_sources_are_encrypted_and_have_checksums_where_some_are_published():
    assert uci.SOURCE.startswith("https://")
    for name, described in image_files.SETS.items():
        assert described.source.startswith("https://")
        for train in (True, False):
            for file in image_files.files(name, train):
                assert (file.download in {**image_files.SHA256, **image_files.MD5}) == (name != "notmnist")
