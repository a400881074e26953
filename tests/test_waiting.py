"""Whether waiting threads spin."""

import os
import time

import pytest
import torch

from inducing import threads, waiting
from inducing.waiting import CPUTime, IdleTeam, Watch, waiting_by_load

linux = pytest.mark.skipif(not waiting.can_switch(), reason="needs Linux and GNU's OpenMP")


def test_the_time_of_others_is_that_of_all_without_our_own():
    before, now = CPUTime(at=10.0, all=100.0, own=7.0), CPUTime(at=12.0, all=103.5, own=8.5)
    assert now.others_since(before) == pytest.approx(1.0)


@linux
def test_our_own_work_is_not_that_of_others():
    before, end = CPUTime.now(), time.process_time() + 0.5
    while time.process_time() < end:
        pass
    now = CPUTime.now()
    assert now.own - before.own >= 0.5
    assert now.all - before.all >= 0.4


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.ones(2 * waiting.GRAIN).add_(1)
    yield
    torch.set_num_threads(before)


def list_threads():
    return set(os.listdir("/proc/self/task"))


@linux
def test_an_idle_team_adds_threads_and_takes_them_away(two_threads):
    # by their names: threads of earlier tests may still be ending
    before = list_threads()
    team = IdleTeam(2)
    added = list_threads() - before
    # a thread of Python, and a second one of OpenMP
    assert len(added) == 2
    team.end()
    deadline = time.monotonic() + 30
    while added & list_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not added & list_threads()


@linux
def test_threads_sleep_while_others_are_busy(two_threads, monkeypatch):
    others, looks = [0.0], [0]

    def measure(self, before):
        looks[0] += 1
        return others[0]

    monkeypatch.setattr(CPUTime, "others_since", measure)
    monkeypatch.setattr(waiting, "INTERVAL", 0.001)
    watch = Watch(2)
    watch.start()
    found = []
    # between the two limits nothing changes
    for load in (0.0, 0.3, 1.0, 0.3, 0.0):
        others[0] = load
        # the second look from here on comes after the first has had its effect
        wanted, deadline = looks[0] + 3, time.monotonic() + 30
        while looks[0] < wanted and time.monotonic() < deadline:
            time.sleep(0.001)
        found.append(watch.spins)
    watch.stop()
    assert found == [True, True, False, False, True]
    assert watch.spins


@linux
def test_one_watch_serves_all_blocks_until_the_last_ends(two_threads, monkeypatch):
    made = []
    monkeypatch.setattr(waiting, "Watch", lambda count: made.append(Watch(count)) or made[-1])
    with waiting_by_load(1):
        assert made == []
    first, second = waiting_by_load(2), waiting_by_load(2)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert len(made) == 1
    assert made[0].is_alive()
    second.__exit__(None, None, None)
    assert not made[0].is_alive()
    with waiting_by_load(2):
        assert len(made) == 2


@linux
def test_a_watch_that_is_stopped_but_not_waited_for_ends_its_team(two_threads, monkeypatch):
    """As after Ctrl-C in `stop`."""
    monkeypatch.setattr(waiting, "count_runnable", lambda: 5)
    watch = Watch(2)
    watch.start()
    assert not watch.spins
    watch._stop_watching.set()
    deadline = time.monotonic() + 30
    while watch.is_alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert watch.spins


@linux
def test_a_child_process_has_its_own_blocks(two_threads):
    with threads.using_threads(2):
        child = os.fork()
        if not child:
            waiting._users.lock.acquire(timeout=10)
            os._exit(0 if waiting._users.count == 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@linux
def test_a_wait_policy_of_the_user_is_not_switched(two_threads, monkeypatch):
    made = []
    monkeypatch.setattr(waiting, "Watch", lambda count: made.append(count) or Watch(count))
    monkeypatch.setattr(threads, "WAITING_IS_CHOSEN", True)
    with threads.using_threads(2):
        pass
    assert made == []
    monkeypatch.setattr(threads, "WAITING_IS_CHOSEN", False)
    with threads.using_threads(2):
        assert made == [2]
