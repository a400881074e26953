"""Checkpoints on a full disk and in folders that cannot be written."""

import contextlib
import os
import resource
import subprocess

import pytest
from safetensors.torch import load_file

import inducing
from tests.inference.checkpointed import Stop, fit, numbers, same, stop_at


def test_a_file_that_cannot_be_written_costs_nothing_in_memory(tmp_path, monkeypatch):
    """As on a full disk: the run goes on, the earlier checkpoints stay, and the user is told."""
    net, history = fit(None)
    with pytest.raises(Stop):
        fit(tmp_path, callbacks=[stop_at(5)])
    before = sorted(path.name for path in tmp_path.glob("step-*"))

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(inducing.CheckpointWarning, match=r"cannot write .*No space left on device"):
        continued, history_of_parts = fit(tmp_path)
    assert same(net, continued)
    assert numbers(history) == numbers(history_of_parts)
    assert sorted(path.name for path in tmp_path.glob("step-*")) == before


def test_a_folder_that_cannot_be_made_costs_nothing_in_memory(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(inducing.CheckpointWarning, match=r"cannot use .*without checkpoints"):
        net, _ = fit(tmp_path / "file" / "below")
    assert same(net, fit(None)[0])


@contextlib.contextmanager
def mounted(folder, options):
    """A file system of its own in memory, where the system lets us mount one; None where it does not."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    allowed = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield allowed
    finally:
        if allowed:
            subprocess.run(["umount", str(folder)], check=True)


@contextlib.contextmanager
def file_size_limit(size):
    """No file of this process may grow beyond a size: an error of the operating system that needs no privileges."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_really_full_disk(tmp_path):
    """On a file system of 64 KiB that another file fills; where none can be mounted, beyond a limit on the size of files."""
    disk = tmp_path / "disk"
    with mounted(disk, "size=64k") as allowed:
        with pytest.raises(Stop):
            fit(disk / "run", callbacks=[stop_at(3)])
        if allowed:
            free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize
            (disk / "filler").write_bytes(b"x" * free)
        with (
            contextlib.nullcontext() if allowed else file_size_limit(1000),
            pytest.warns(inducing.CheckpointWarning, match=r"(No space left on device|File too large)"),
        ):
            continued, _ = fit(disk / "run")
        assert same(continued, fit(None)[0])
        assert load_file(sorted((disk / "run").glob("step-*"))[-1])


def test_a_read_only_folder(tmp_path):
    """On a file system that is mounted again for reading only; for an ordinary user, in a folder without write permission."""
    disk = tmp_path / "disk"
    with mounted(disk, "size=1m") as allowed:
        with pytest.raises(Stop):
            fit(disk / "run", callbacks=[stop_at(3)])
        if allowed:
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        else:
            (disk / "run").chmod(0o555)
        with pytest.warns(
            inducing.CheckpointWarning, match=r"cannot (use|write) .*(Read-only|Permission).*training continues"
        ):
            continued, _ = fit(disk / "run")
        (disk / "run").chmod(0o755) if not allowed else None
        assert same(continued, fit(None)[0])
        assert load_file(sorted((disk / "run").glob("step-*"))[-1])
