"""Sweeps on a real Dask cluster on the loopback interface: a scheduler and workers in processes of their own."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from rich.console import Console
from typer.testing import CliRunner

from inducing.cli import app
from inducing.errors import DivergenceError
from inducing.experiments.engine import cluster, sweep
from inducing.experiments.engine.registry import EXPERIMENTS
from inducing.experiments.engine.runs import Task, run_each
from inducing.experiments.engine.store import Store

distributed = pytest.importorskip("distributed")

# runs long enough for a worker to be killed in the middle of one
SLOW = replace(EXPERIMENTS["linear"], presets={"smoke": {"num_steps": 200, "width": (5,), "depth": (1,)}})


class Client(nullcontext):
    """A client of a cluster without workers, whose runs all have the same outcome."""

    future: Future

    def __init__(self, *arguments, **settings):
        super().__init__(self)

    def scheduler_info(self, n_workers):
        return {"workers": {}}

    def get_executor(self, pure):
        return SimpleNamespace(submit=lambda *arguments: self.future)


class Cluster(NamedTuple):
    address: str
    workers: list[subprocess.Popen]


@pytest.fixture(scope="module")
def dask_cluster(tmp_path_factory):
    """A scheduler and two workers, which are ended afterwards."""
    folder = tmp_path_factory.mktemp("cluster")
    file = folder / "scheduler.json"
    started = []

    def start(*arguments):
        command = [sys.executable, "-m", "dask", *arguments, "--host", "127.0.0.1", "--no-dashboard"]
        with (folder / f"{len(started)}.log").open("w") as log:
            started.append(
                subprocess.Popen(
                    [*command, "--scheduler-file", str(file)],
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                    stdout=log,
                    stderr=log,
                    cwd=folder,
                )
            )

    try:
        start("scheduler", "--port", "0")
        for _ in range(2):
            start("worker", "--nthreads", "1", "--no-nanny")
        wait_for(file.exists)
        yield Cluster(json.loads(file.read_text())["address"], started[1:])
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def wait_for(condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.05)


def test_the_command_and_a_second_time(dask_cluster, tmp_path):
    """Results come to the caller's store, and what is in it is not sent to the cluster."""
    command = ["reproduce", "linear", "--preset", "smoke", "--out", str(tmp_path), "--dask", dask_cluster.address]
    done = CliRunner().invoke(app, [*command, "--only", "depth=1"])
    assert done.exit_code == 0, done.output
    assert "5 runs, 0 finished before" in done.stdout
    before = Store(tmp_path / "linear.jsonl").results()
    assert len(before) == 5
    assert {result["version"] for result in before.values()} == {"0.1.0"}
    assert "10 runs, 5 finished before" in CliRunner().invoke(app, command).stdout
    after = Store(tmp_path / "linear.jsonl").results()
    assert len(after) == 10
    assert before.items() <= after.items()


def test_a_killed_worker_loses_only_its_own_run(dask_cluster, tmp_path):
    """SIGKILL in the middle of a run: the other worker does it again, nothing is missing, and the numbers are those of here."""
    results = []

    def sweep_all():
        results.extend(sweep.reproduce(SLOW, "smoke", tmp_path / "out", dask=dask_cluster.address))

    sweeping = threading.Thread(target=sweep_all)
    with distributed.Client(dask_cluster.address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
        pids = client.run(os.getpid)
        victim = next(worker for worker in pids if pids[worker] == dask_cluster.workers[0].pid)
        sweeping.start()
        wait_for(lambda: client.processing()[victim])
        os.kill(pids[victim], signal.SIGKILL)
        wait_for(lambda: victim not in client.scheduler_info(n_workers=-1)["workers"])
        finished = Store(tmp_path / "out" / "linear.jsonl").results()
        assert len(finished) < 5, "it was killed at work"
        sweeping.join(120)
    assert not sweeping.is_alive()
    store = Store(tmp_path / "out" / "linear.jsonl")
    assert len(store.path.read_text().splitlines()) == len(results) == 5
    assert finished.items() <= store.results().items(), "finished runs stay as they are"
    assert not any(path.is_dir() for path in (tmp_path / "out" / "checkpoints").iterdir())
    here = sweep.reproduce(SLOW, "smoke", tmp_path / "here")
    assert [result["metrics"] for result in results] == [result["metrics"] for result in here]


def test_a_run_that_diverges_or_kills_its_workers_fails(tmp_path, monkeypatch):
    dead = distributed.KilledWorker("task", SimpleNamespace(address="tcp://a:1"), 4)
    monkeypatch.setattr(distributed, "Client", Client)
    store = Store(tmp_path / "linear.jsonl")
    task = Task(SLOW.run, SLOW.configs("smoke")[0], store, resume=True)
    for error, reason in ((DivergenceError("step 3"), "step 3"), (dead, "tcp://a:1")):
        Client.future = Future()
        Client.future.set_exception(error)
        with cluster.connect("tcp://a:1") as pool:
            (outcome,) = run_each([task], pool)
        assert outcome.failed
        assert reason in outcome.detail
    assert not store.results()


def test_a_lost_scheduler_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(distributed, "Client", Client)
    Client.future = Future()
    Client.future.cancel()
    Client.future.set_running_or_notify_cancel()
    task = Task(SLOW.run, SLOW.configs("smoke")[0], Store(tmp_path / "linear.jsonl"), resume=True)
    with pytest.raises(OSError, match="lost the Dask scheduler at tcp://a:1"), cluster.connect("tcp://a:1") as pool:
        list(run_each([task], pool))
    assert task.lock() is not None


def test_a_worker_with_several_threads_is_refused(monkeypatch):
    worker = SimpleNamespace(state=SimpleNamespace(nthreads=2))
    monkeypatch.setattr(distributed, "get_worker", lambda: worker)
    with pytest.raises(ValueError, match="--nthreads 1"):
        cluster.run_on_worker(SLOW.run, SLOW.configs("smoke")[0])


def test_no_scheduler_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    with pytest.raises(OSError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1"):
        sweep.reproduce(EXPERIMENTS["linear"], "smoke", tmp_path, dask="tcp://127.0.0.1:1", console=Console(quiet=True))


def test_jobs_or_dask(tmp_path):
    with pytest.raises(ValueError, match="only one of --jobs and --dask"):
        sweep.reproduce(EXPERIMENTS["linear"], "smoke", tmp_path, jobs=2, dask="tcp://127.0.0.1:1")
