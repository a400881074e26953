"""Runs that are finished, and runs that are given more steps or fewer."""

import pytest
import torch

import inducing

X = torch.linspace(-1, 1, 20)[:, None]
Y = X.sin()
CONSTANT = {"schedule": "constant", "early_samples": None}


def fit(folder, steps, **kwargs):
    torch.manual_seed(0)
    net = inducing.models.mlp(1, 1, [5], prior="scale", num_inducing=6)
    settings = {"batch_size": 8, "checkpoint_seconds": 0.0, "progress": False, **kwargs}
    history = inducing.fit(net, inducing.Gaussian(), (X, Y), num_steps=steps, checkpoint=folder, **settings)
    return net, [record[:-1] for record in history.records]


def same(first, second):
    return all(torch.equal(p, q) for p, q in zip(first.parameters(), second.parameters(), strict=True))


def stop_at(step):
    return lambda record: record.step == step


def test_more_steps_of_a_constant_schedule_are_those_of_a_longer_run(tmp_path):
    whole, expected = fit(None, 12, **CONSTANT)
    fit(tmp_path, 5, **CONSTANT)
    fit(tmp_path, 8, **CONSTANT)
    longer, history = fit(tmp_path, 12, **CONSTANT)
    assert same(whole, longer)
    assert history == expected


def test_a_run_that_a_callback_stopped_goes_on_with_more_steps(tmp_path):
    whole, expected = fit(None, 12, **CONSTANT)
    assert len(fit(tmp_path, 8, **CONSTANT, callbacks=stop_at(3))[1]) == 3
    assert len(fit(tmp_path, 8, **CONSTANT)[1]) == 3
    longer, history = fit(tmp_path, 12, **CONSTANT)
    assert same(whole, longer)
    assert history == expected


def test_a_schedule_of_the_fraction_follows_the_new_number_and_says_so(tmp_path, capsys):
    fit(tmp_path, 6, schedule="cosine")
    capsys.readouterr()
    _, history = fit(tmp_path, 12, schedule="cosine")
    _, longer = fit(None, 12, schedule="cosine")
    assert [record[6] for record in history[6:]] == pytest.approx([record[6] for record in longer[6:]])
    assert history[:6] != longer[:6]
    shown = capsys.readouterr().out
    assert "num_steps=12 instead of 6" in shown
    assert "follow the new num_steps" in shown


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "all steps are done"),
        ({"callbacks": stop_at(5)}, "a callback stopped it"),
        ({"patience": 2}, "the objective stopped rising"),
    ],
)
def test_a_finished_run_says_why_and_returns_its_history(tmp_path, capsys, settings, reason):
    net, history = fit(tmp_path, 12, **settings)
    capsys.readouterr()
    again, same_history = fit(tmp_path, 12, **settings)
    shown = capsys.readouterr().out
    assert f"is finished after step {len(history)}: {reason}" in shown
    assert "continuing" not in shown
    assert same(net, again)
    assert same_history == history


def test_fewer_steps(tmp_path):
    fit(tmp_path, 12, **CONSTANT, callbacks=stop_at(6))
    with pytest.raises(inducing.CheckpointError, match="has taken 6 steps already"):
        fit(tmp_path, 5, **CONSTANT)
    assert len(fit(tmp_path, 6, **CONSTANT)[1]) == 6
    assert len(fit(tmp_path, 9, **CONSTANT)[1]) == 9


def test_fewer_steps_of_a_run_that_was_interrupted(tmp_path):
    def interrupt(record):
        if record.step == 6:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        fit(tmp_path, 12, **CONSTANT, callbacks=interrupt)
    whole, expected = fit(None, 8, **CONSTANT)
    shorter, history = fit(tmp_path, 8, **CONSTANT)
    assert same(whole, shorter)
    assert history == expected


def test_another_setting_is_refused_with_more_steps_too(tmp_path):
    fit(tmp_path, 3, **CONSTANT)
    with pytest.raises(inducing.CheckpointError, match="learning_rate"):
        fit(tmp_path, 6, **CONSTANT, learning_rate=0.5)
