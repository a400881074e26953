import os

import pytest

from benchmarks import processes


def test_settings_of_threads_are_unset():
    environment = {"OMP_NUM_THREADS": "7", "KMP_BLOCKTIME": "3", "GOMP_SPINCOUNT": "1", "PATH": "here"}
    assert processes.without_thread_settings(environment) == {"PATH": "here"}


@pytest.fixture
def a_worker(tmp_path, monkeypatch):
    """A package of workers, with a stand-in for torch and inducing."""
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "torch.py").touch()
    lines = ["import json, os, sys", "def main():", "    print('something else')"]
    lines += [
        "    print(json.dumps({'threads': os.environ.get('OMP_NUM_THREADS'), 'policy': os.environ.get('OMP_WAIT_POLICY')}))"
    ]
    (tmp_path / "benchmarks" / "worker.py").write_text("\n".join([*lines, "    sys.exit(int(sys.argv[1]))"]))
    monkeypatch.setattr(processes, "ROOT", tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")


def test_a_worker_has_its_settings_and_no_others(a_worker):
    found, _ = processes.run_worker("worker", ["0"], processes.threads(2), first="torch")
    assert found == {"threads": "2", "policy": None}
    assert os.environ["OMP_WAIT_POLICY"] == "active"


def test_a_worker_that_fails_is_an_error(a_worker):
    with pytest.raises(processes.WorkerError, match="status 3"):
        processes.run_worker("worker", ["3"], {}, first="torch")


def test_busy_loops_end_with_their_block(monkeypatch):
    started, start = [], processes.subprocess.Popen
    monkeypatch.setattr(processes.subprocess, "Popen", lambda command: started.append(start(command)) or started[-1])
    with processes.busy_loops(2):
        assert [loop.poll() for loop in started] == [None, None]
    assert all(loop.returncode for loop in started)
