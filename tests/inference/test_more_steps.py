"""Runs that continue with another number of steps."""

import pytest

import inducing
from tests.inference.checkpointed import fit, numbers, same

CONSTANT = {"schedule": "constant", "early_samples": None}


def train_steps(folder, steps, **kwargs):
    net, history = fit(folder, steps=steps, **kwargs)
    return net, numbers(history)


def stops_at(step):
    return lambda record: record.step == step


def test_more_steps_of_a_constant_schedule_are_those_of_a_longer_run(tmp_path):
    whole, expected = train_steps(None, 12, **CONSTANT)
    train_steps(tmp_path, 5, **CONSTANT)
    train_steps(tmp_path, 8, **CONSTANT)
    longer, history = train_steps(tmp_path, 12, **CONSTANT)
    assert same(whole, longer)
    assert history == expected


def test_a_run_that_a_callback_stopped_goes_on_with_more_steps(tmp_path):
    whole, expected = train_steps(None, 12, **CONSTANT)
    assert len(train_steps(tmp_path, 8, **CONSTANT, callbacks=stops_at(3))[1]) == 3
    assert len(train_steps(tmp_path, 8, **CONSTANT)[1]) == 3
    longer, history = train_steps(tmp_path, 12, **CONSTANT)
    assert same(whole, longer)
    assert history == expected


def test_a_schedule_of_the_fraction_follows_the_new_number_and_says_so(tmp_path, caplog):
    caplog.set_level("INFO", "inducing")
    train_steps(tmp_path, 6, schedule="cosine")
    _, history = train_steps(tmp_path, 12, schedule="cosine")
    _, longer = train_steps(None, 12, schedule="cosine")
    assert [record[6] for record in history[6:]] == pytest.approx([record[6] for record in longer[6:]])
    assert history[:6] != longer[:6]
    assert "num_steps=12 instead of 6" in caplog.text
    assert "follow the new num_steps" in caplog.text


@pytest.mark.parametrize("progress", [True, False])
def test_a_continued_run_is_logged_and_printed_beside_a_progress_bar(tmp_path, caplog, capsys, progress):
    caplog.set_level("INFO", "inducing")
    train_steps(tmp_path, 3, **CONSTANT)
    train_steps(tmp_path, 6, **CONSTANT, progress=progress)
    assert "continuing after step 3" in caplog.text
    assert ("continuing after step 3" in capsys.readouterr().out) == progress


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "all steps are done"),
        ({"callbacks": stops_at(5)}, "a callback stopped it"),
        ({"patience": 2}, "the objective did not increase"),
    ],
)
def test_a_finished_run_says_why_and_returns_its_history(tmp_path, caplog, settings, reason):
    caplog.set_level("INFO", "inducing")
    net, history = train_steps(tmp_path, 12, **settings)
    again, same_history = train_steps(tmp_path, 12, **settings)
    assert f"is finished after step {len(history)}: {reason}" in caplog.text
    assert "continuing" not in caplog.text
    assert same(net, again)
    assert same_history == history


def test_fewer_steps(tmp_path):
    train_steps(tmp_path, 12, **CONSTANT, callbacks=stops_at(6))
    with pytest.raises(inducing.CheckpointError, match="already taken 6 steps"):
        train_steps(tmp_path, 5, **CONSTANT)
    assert len(train_steps(tmp_path, 6, **CONSTANT)[1]) == 6
    assert len(train_steps(tmp_path, 9, **CONSTANT)[1]) == 9


def test_fewer_steps_of_a_run_that_was_interrupted(tmp_path):
    def interrupt(record):
        if record.step == 6:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        train_steps(tmp_path, 12, **CONSTANT, callbacks=interrupt)
    whole, expected = train_steps(None, 8, **CONSTANT)
    shorter, history = train_steps(tmp_path, 8, **CONSTANT)
    assert same(whole, shorter)
    assert history == expected


def test_another_setting_is_refused_with_more_steps_too(tmp_path):
    train_steps(tmp_path, 3, **CONSTANT)
    with pytest.raises(inducing.CheckpointError, match="learning_rate"):
        train_steps(tmp_path, 6, **CONSTANT, learning_rate=0.5)
