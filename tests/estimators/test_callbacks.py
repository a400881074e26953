"""Callbacks of estimators, which see the network in training."""

import numpy as np
import pytest

import inducing

X = np.random.default_rng(0).normal(size=(40, 2))
SMALL = {"max_steps": 6, "random_state": 0}


@pytest.mark.parametrize(
    ("estimator", "y"),
    [
        (inducing.BNNRegressor([5], **SMALL), X[:, 0]),
        (inducing.DeepGPRegressor(num_inducing=5, **SMALL), X[:, 0]),
        (inducing.BNNClassifier([5], **SMALL), X[:, 0] > 0),
    ],
)
def test_callbacks_see_each_step_and_the_model(estimator, y):
    seen = []

    def stop(record, network, likelihood):
        seen.append((record, network, likelihood))
        return record.step == 3

    model = estimator.fit(X, y, callbacks=stop)
    assert [record for record, _, _ in seen] == model.history_.records
    assert len(seen) == 3
    assert all(network is model.network_ and noise is model.likelihood_ for _, network, noise in seen)


def test_callbacks_see_all_stages():
    rows = np.random.default_rng(1).normal(size=(1100, 2))
    networks, steps = set(), []

    def watch(record, network, likelihood):
        networks.add(id(network))
        steps.append(record.step)

    model = inducing.BNNRegressor([5], max_steps=40, random_state=0).fit(rows, rows[:, 0], callbacks=[watch])
    # a plain network, at least two temperatures, all rows
    assert len(networks) >= 4
    assert steps.count(1) >= 4
    assert id(model.network_) in networks


def test_a_log_file(tmp_path):
    log = inducing.JSONLog(tmp_path / "log.jsonl")
    inducing.BNNRegressor([5], **SMALL).fit(X, X[:, 0], callbacks=log)
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 6


@pytest.mark.parametrize("callback", [lambda: None, lambda record, network: None, lambda *, record: None])
def test_other_arguments_are_refused(callback):
    with pytest.raises(TypeError, match="the arguments of a callback are the record, or"):
        inducing.BNNRegressor([5], **SMALL).fit(X, X[:, 0], callbacks=[callback])


def test_held_out_rows_are_a_pair():
    with pytest.raises(TypeError, match=r"eval_set must be a pair \(X, y\)"):
        inducing.BNNRegressor([5], **SMALL).fit(X, X[:, 0], eval_set=X)
