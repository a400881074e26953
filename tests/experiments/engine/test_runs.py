from concurrent.futures import Future
from pathlib import Path

import pytest

from inducing.experiments.engine import runs
from inducing.experiments.engine.experiment import key_of
from inducing.experiments.engine.runs import Pool, Task, run_each, this_process
from inducing.experiments.engine.store import Store
from inducing.experiments.linear import LINEAR


def make_task(folder):
    def run(config, checkpoint, progress):
        checkpoint.mkdir()
        return {"rmse": 0.5}

    return Task(run, LINEAR.paper, Store(folder / "linear.jsonl"), resume=True)


def run_one(task):
    with this_process() as pool:
        (outcome,) = run_each([task], pool)
    return outcome


def test_a_run_is_stored_and_done_once(tmp_path):
    task = make_task(tmp_path)
    assert run_one(task) == (task.config, "0 s", False)
    assert not task.checkpoint.exists()
    assert task.store.results()[key_of(task.config)]["metrics"] == {"rmse": 0.5}
    assert run_one(task).detail == "finished by another process"


def test_a_run_of_another_process_is_tried_again_until_that_ends(tmp_path, monkeypatch):
    task = make_task(tmp_path)
    release = task.lock()
    assert task.lock() is None
    waited = []

    def sleep(seconds):
        waited.append(seconds)
        if len(waited) == 3:
            release()

    monkeypatch.setattr(runs, "sleep", sleep)
    assert run_one(task).detail == "0 s"
    assert waited == [runs.RETRY_SECONDS] * 3


def test_other_runs_do_not_wait_for_a_run_of_another_process(tmp_path):
    busy = make_task(tmp_path)
    free = busy._replace(config=LINEAR.configs("smoke")[0])
    release = busy.lock()
    with this_process() as pool:
        outcomes = run_each([busy, free], pool)
        assert next(outcomes).config == free.config
        release()
        assert next(outcomes).config == busy.config


def test_locks_are_released_after_an_error(tmp_path):
    tasks = [make_task(tmp_path)._replace(config=config) for config in LINEAR.configs("smoke")[:2]]

    def submit(run, config, checkpoint):
        if config is tasks[1].config:
            raise RuntimeError("the pool is full")
        return Future()

    # the error keeps its stack frames, and so the locks in them, until the end of this test
    with pytest.raises(RuntimeError, match="full") as error:
        list(run_each(tasks, Pool(submit, lambda: 2)))
    for task in tasks:
        release = task.lock()
        assert release is not None, error
        release()


def test_the_file_of_a_lock_stays(tmp_path):
    """A process that opened the file before it was removed, and one that made a new file, would both hold the lock."""
    task = make_task(tmp_path)
    task.lock()()
    file = Path(f"{task.checkpoint}.lock")
    number = file.stat().st_ino
    run_one(task)
    run_one(task)
    assert file.stat().st_ino == number
