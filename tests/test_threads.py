"""Threads: who decides on their number, and how they wait."""

import importlib
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

import inducing
from inducing import threads
from inducing.threads import Work, change_threads, threads_for, threads_of_user, using_threads
from tests import processes


@pytest.fixture
def two_cores(monkeypatch):
    """A machine with two cores, and a user without settings."""
    for name in threads.COUNT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "DEFAULT_COUNT", 2)
    monkeypatch.setattr(threads, "IMPORTED_BEFORE_TORCH", True)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_threads_follow_the_work(two_cores):
    assert [threads_for(work * threads.WORTH_A_THREAD) for work in (0.0, 0.9, 1.9, 2.0, 1e6)] == [1, 1, 1, 2, 2]


def test_threads_whose_spinning_cannot_be_stopped_are_not_used(two_cores, monkeypatch):
    monkeypatch.setattr(threads, "can_switch", lambda: False)
    monkeypatch.setattr(threads, "IMPORTED_BEFORE_TORCH", False)
    monkeypatch.setattr(threads, "WAITING_IS_CHOSEN", False)
    # as many as torch starts by itself
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    monkeypatch.setattr(threads, "DEFAULT_COUNT", cores)
    torch.set_num_threads(cores)
    assert threads_for(1e20) == 1
    monkeypatch.setattr(threads, "can_switch", lambda: True)
    assert threads_for(1e20) == cores
    monkeypatch.setattr(threads, "can_switch", lambda: False)
    monkeypatch.setattr(threads, "WAITING_IS_CHOSEN", True)
    assert threads_for(1e20) == cores


def test_settings_of_the_user_win(two_cores, monkeypatch):
    assert threads_of_user() is None
    torch.set_num_threads(3)
    assert threads_of_user() == threads_for(0) == threads_for(1e20) == 3
    torch.set_num_threads(2)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert threads_of_user() == threads_for(0) == 2


def test_a_block_has_its_threads_and_gives_them_back(two_cores):
    with using_threads(1):
        assert torch.get_num_threads() == 1
        # not a setting of the user
        assert threads_of_user() is None
        change_threads(3)
        with using_threads(1):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
    assert torch.get_num_threads() == 2


def test_blocks_of_other_python_threads_are_not_settings_of_the_user(two_cores):
    found = []

    def look():
        found.append(threads_of_user())
        with using_threads(3):
            found.append(torch.get_num_threads())

    with using_threads(1):
        other = threading.Thread(target=look)
        other.start()
        other.join()
        assert torch.get_num_threads() == 1
    assert found == [None, 3]
    assert torch.get_num_threads() == 2
    assert threads_of_user() is None


def test_operations_are_counted():
    a, b = torch.randn(3, 5, 7, requires_grad=True), torch.randn(3, 7, 2)
    with Work() as product:
        (a @ b).sum().backward()
    # forward, and the gradient of a
    assert product.operations == 2 * 2 * 3 * 5 * 7 * 2
    with Work() as solve:
        torch.linalg.solve_triangular(torch.eye(4), torch.randn(4, 6), upper=False)
    assert solve.operations == 4 * 4 * 6
    with Work() as factor:
        torch.linalg.cholesky_ex(torch.eye(6).expand(5, 6, 6))
    assert factor.operations == 5 * 6**3 / 3


def make_run(**settings):
    torch.manual_seed(0)
    x, y = torch.randn(20, 2), torch.randn(20, 1)
    network = inducing.models.mlp(2, 1, [5], inducing_points=x[:5], inducing_targets=y[:5])
    return lambda **more: inducing.fit(
        network, inducing.Gaussian(), (x, y), progress=False, **settings, **more
    ), network


def test_fit_chooses_after_its_first_step(two_cores, monkeypatch):
    seen = []
    for worth, wanted in ((1e12, [1, 1, 1]), (1.0, [2, 2, 2])):
        monkeypatch.setattr(threads, "WORTH_A_THREAD", worth)
        run, _ = make_run(num_steps=3)
        seen.clear()
        run(callbacks=lambda record: seen.append(torch.get_num_threads()))
        assert seen == wanted
        assert torch.get_num_threads() == 2


def test_a_continued_run_keeps_its_threads(two_cores, monkeypatch, tmp_path):
    monkeypatch.setattr(threads, "WORTH_A_THREAD", 1.0)
    run, _ = make_run(num_steps=4, checkpoint=tmp_path)
    run(callbacks=lambda record: record.step == 2)
    monkeypatch.setattr(threads, "WORTH_A_THREAD", 1e12)
    seen = []
    run, _ = make_run(num_steps=5, checkpoint=tmp_path)
    run(callbacks=lambda record: seen.append((record.step, torch.get_num_threads())))
    assert seen == [(3, 2), (4, 2), (5, 2)]


