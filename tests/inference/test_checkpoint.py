"""Checkpoints: continued, corrupted, of an earlier version."""

import json
import os
import warnings
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save
from torch.utils.data import TensorDataset

import inducing
from inducing.inference.checkpoint import Checkpoints
from inducing.inference.state import TrainingState
from tests.inference.checkpointed import Stop, X, Y, fit, numbers, same, stop_at


@pytest.mark.parametrize("data", [(X, Y), TensorDataset(X, Y)], ids=["tensors", "dataset"])
def test_an_interrupted_run_ends_as_an_uninterrupted_one(tmp_path, data):
    net, history = fit(tmp_path / "whole", data=data)
    for step in (3, 7, 8, 11):
        with pytest.raises(Stop):
            fit(tmp_path / "parts", data=data, callbacks=[stop_at(step)])
    continued, history_of_parts = fit(tmp_path / "parts", data=data)
    assert same(net, continued)
    assert numbers(history) == numbers(history_of_parts)


def test_a_finished_run_is_not_done_again(tmp_path):
    net, history = fit(tmp_path)
    called = []
    again, same_history = fit(tmp_path, callbacks=[called.append])
    assert not called
    assert same(net, again)
    assert history == same_history


@pytest.mark.parametrize("how", [{"patience": 2}, {"callbacks": [lambda record: record.step == 5]}])
def test_a_run_that_stopped_early_is_finished_too(tmp_path, how):
    net, history = fit(tmp_path, **how)
    assert len(history) < 12
    again, same_history = fit(tmp_path, **how)
    assert same(net, again)
    assert history == same_history


def test_a_schedule_that_is_a_function_is_known_by_its_values(tmp_path):
    with pytest.raises(Stop):
        fit(tmp_path, callbacks=[stop_at(5)], schedule=lambda progress: 1 - progress)
    assert len(fit(tmp_path, schedule=lambda progress: 1 - progress)[1]) == 12
    with pytest.raises(inducing.CheckpointError, match="with other schedule"):
        fit(tmp_path, schedule=lambda progress: 1 - progress**2)


def test_checkpoints_without_checkpoints_change_nothing(tmp_path):
    assert numbers(fit(None)[1]) == numbers(fit(tmp_path)[1])


def test_the_newest_two_are_kept_and_there_is_no_litter(tmp_path):
    fit(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != ".lock") == [
        "step-000000011.safetensors",
        "step-000000012.safetensors",
    ]


# JSON that is nested too deeply raises RecursionError, a dtype that torch does not have KeyError
DAMAGES = [
    "truncated",
    "flipped",
    "header",
    "empty",
    "foreign",
    "without header",
    "nested",
    "not JSON",
    "unknown dtype",
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_corrupt_newest_checkpoint_falls_back_to_the_one_before(tmp_path, damage):
    net, history = fit(tmp_path / "whole")
    with pytest.raises(Stop):
        fit(tmp_path / "parts", callbacks=[stop_at(8)])
    newest = sorted((tmp_path / "parts").glob("step-*"))[-1]
    content, tensors = newest.read_bytes(), load_file(newest)
    flipped = bytearray(content)
    flipped[-20] ^= 0xFF
    newest.write_bytes(
        {
            "truncated": content[:-100],
            "flipped": flipped,
            "header": content.replace(b'\\"step\\": 7', b'\\"step\\": 6'),
            "empty": b"",
            "foreign": b"hello",
            "without header": save(tensors),
            "nested": save(tensors, {"inducing": "[" * 100_000}),
            "not JSON": save(tensors, {"inducing": "hello"}),
            "unknown dtype": content.replace(b'"dtype":"F64"', b'"dtype":"E64"'),
        }[damage]
    )
    assert newest.read_bytes() != content
    with pytest.warns(
        inducing.CheckpointWarning, match=r"cannot read .*step-000000007.*; the previous checkpoint is used"
    ):
        continued, history_of_parts = fit(tmp_path / "parts")
    assert same(net, continued)
    assert numbers(history) == numbers(history_of_parts)


def test_a_file_that_cannot_be_read_is_left_alone(tmp_path, monkeypatch):
    """An error of the disk or the network says nothing about the content."""
    with pytest.raises(Stop):
        fit(tmp_path, callbacks=[stop_at(8)])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(path):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", fail)
        with pytest.raises(inducing.CheckpointError, match=r"step-000000007.* cannot be read: .*Input/output error"):
            fit(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert same(fit(tmp_path)[0], fit(None)[0])


def test_a_checkpoint_of_version_0_1_0_is_restored(tmp_path):
    """The file was written after step 10 of a run with batches of 8 rows."""
    stored = Path(__file__).parent / "files" / "checkpoint-format-2.safetensors"
    (tmp_path / "step-000000010.safetensors").write_bytes(stored.read_bytes())
    with safe_open(stored, framework="pt") as file:
        header = json.loads(file.metadata()["inducing"])
        shapes = [file.get_slice(f"state.{index:05d}").get_shape() for index in range(len(header["run"]["parameters"]))]
    state = TrainingState([torch.nn.Parameter(torch.zeros(shape)) for shape in shapes], 0.1, 20, num_layers=2)
    assert Checkpoints(tmp_path, header["run"]).restore(state)
    assert (state.step, len(state.history), state.damping, state.stopped) == (10, 10, 1.0, None)
    assert all(parameter.any() for parameter in state.parameters[:2])
    state.parameters[0].grad = torch.ones(shapes[0])
    state.optimizer.step()


def test_with_no_sound_checkpoint_training_starts_again(tmp_path):
    with pytest.raises(Stop):
        fit(tmp_path, callbacks=[stop_at(8)])
    for path in tmp_path.glob("step-*"):
        path.write_bytes(b"")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        net, _ = fit(tmp_path)
    assert ["previous checkpoint is used" in str(caught[0].message), "starts again" in str(caught[1].message)] == [
        True,
        True,
    ]
    assert same(net, fit(None)[0])
    assert len(list(tmp_path.glob("step-*"))) == 2


def test_a_checkpoint_that_is_not_a_regular_file_is_put_aside(tmp_path):
    fit(tmp_path, steps=3)
    os.mkfifo(tmp_path / "step-000000009.safetensors")
    with pytest.warns(inducing.CheckpointWarning, match="not a regular file; the previous checkpoint is used"):
        assert len(fit(tmp_path, steps=3)[1]) == 3


def test_a_run_continues_before_a_step_that_must_be_undone(tmp_path):
    """The state before the last step is in the checkpoint, too: the sixth step fails at the first try of each process."""

    def train(folder, step=0, stop=None):
        torch.manual_seed(0)
        net = inducing.models.mlp(1, 1, [5], num_inducing=6)
        steps, spoilt = [step], []

        def spoil(gradient):
            if steps[-1] == 5 and not spoilt:
                spoilt.append(True)
                return gradient * float("nan")
            return gradient

        def follow(record):
            steps.append(record.step)
            if record.step == stop:
                raise Stop

        net.inducing_points.register_hook(spoil)
        arguments = {"num_steps": 9, "checkpoint": folder, "checkpoint_seconds": 0.0, "progress": False}
        with pytest.warns(inducing.RollBackWarning, match="step 6"):
            return inducing.fit(net, inducing.Gaussian(), (X, Y), callbacks=follow, **arguments)

    with pytest.raises(Stop):
        train(tmp_path, stop=6)
    assert [record.step for record in train(tmp_path, step=5).records] == list(range(1, 10))


def test_no_warnings_in_an_ordinary_run(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(tmp_path)
