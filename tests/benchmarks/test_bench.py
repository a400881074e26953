"""`make bench` stores what was measured on a machine without other work, and nothing else."""

import json

import pytest

from benchmarks import bench, profiles, results
from benchmarks.measure import Timing
from benchmarks.workloads import WORKLOADS

STEADY = {"wall": [1.0, 1.0, 1.0], "cpu": [1.0, 1.0, 1.0]}
FOUND = {"ours": STEADY, "other": {"wall": [2.0, 3.0, 4.0], "cpu": [2.0, 3.0, 4.0]}, "product": STEADY}


class Machine:
    """Workers that answer at once, and other processes that use as many cores as one says."""

    def __init__(self):
        self.before, self.meanwhile, self.started = 0.0, 0.0, []
        self.found = FOUND | {"wait_policy": "passive"}

    def run_worker(self, module, arguments, settings):
        self.started.append((module, arguments[0], settings["OMP_NUM_THREADS"]))
        return (self.found if module == "compare" else {"page": "a page"}), self.meanwhile


@pytest.fixture
def machine(tmp_path, monkeypatch):
    machine = Machine()
    monkeypatch.setattr(bench, "run_worker", machine.run_worker)
    monkeypatch.setattr(bench, "other_cores_while_idle", lambda *_: machine.before)
    monkeypatch.setattr(bench, "available_cores", lambda: 2)
    for name in ("RESULTS", "TABLE", "GROWTH", "PROFILES"):
        monkeypatch.setattr(bench, name, tmp_path / name)
    bench.RESULTS.write_text("[]")
    return machine


def stored():
    return {result["workload"]: result for result in json.loads(bench.RESULTS.read_text())}


def test_a_quiet_run_is_stored_with_its_spread_for_one_and_two_threads(machine):
    assert bench.main(["toy"]) == 0
    assert [number for _, _, number in machine.started] == ["1", "1", "2", "2"]
    toy = stored()["toy"]
    assert toy["machine"]["processor"]
    assert list(toy["threads"]) == ["1", "2"]
    found = toy["threads"]["2"]
    assert (found["ratio"], found["ratio_quartiles"], found["rounds"]) == (3.0, [2.25, 3.75], 6)
    assert found["wait_policy"] == "passive"
    assert bench.TABLE.read_text() == results.page([toy])


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_run_beside_other_work_is_printed_and_not_stored(machine, capsys, when):
    setattr(machine, when, 0.8)
    assert bench.main(["toy"]) == 1
    assert stored() == {}
    said = capsys.readouterr().out
    assert "ratio 3.00" in said
    assert "other processes used 0.80 cores" in said


def test_a_side_that_waited_for_a_core_is_not_stored(machine, capsys):
    machine.found["other"] = {"wall": [2.0, 2.0, 2.0], "cpu": [1.0, 1.0, 1.0]}
    assert bench.main(["toy"]) == 1
    assert stored() == {}
    assert "the other side waited for a core" in capsys.readouterr().out


def test_results_of_other_workloads_stay(machine):
    bench.main(["wide"])
    before = stored()["wide"]
    machine.meanwhile = 1.0
    assert bench.main(["toy", "wide"]) == 1
    assert stored() == {"wide": before}
    machine.meanwhile = 0.0
    bench.main(["toy"])
    assert list(stored()) == ["toy", "wide"]


@pytest.mark.parametrize("option", ["--growth", "--profile"])
def test_pages_are_stored_only_if_the_machine_was_quiet(machine, option):
    path = bench.GROWTH if option == "--growth" else bench.PROFILES
    machine.meanwhile = 1.0
    assert bench.main([option]) == 1
    assert not path.exists()
    machine.meanwhile = 0.0
    assert bench.main([option]) == 0
    assert path.read_text() == "a page"


@pytest.mark.parametrize("arguments", [["toy"], ["--growth"], ["toy", "--profile"]])
def test_a_quick_run_stores_nothing(machine, arguments):
    assert bench.main([*arguments, "--quick"]) == 0
    assert stored() == {}
    assert not any(path.exists() for path in (bench.TABLE, bench.GROWTH, bench.PROFILES))


@pytest.mark.parametrize("arguments", [["nonsense"], ["toy", "--profile"], ["toy", "--growth"], ["--seconds", "-1"]])
def test_names_that_cannot_be_used_are_refused(machine, arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        bench.main(arguments)
    assert machine.started == []


def test_a_worker_that_fails_ends_the_run(machine, monkeypatch, capsys):
    def fail(*_):
        raise bench.WorkerError("benchmarks.compare toy ended with status 1")

    monkeypatch.setattr(bench, "run_worker", fail)
    with pytest.raises(SystemExit, match="2"):
        bench.main(["toy"])
    assert "status 1" in capsys.readouterr().err


def test_results_of_different_machines_have_tables_of_their_own():
    timings = [Timing([1.0], [1.0])] * 3
    machines = [
        {"processor": name, "architecture": "a", "instruction_set": "i", "cores": 2, "system": "s", "torch": "t"}
        for name in ("first", "second")
    ]
    page = results.page(
        [
            {"workload": name, "machine": machine, "threads": {"1": results.summarise(name, *timings)}}
            for name, machine in zip(("toy", "wide"), machines, strict=True)
        ]
    )
    first, second = page.split("## first")[1].split("## second")
    assert "`toy`" in first
    assert "`wide`" in second


def test_the_stored_pages_are_those_that_the_program_makes():
    found = json.loads(bench.RESULTS.read_text())
    assert bench.TABLE.read_text() == results.page(found)
    assert {result["workload"] for result in found} <= set(WORKLOADS)
    assert profiles.MARKER in bench.PROFILES.read_text()
    assert bench.PROFILES == profiles.PAGE