def test_fit_and_predict_leave_settings_of_the_user(two_cores):
    torch.set_num_threads(3)
    seen = []
    run, network = make_run(num_steps=2)
    run(callbacks=lambda record: seen.append(torch.get_num_threads()))
    inducing.predict(network, inducing.Gaussian(), torch.randn(3, 2), 4)
    assert seen == [3, 3]
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize("batch_size", [1, 1000])
def test_the_threads_of_draws_do_not_depend_on_the_batch_size(two_cores, monkeypatch, batch_size):
    """With another number of threads the drawn functions would be rounded differently."""
    _, network = make_run()
    with Work() as drawing:
        network.sample_functions(4)
    # one thread for the draws, and two for a batch of 1000 rows
    monkeypatch.setattr(threads, "WORTH_A_THREAD", drawing.operations)
    seen, original = [], inducing.Network.sample_functions

    def sample_functions(self, num_samples, *arguments):
        if num_samples > 1:
            seen.append(torch.get_num_threads())
        return original(self, num_samples, *arguments)

    monkeypatch.setattr(inducing.Network, "sample_functions", sample_functions)
    inducing.predict(network, inducing.Gaussian(), torch.randn(1000, 2), 4, batch_size)
    assert seen == [1]


@pytest.fixture
def _no_settings(monkeypatch):
    for name in (*threads.WAIT_VARIABLES, *threads.COUNT_VARIABLES):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("_no_settings")
@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, "None True False" if sys.platform == "linux" else "passive True False"),
        ({"OMP_WAIT_POLICY": "active"}, "active True True"),
    ],
)
def test_the_wait_policy_of_the_user_is_left_alone(variables, wanted):
    script = "import os, inducing.threads as t\nprint(os.environ.get('OMP_WAIT_POLICY'), t.IMPORTED_BEFORE_TORCH, t.WAITING_IS_CHOSEN)"
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert run.stdout.strip() == wanted


@pytest.mark.usefixtures("_no_settings")
@pytest.mark.parametrize(
    ("variables", "wanted"), [({}, "None False False"), ({"GOMP_SPINCOUNT": "0"}, "None False True")]
)
def test_the_wait_policy_is_left_alone_where_torch_was_imported_before(variables, wanted):
    (run,) = processes.run_all([(variables, print_wait_policy)])
    assert run.stdout == wanted, run.stderr


def print_wait_policy():
    """In a process that has imported torch."""
    importlib.reload(threads)
    sys.stdout.write(f"{os.environ.get('OMP_WAIT_POLICY')} {threads.IMPORTED_BEFORE_TORCH} {threads.WAITING_IS_CHOSEN}")


def test_evaluate_chooses_its_threads(monkeypatch):
    used = []
    network, x = inducing.models.mlp(2, 1, [3], num_inducing=4), torch.randn(5, 2)
    actual = network.draw

    def draw(*arguments, **settings):
        used.append(torch.get_num_threads())
        return actual(*arguments, **settings)

    monkeypatch.setattr(network, "draw", draw)
    monkeypatch.setattr(threads, "threads_of_user", lambda: None)
    monkeypatch.setattr(threads, "most_threads", lambda: 4)
    monkeypatch.setattr(threads, "threads_for", lambda operations: 3)
    before = torch.get_num_threads()
    inducing.evaluate(network, inducing.Gaussian(), (x, x[:, :1]), num_samples=2)
    # one draw that counts the work, then all draws
    assert used == [1, 3]
    assert torch.get_num_threads() == before


def test_predictions_of_estimators_choose_their_threads(monkeypatch):
    x = np.random.default_rng(0).normal(size=(20, 2))
    estimator = inducing.BNNRegressor(max_steps=1, random_state=0).fit(x, x[:, 0])
    used = []
    actual = estimator.network_.sample_functions

    def sample_functions(*arguments, **settings):
        used.append(torch.get_num_threads())
        return actual(*arguments, **settings)

    monkeypatch.setattr(estimator.network_, "sample_functions", sample_functions)
    monkeypatch.setattr(threads, "threads_of_user", lambda: None)
    monkeypatch.setattr(threads, "most_threads", lambda: 4)
    monkeypatch.setattr(threads, "threads_for", lambda operations: 3)
    estimator.predict(x)
    # one draw that counts the work, then all draws
    assert used == [1, 3]
