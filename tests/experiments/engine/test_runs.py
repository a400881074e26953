from pathlib import Path

from inducing.experiments.engine.experiment import key_of
from inducing.experiments.engine.runs import Outcome, State, Task, run_here
from inducing.experiments.engine.store import Store
from inducing.experiments.linear import LINEAR


def make_task(folder):
    def run(config, checkpoint, progress):
        checkpoint.mkdir()
        return {"rmse": 0.5}

    return Task(run, LINEAR.paper, Store(folder / "linear.jsonl"), resume=True)


def test_a_run_is_stored_and_done_once(tmp_path):
    task = make_task(tmp_path)
    assert run_here(task, wait=False).state is State.FINISHED
    assert not task.checkpoint.exists()
    assert task.store.results()[key_of(task.config)]["metrics"] == {"rmse": 0.5}
    assert run_here(task, wait=False).state is State.SKIPPED


def test_a_locked_run_is_busy(tmp_path):
    task = make_task(tmp_path)
    lock = task.lock(wait=False)
    assert run_here(task, wait=False).state is State.BUSY
    lock.release()
    assert run_here(task, wait=False).state is State.FINISHED


def test_the_file_of_a_lock_stays(tmp_path):
    """A process that opened the file before it was removed, and one that made a new file, would both hold the lock."""
    task = make_task(tmp_path)
    lock = task.lock(wait=False)
    assert not isinstance(lock, Outcome)
    number = Path(lock.lock_file).stat().st_ino
    lock.release()
    run_here(task, wait=False)
    run_here(task, wait=False)
    assert Path(lock.lock_file).stat().st_ino == number
