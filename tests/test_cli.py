"""The command line as a user meets it: the real command in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).with_name("inducing")


def run(*arguments):
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=300, check=False)


def test_help_and_version():
    assert "demo" in run("--help").stdout
    assert run("--version").stdout.startswith("inducing 0.")
    assert "toy.png" in run("demo", "--help").stdout


def test_demo(tmp_path):
    done = run("demo", "--out", str(tmp_path / "out"), "--steps", "5")
    assert done.returncode == 0, done.stderr
    assert "factorised->global" in json.loads((tmp_path / "out" / "toy.json").read_text())
    assert "log-lik." in done.stdout
    assert "the paper" in done.stdout


@pytest.mark.parametrize("arguments", [["demo", "--steps", "0"], ["demo", "--frobnicate"], ["nonsense"]])
def test_bad_usage_leaves_with_2(arguments):
    done = run(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("in the way")
    done = run("demo", "--out", str(tmp_path / "file" / "below"), "--steps", "1")
    assert done.returncode == 2
    assert done.stderr.startswith("inducing demo: ")
    assert len(done.stderr.strip().splitlines()) == 1
