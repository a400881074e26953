import os

import pytest

from benchmarks import machine
from benchmarks.machine import CPUTime

# user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice
STATISTICS = "cpu  100 10 20 9999 999 3 4 5 50 0\ncpu0 100 10 20 9999 999 3 4 5 50 0\n"


def test_idle_time_and_guests_are_not_busy():
    # guests are part of the user's time already
    assert machine.busy_seconds(STATISTICS) * os.sysconf("SC_CLK_TCK") == pytest.approx(142)


def test_our_own_time_is_not_that_of_others():
    start, end = CPUTime(wall=0.0, machine=50.0, own=5.0), CPUTime(wall=10.0, machine=70.0, own=20.0)
    assert start.other_cores(end) == pytest.approx(0.5)
    # clocks of different resolution may disagree by a little
    assert start.other_cores(CPUTime(wall=10.0, machine=70.0, own=25.1)) == 0.0


def test_without_statistics_the_load_average_counts(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "STATISTICS", tmp_path / "none")
    monkeypatch.setattr(os, "getloadavg", lambda: (1.5, 9.0, 9.0), raising=False)
    start = CPUTime.read()
    assert start.other_cores(CPUTime.read()) is None
    assert machine.other_cores_while_idle(0.0) == pytest.approx(1.5)
    assert machine.other_cores_while_idle(0.0, own_cores=2) == 0.0


def test_other_work_is_a_reason_above_what_is_tolerated():
    assert machine.describe_other_work("before", 0.05) == machine.describe_other_work("before", None) == []
    [reason] = machine.describe_other_work("before", 1.25)
    assert "1.25 cores before" in reason


def test_a_result_names_the_machine():
    described = machine.describe()
    assert {"processor", "instruction_set", "cores", "torch"} <= set(described)
    assert all(described.values())
    assert described["processor"] in machine.heading(described)
