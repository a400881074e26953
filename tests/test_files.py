import os
import socket
import stat
import threading

import pytest
import torch

from inducing.files import check_writable, digest, open_atomically, write_atomically


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


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_an_existing_file_keeps_its_permissions(tmp_path, mode):
    path = tmp_path / "file.json"
    path.write_bytes(b"old")
    path.chmod(mode)
    with open_atomically(path) as file:
        (temporary,) = set(tmp_path.iterdir()) - {path}
        assert mode_of(temporary) == mode, "a private file must not be readable while it is written"
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert mode_of(path) == mode


def test_an_existing_file_keeps_its_owner_and_group(tmp_path, monkeypatch):
    path = tmp_path / "file.json"
    path.write_bytes(b"old")
    given = []
    monkeypatch.setattr(os, "fchown", lambda handle, user, group: given.append((user, group)))
    write_atomically(path, b"new")
    status = path.stat()
    assert given == [(status.st_uid, -1), (-1, status.st_gid)]


def test_another_group_gets_no_more_than_everybody(tmp_path, monkeypatch):
    path = tmp_path / "file.json"
    path.write_bytes(b"old")
    path.chmod(0o660)

    def refuse(*args):
        raise PermissionError("Operation not permitted")

    monkeypatch.setattr(os, "fchown", refuse)
    write_atomically(path, b"new")
    assert mode_of(path) == 0o600


def test_the_umask_is_never_changed(tmp_path, monkeypatch):
    """Another thread would create its files with the changed umask."""

    def refuse(mask):
        raise AssertionError("os.umask was called")

    monkeypatch.setattr(os, "umask", refuse)
    write_atomically(tmp_path / "file.json", b"")


def test_a_link_is_followed_and_stays(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    target, link = folder / "file.json", tmp_path / "link.json"
    link.symlink_to(target)
    for content in (b"first", b"second"):
        write_atomically(link, content)
        assert link.is_symlink()
        assert not target.is_symlink()
        assert target.read_bytes() == content
    assert list(folder.iterdir()) == [target]


def special_files(folder):
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    (folder / "link").symlink_to(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    return {folder / "pipe": "pipe", folder / "folder": "folder", folder / "link": "pipe", folder / "socket": "socket"}


def test_what_is_not_a_regular_file_is_refused(tmp_path, monkeypatch):
    # names of sockets are limited to about 100 characters
    monkeypatch.chdir(tmp_path)
    for path, kind in special_files(tmp_path).items():
        before = path.lstat()
        for write in (check_writable, lambda path: write_atomically(path, b"new")):
            with pytest.raises(OSError, match=f"is a {kind}"):
                write(path)
        assert path.lstat().st_ino == before.st_ino
    assert len(list(tmp_path.iterdir())) == 4


def test_a_device_is_refused(tmp_path):
    # through a link, so that a failure of this test replaces the link and not the device
    (tmp_path / "null").symlink_to(os.devnull)
    with pytest.raises(OSError, match="is a device"):
        write_atomically(tmp_path / "null", b"new")
    assert (tmp_path / "null").is_symlink()


def test_a_place_is_checked_without_being_touched(tmp_path, monkeypatch):
    path = tmp_path / "file.json"
    check_writable(path)
    path.write_bytes(b"old")
    check_writable(path)
    with pytest.raises(FileNotFoundError, match="no folder"):
        check_writable(tmp_path / "nowhere" / "file.json")
    with pytest.raises(FileNotFoundError, match="no folder"):
        check_writable(path / "file.json")
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"old"

    def refuse(*args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match="Permission denied"):
        check_writable(tmp_path / "other.json")
    monkeypatch.setattr(os, "access", lambda *args: False)
    with pytest.raises(PermissionError, match="write-protected"):
        check_writable(path)


def test_names_at_the_limit_of_the_file_system(tmp_path):
    path = tmp_path / ("n" * 255)
    write_atomically(path, b"content")
    assert path.read_bytes() == b"content"


def test_threads_write_with_ordinary_permissions(tmp_path):
    (tmp_path / "theirs").write_bytes(b"")
    paths = [tmp_path / str(number) for number in range(20)]
    threads = [threading.Thread(target=write_atomically, args=(path, b"")) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {mode_of(path) for path in paths} == {mode_of(tmp_path / "theirs")}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool])
def test_checksums_cover_header_names_and_values(dtype):
    tensors = {"a": torch.tensor([0, 1]).to(dtype), "b": torch.ones(()).to(dtype)}
    others = [
        digest({"step": 1}, tensors),
        digest({}, {"a": tensors["a"], "c": tensors["b"]}),
        digest({}, {**tensors, "a": tensors["a"].flip(0)}),
        digest({}, {**tensors, "a": tensors["a"][None]}),
    ]
    assert digest({}, tensors) == digest({}, dict(reversed(tensors.items())))
    assert digest({}, tensors) not in others


def test_checksums_without_shapes():
    flat, square = ({"a": torch.ones(shape)} for shape in ((4,), (2, 2)))
    assert digest({}, flat, with_shapes=False) == digest({}, square, with_shapes=False)
