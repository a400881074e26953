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


def test_a_slow_first_step_does_not_count(monkeypatch):
    """The first step of a process loads parts of torch."""
    steps = []

    def train(*_, callbacks, **__):
        for step, seconds in enumerate((5.0, 5.1, 5.2), 1):
            steps.append(SimpleNamespace(step=step, seconds=seconds))
            if callbacks(steps[-1]):
                break
        return steps

    monkeypatch.setattr(time_budget, "fit", train)
    clock = Clock(1.0)
    monkeypatch.setattr(Clock, "__call__", lambda self, record: True)
    before = clock.remaining
    assert time_budget.measure_step(clock, None, None, None, FAST, 0) == pytest.approx(0.1)
    assert len(steps) == 2, "two steps, whatever the first takes"
    # the clock has gone on for a moment
    assert before + 4.9 - 1 < clock.remaining < before + 4.9
