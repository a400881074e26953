import os

import pytest

from inducing.files import open_atomically, write_atomically


def test_new_and_replaced(tmp_path):
    path = tmp_path / "file.json"
    for content in (b"first", b"second"):
        write_atomically(path, content)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_permissions_are_those_of_an_ordinary_file(tmp_path):
    write_atomically(tmp_path / "ours", b"")
    (tmp_path / "theirs").write_bytes(b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "theirs").stat().st_mode


def test_a_failure_leaves_the_old_content_and_no_litter(tmp_path, monkeypatch):
    path = tmp_path / "file.json"
    path.write_bytes(b"old")

    def full(*args):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_written_in_parts_appears_at_the_end(tmp_path):
    path = tmp_path / "file.csv"
    path.write_bytes(b"old")
    with open_atomically(path) as file:
        file.write(b"first, ")
        assert path.read_bytes() == b"old"
        file.write(b"second")
    assert path.read_bytes() == b"first, second"
    with pytest.raises(TypeError), open_atomically(path) as file:
        file.write("text, not bytes")
    assert path.read_bytes() == b"first, second"
    assert list(tmp_path.iterdir()) == [path]
