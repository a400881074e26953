import pytest

from benchmarks.measure import Timing, alternate, quartiles, rate


def test_sides_alternate_after_a_run_that_is_not_counted():
    order = []
    timings = alternate([lambda: order.append(0), lambda: order.append(1)], seconds=0.0, least=3)
    assert order == [0, 1] * 4
    assert [len(timing.wall) for timing in timings] == [len(timing.cpu) for timing in timings] == [3, 3]


def test_a_timing_summarises_its_runs():
    timing = Timing([2.0, 1.0], [2.0, 2.0]) + Timing([3.0], [2.0])
    assert (timing.fastest, timing.median, timing.cpu_share) == (1.0, 2.0, 1.0)
    assert quartiles([1.0, 2.0, 3.0]) == (1.5, 2.5)
    assert quartiles([4.0]) == (4.0, 4.0)
    assert rate(1.0) == 2 * 1024**3


def test_runs_without_disturbance_count():
    assert Timing([1.0, 1.1, 1.2], [1.0, 1.1, 1.2]).disturbances("ours") == []
    # two threads that share the work
    assert Timing([1.0, 1.0], [1.7, 1.7]).disturbances("ours") == []


def test_runs_that_waited_for_a_core_do_not_count():
    [reason] = Timing([1.0, 1.0], [0.5, 0.5]).disturbances("ours")
    assert reason.startswith("ours waited for a core")


def test_runs_that_vary_do_not_count():
    [reason] = Timing([1.0, 2.0, 2.0], [1.0, 2.0, 2.0]).disturbances("ours")
    assert reason.startswith("ours varied")
    assert pytest.approx(2.0) == float(reason.split("took ")[1].split()[0])
