"""The command line as a user meets it: its entry point in a process of its own, and its pages of help within ours."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inducing.cli import app
from inducing.data import image_files, uci
from inducing.experiments import toy
from inducing.experiments.engine import report, sweep
from tests import processes
from tests.conftest import pack_cifar, served, write_uci_set

ROOT = Path(__file__).parents[1]


def run(*arguments):
    return processes.run(processes.command, *arguments)


def test_help_and_version():
    installed = Path(sys.executable).with_name("inducing")
    assert "demo" in subprocess.run([installed, "--help"], capture_output=True, text=True, check=True).stdout
    assert CliRunner().invoke(app, ["--version"]).stdout.startswith("inducing 0.")
    assert "toy.png" in CliRunner().invoke(app, ["demo", "--help"]).stdout


def test_demo(tmp_path):
    done = run("demo", "--out", str(tmp_path / "out"), "--steps", "5")
    assert done.returncode == 0, done.stderr
    assert "factorised->global" in json.loads((tmp_path / "out" / "toy.json").read_text())
    assert "log-lik." in done.stdout
    assert "the paper" in done.stdout


@pytest.mark.parametrize("arguments", [["demo", "--steps", "0"], ["demo", "--frobnicate"]])
def test_bad_usage_leaves_with_2(arguments):
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert arguments[1] in done.stderr


def test_a_command_that_is_not_there():
    done = run("nonsense")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("in the way")
    done = run("demo", "--out", str(tmp_path / "file" / "below"), "--steps", "1")
    assert done.returncode == 2
    assert done.stderr.startswith("inducing demo: ")
    assert len(done.stderr.strip().splitlines()) == 1


def test_files_that_cannot_be_written_are_noticed_before_any_run(tmp_path, monkeypatch):
    for name in ("toy.png", "compositional-bnn-smoke.png", "report.html"):
        os.mkfifo(tmp_path / name)
    shutil.copy(ROOT / "results" / "linear.jsonl", tmp_path)
    monkeypatch.setattr(toy, "run", lambda *_, **__: pytest.fail("a run was started"))
    monkeypatch.setattr(sweep, "_run_all", lambda *_: pytest.fail("a run was started"))
    monkeypatch.setattr(report, "selected", lambda *_: pytest.fail("the report was made"))
    for arguments in (
        ["demo", "--out", tmp_path],
        ["reproduce", "compositional-bnn", "--preset", "smoke", "--out", tmp_path],
        ["report", "--results", tmp_path, "--out", tmp_path / "report.html"],
    ):
        done = CliRunner().invoke(app, list(map(str, arguments)))
        assert done.exit_code == 2
        assert "is a pipe" in done.stderr


def test_report(tmp_path):
    (tmp_path / "results").mkdir()
    shutil.copy(ROOT / "results" / "linear.jsonl", tmp_path / "results")
    page = tmp_path / "report.html"
    arguments = ["report", "--results", str(tmp_path / "results"), "--out"]
    done = CliRunner().invoke(app, [*arguments, str(page)])
    assert (done.exit_code, done.stdout) == (0, f"wrote {page}\nwrote {tmp_path / 'claims.html'}\n")
    assert page.read_text().count("No runs are stored") > 5
    assert f"wrote {page} (replaced)" in CliRunner().invoke(app, [*arguments, str(page)]).stdout
    done = CliRunner().invoke(app, [*arguments, str(tmp_path / "report.pdf")])
    assert done.exit_code == 2
    assert done.stderr.startswith("inducing report: a report is an .html or .md file")


@pytest.fixture
def data_here(small_images, tmp_path):
    """A data folder with yacht and small image sets, SVHN without its training images."""
    write_uci_set(tmp_path / "uci" / "yacht")
    (tmp_path / "svhn" / "train_32x32.mat").unlink()
    return tmp_path


def data(*arguments):
    """`inducing data` in this process, which knows the sizes of the small sets."""
    return CliRunner().invoke(app, ["data", *arguments])


def test_data_lists_all_sets(data_here):
    done = data()
    assert done.exit_code == 0
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert list(lines) == [*uci.FOLDERS, *image_files.SETS]
    assert lines["boston"] == "not here"
    assert lines["yacht"] == str(data_here / "uci" / "yacht")
    assert lines["mnist"] == str(data_here / "mnist")
    assert lines["svhn"] == f"{data_here / 'svhn'} (train is not here)"


def test_data_verify(real_data, data_here, monkeypatch):
    """The real files where they are at hand, else the small ones."""
    expected = [
        "yacht: 20 splits of 54 + 6 rows, 6 features, no checksum known",
        "mnist train: 20 images of 1 x 28 x 28, labels 0 to 9, no checksum known",
        "mnist test: 10 images of 1 x 28 x 28, labels 0 to 9, no checksum known",
    ]
    if real_data is not None:
        monkeypatch.undo()
        expected = [
            "yacht: 20 splits of 277 + 31 rows, 6 features, no checksum known",
            "mnist train: 60000 images of 1 x 28 x 28, labels 0 to 9, SHA-256 matches",
            "mnist test: 10000 images of 1 x 28 x 28, labels 0 to 9, SHA-256 matches",
        ]
    done = data("verify", "yacht", "mnist")
    assert (done.exit_code, done.stdout.splitlines()) == (0, expected)


def test_data_verify_names_what_is_damaged_or_missing(data_here):
    (data_here / "cifar-10-batches-bin" / "data_batch_3.bin").write_bytes(b"short")
    done = data("verify", "mnist", "cifar10")
    assert done.exit_code == 2
    assert done.stdout.startswith("mnist train: ")
    assert done.stderr.startswith("inducing data verify: ")
    assert "only 5 bytes" in done.stderr
    for name in ("boston", "svhn"):
        for file in (data_here / "svhn").iterdir():
            file.unlink()
        assert f"`inducing data fetch {name}`" in data("verify", name).stderr


def test_data_fetch(data_here, tmp_path, monkeypatch):
    pack_cifar(data_here)
    monkeypatch.setenv("INDUCING_DATA", str(tmp_path / "own"))
    (tmp_path / "own").mkdir()
    write_uci_set(data_here / "energy" / "data")
    with served(data_here) as httpd:
        address = f"http://127.0.0.1:{httpd.server_port}"
        monkeypatch.setattr(uci, "SOURCE", address)
        for name, below in (("cifar10", ""), ("notmnist", "/notmnist"), ("svhn", "/svhn")):
            monkeypatch.setitem(image_files.SETS, name, image_files.SETS[name]._replace(source=address + below))
        done = data("fetch", "energy", "cifar10", "notmnist")
        assert done.exit_code == 0, done.stderr
        assert done.stdout.splitlines()[0] == f"energy         {tmp_path / 'own' / 'uci' / 'energy'}"
        assert "not here" not in done.stdout
        failed = data("fetch", "svhn")
        assert failed.exit_code == 2
        assert failed.stderr.startswith(f"inducing data fetch: cannot download {address}/svhn/train_32x32.mat")
    assert data("verify", "energy", "cifar10", "notmnist").exit_code == 0


@pytest.mark.parametrize("command", ["fetch", "verify"])
def test_data_refuses_names_before_it_begins(command, data_here):
    done = data(command, "mnist", "mnits")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"inducing data {command}: unknown dataset 'mnits'")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["fetch"], ["verify"], ["nonsense"]])
def test_data_without_names_or_with_another_command_leaves_with_2(arguments, data_here):
    assert data(*arguments).exit_code == 2


def test_data_in_a_folder_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("INDUCING_DATA", str(tmp_path / "nowhere"))
    done = data()
    assert done.exit_code == 2
    assert "INDUCING_DATA" in done.stderr


def test_bench_outside_a_clone_says_where_to_run_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["bench"])
    assert result.exit_code == 2
    assert "root of a clone" in result.stderr


def test_bench_passes_its_options_on_and_returns_the_exit_code(monkeypatch):
    commands = []

    def run(command):
        commands.append(command[2:])
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.chdir(Path(__file__).parents[1])
    monkeypatch.setattr(subprocess, "run", run)
    assert CliRunner().invoke(app, ["bench", "toy", "--seconds", "2", "--quick"]).exit_code == 1
    assert commands == [["benchmarks.bench", "toy", "--seconds", "2", "--quick"]]


def test_bench_refuses_unknown_workloads(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[1])
    assert CliRunner().invoke(app, ["bench", "nonsense"]).exit_code == 2
