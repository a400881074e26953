"""A time budget: as many steps as fit, an annealed learning rate, and an end at the clock."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

import inducing
from inducing.estimators import architectures
from inducing.inference import time_budget
from inducing.inference.recipes import FAST
from inducing.inference.time_budget import Clock

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(1200, 2))
Y = X[:, 0] * X[:, 1]


def fitted(rows=100, **settings):
    return inducing.BNNRegressor(random_state=0, n_samples=5, **settings).fit(X[:rows], Y[:rows])


def test_without_a_budget_nothing_changes():
    plain, generous = fitted(max_steps=20), fitted(max_steps=20, time_budget=1000.0)
    np.testing.assert_array_equal(plain.predict(X[:10]), generous.predict(X[:10]))
    assert not plain.limited_by_time_
    assert not generous.limited_by_time_


@pytest.mark.parametrize("estimator", [inducing.BNNRegressor, inducing.DeepGPRegressor])
def test_training_ends_in_time_and_is_annealed(estimator):
    model = estimator(max_steps=100_000, patience=None, time_budget=2.0, random_state=0)
    start = time.perf_counter()
    model.fit(X[:100], Y[:100])
    # with what comes before and after the training, on a busy machine
    assert time.perf_counter() - start < 30
    assert model.limited_by_time_
    assert 1 <= len(model.history_) < 100_000
    rates = [record.learning_rate for record in model.history_]
    assert rates[-1] < rates[0] or len(rates) == 1


def test_the_number_of_steps_is_what_fits(monkeypatch):
    monkeypatch.setattr(time_budget, "measure_step", lambda *_: pytest.fail("not used"))
    clock = Clock(100.0)
    limited = clock.limit(FAST.replace(num_steps=1000), lambda: 0.5)
    assert 170 <= limited.num_steps <= 180
    assert clock.is_limiting
    clock = Clock(100.0)
    assert clock.limit(FAST.replace(num_steps=10), lambda: 0.5).num_steps == 10
    assert not clock.is_limiting
    assert Clock(1e-9).limit(FAST, lambda: 1.0).num_steps == 1


def test_a_continued_run_keeps_its_number_of_steps(tmp_path):
    first = Clock(100.0, tmp_path).limit(FAST, lambda: 0.5)
    again = Clock(50.0, tmp_path).limit(FAST, lambda: pytest.fail("measured again"))
    assert again.num_steps == first.num_steps


def test_stages_share_the_budget(monkeypatch):
    monkeypatch.setattr(architectures, "HIDDEN", (5, 5))
    monkeypatch.setattr(architectures, "INDUCING_FOR_STAGES", 10)
    model = fitted(1200, time_budget=2.0)
    assert model.limited_by_time_
    assert np.isfinite(model.predict(X[:10])).all()


def test_stages_of_which_there_is_no_time_for_more_than_one(monkeypatch):
    monkeypatch.setattr(architectures, "HIDDEN", (5, 5))
    monkeypatch.setattr(architectures, "INDUCING_FOR_STAGES", 10)
    model = fitted(1200, time_budget=1e-3)
    assert model.limited_by_time_
    assert len(model.history_) == 1
    assert np.isfinite(model.predict(X[:10])).all()


def test_a_budget_may_be_infinite():
    model = fitted(max_steps=3, time_budget=float("inf"))
    assert len(model.history_) == 3
    assert not model.limited_by_time_


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), "1"])
def test_a_budget_is_positive(seconds):
    with pytest.raises(ValueError, match="time_budget must be a positive number of seconds"):
        fitted(time_budget=seconds)


def test_what_the_first_training_of_a_process_loads_does_not_count(monkeypatch):
    """It takes longer than the budget."""
    now, steps = [0.0], []
    monkeypatch.setattr(time_budget, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def train(*_, callbacks, **__):
        now[0] += 5.0
        for step in range(1, 21):
            now[0] += 0.1
            steps.append(SimpleNamespace(step=step, seconds=0.1 * step))
            if callbacks(steps[-1]):
                break
        return steps

    monkeypatch.setattr(time_budget, "fit", train)
    clock = Clock(5.0)
    clock.start = 0.0
    assert time_budget.measure_step(clock, None, None, None, FAST, 0) == pytest.approx(0.1)
    # a twentieth of the budget, after the first step
    assert len(steps) == 4
    assert clock.remaining == pytest.approx(5.0 - 0.4)
