"""The benchmark of threads stores what was measured on a machine without other work, and nothing else."""

import json

import pytest

from benchmarks import thread_tasks, threads


class Machine:
    """Workers that answer at once, and other processes that use as many cores as one says."""

    def __init__(self):
        self.other_cores, self.threads, self.started = 0.0, None, []

    def run_worker(self, module, arguments, settings, first, neighbours):
        self.started.append((arguments[0], settings, first, neighbours))
        number = self.threads or int(settings.get("OMP_NUM_THREADS", 2))
        seconds = 3.0 if first == "inducing" else 2.0 * number
        return {"wall": [seconds], "cpu": [seconds], "threads": number}, self.other_cores


@pytest.fixture
def machine(tmp_path, monkeypatch):
    machine = Machine()
    monkeypatch.setattr(threads, "run_worker", machine.run_worker)
    monkeypatch.setattr(threads, "other_cores_while_idle", lambda *_: 0.0)
    for name in ("RESULTS", "PAGE"):
        monkeypatch.setattr(threads, name, tmp_path / name)
    return machine


def test_a_quiet_run_is_stored_with_the_ratio_of_the_default(machine):
    assert threads.main([]) == 0
    results = json.loads(threads.RESULTS.read_text())
    assert list(results["seconds"]) == list(threads.CONDITIONS)
    for times in results["seconds"].values():
        assert list(times) == list(thread_tasks.TASKS)
        assert threads.default_over_best(times["predict"]) == pytest.approx(1.5)
    page = threads.PAGE.read_text()
    assert page == threads.page(results)
    assert "| 1.50 | no |" in page
    assert results["machine"]["processor"] in page


def test_only_the_default_sets_nothing_and_imports_the_library_first(machine):
    threads.main(["predict", "--quick"])
    assert [first for _, settings, first, _ in machine.started if not settings] == ["inducing"] * 2
    assert {first for _, settings, first, _ in machine.started if settings} == {"torch"}
    assert {neighbours for *_, neighbours in machine.started} == {0, 1}


def test_a_run_beside_other_work_is_not_stored(machine, capsys):
    machine.other_cores = 0.7
    assert threads.main([]) == 1
    assert not threads.RESULTS.exists()
    assert "other processes used 0.70 cores" in capsys.readouterr().out


def test_a_quick_run_stores_nothing(machine):
    assert threads.main(["--quick"]) == 0
    assert not threads.RESULTS.exists()
    assert not threads.PAGE.exists()


@pytest.mark.parametrize("arguments", [["nonsense"], ["predict"]])
def test_names_that_cannot_be_used_are_refused(machine, arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        threads.main(arguments)
    assert machine.started == []


def test_a_setting_that_does_not_hold_is_an_error(machine, capsys):
    machine.threads = 5
    with pytest.raises(SystemExit, match="2"):
        threads.main(["predict", "--quick"])
    assert "5 threads" in capsys.readouterr().err


@pytest.mark.parametrize("name", thread_tasks.TASKS)
def test_every_task_runs(name):
    thread_tasks.TASKS[name](quick=True)()
