"""Checkpoints: continued, corrupted, of another run."""

import json
import os
import warnings
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save
from torch.utils.data import DataLoader, TensorDataset

import inducing
from inducing.files import digest
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


def rewrite(folder, change):
    """Change the newest checkpoint and compute its checksum anew."""
    path = sorted(folder.glob("step-*"))[-1]
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["inducing"])
    tensors = load_file(path)
    del header["sha256"]
    header = change(header, tensors) or header
    if isinstance(header, dict):
        header["sha256"] = digest(header, tensors, with_shapes=False)
    path.write_bytes(save(tensors, {"inducing": json.dumps(header)}))


def parameters(tensors):
    """The number of parameters: each has its value and three tensors of Adam."""
    return sum(name.startswith("state.") for name in tensors) // 4


def moment(kind, number, group="state"):
    """Change a tensor of Adam that belongs to the first parameter."""

    def change(header, tensors):
        name = f"{group}.{parameters(tensors) + number:05d}"
        tensors[name] = kind(tensors[name])

    return change


def removed(name):
    return lambda header, tensors: tensors.pop(name)[:0].tolist() or None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (moment(lambda t: t[:1].clone(), 1), "Adam's mean of parameter 0 is"),
        (moment(lambda t: torch.cat([t, t]), 1), "Adam's mean of parameter 0 is"),
        (moment(lambda t: t.double(), 1), "Adam's mean of parameter 0 is torch.float64"),
        (moment(lambda t: t[:1].clone(), 2), "Adam's mean square"),
        (moment(lambda t: t[:1].clone(), 2, "before"), "Adam's mean square"),
        (moment(lambda t: -1 - t, 2), "negative"),
        (moment(lambda t: t * torch.nan, 1), "NaN"),
        (moment(lambda t: t.double(), 0), "step counter"),
        (moment(lambda t: t[None].clone(), 0), "step counter"),
        (moment(lambda t: t + 100, 0), "step counter"),
        (moment(lambda t: t * torch.nan, 0), "step counter"),
        (lambda h, t: t.update({"state.00000": t["state.00000"] * torch.nan}), "parameter 0 contains NaN"),
        (lambda h, t: t.update({"state.00000": t["state.00000"].half()}), "parameter 0 is torch.float16"),
        (lambda h, t: t.update({"before.00000": t["before.00000"][:1].clone()}), "parameter 0 is"),
        (lambda h, t: t.update({"history": t["history"][:, :-2].clone()}), "history"),
        (lambda h, t: t.update({"history": t["history"][:-1].clone()}), "history"),
        (lambda h, t: t.update({"history": t["history"] * torch.inf}), "history"),
        (lambda h, t: t.update({"state.99999": torch.zeros(1)}), "the tensors"),
        (removed("state.00001"), "tensors for"),
        (removed("before.00001"), "tensors for"),
        (removed("history"), "the tensors"),
        (lambda h, t: h.update(step="3"), "step cannot be 3"),
        (lambda h, t: h.update(step=5), "steps"),
        (lambda h, t: h.update(step=True), "step cannot be True"),
        (lambda h, t: h.update(damping=0.0), "damping"),
        (lambda h, t: h.update(damping=None), "damping"),
        (lambda h, t: h.update(failures=-1), "failures"),
        (lambda h, t: h.update(stopped="tired"), "stopped"),
        (lambda h, t: h.update(stopped=[]), "stopped"),
        (lambda h, t: h.update(more=1), "entries"),
        (lambda h, t: h.pop("failures") and None, "entries"),
        (lambda h, t: h.pop("run") and None, "entries"),
        (lambda h, t: h.update(run=[1]), "entries"),
        (lambda h, t: h.update(run={}), "another run"),
        (lambda h, t: h.update(format=3), "has format 3"),
        (lambda h, t: h.update(format="2"), "no header"),
        (lambda h, t: [1, 2], "no header"),
        (lambda h, t: "text", "no header"),
    ],
)  # fmt: skip
def test_a_whole_file_that_is_not_of_this_run_is_refused_and_changes_nothing(tmp_path, change, message):
    fit(tmp_path, steps=3)
    rewrite(tmp_path, change)
    torch.manual_seed(0)
    net, untouched = (inducing.models.mlp(1, 1, [5], prior="scale", num_inducing=6) for _ in range(2))
    untouched.load_state_dict(net.state_dict())
    settings = {"num_steps": 5, "batch_size": 8, "checkpoint": tmp_path, "progress": False}
    with pytest.raises(inducing.CheckpointError, match=message):
        inducing.fit(net, inducing.Gaussian(), (X, Y), **settings)
    assert same(net, untouched)


def test_a_checkpoint_that_is_not_a_regular_file_is_put_aside(tmp_path):
    fit(tmp_path, steps=3)
    os.mkfifo(tmp_path / "step-000000009.safetensors")
    with pytest.warns(inducing.CheckpointWarning, match="not a regular file; the previous checkpoint is used"):
        assert len(fit(tmp_path, steps=3)[1]) == 3


def shaken(x, generator, scale):
    return x + scale * torch.randn(x.shape, generator=generator)


def test_a_run_with_augmentation_continues_with_the_same_one_only(tmp_path):
    with pytest.raises(Stop):
        fit(tmp_path, callbacks=[stop_at(5)], augment=partial(shaken, scale=torch.tensor(0.1)))
    with pytest.raises(inducing.CheckpointError, match=r"with other augment \(shaken\(scale=tensor .* and not shaken"):
        fit(tmp_path, augment=partial(shaken, scale=torch.tensor(0.2)))
    net, _ = fit(tmp_path, augment=partial(shaken, scale=torch.tensor(0.1)))
    assert same(net, fit(None, augment=partial(shaken, scale=torch.tensor(0.1)))[0])


def test_another_run_is_refused(tmp_path):
    fit(tmp_path)
    with pytest.raises(
        inducing.CheckpointError,
        match=r"another run with other learning_rate \(0.03 and not 0.5\), seed \(0 and not 1\)",
    ):
        fit(tmp_path, steps=20, learning_rate=0.5, seed=1)
    with pytest.raises(inducing.CheckpointError, match="with other data"):
        fit(tmp_path, data=(X, 2 * Y))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"activation": torch.nn.Tanh}, "with other network"),
        ({"prior": "neal"}, "with other network"),
        ({"noise": 0.5}, "with other parameters, constants"),
    ],
)
def test_another_model_is_refused(tmp_path, model, message):
    """Activation, prior and fixed noise have no parameters, and make another run all the same."""

    def train(prior="standard", activation=torch.nn.ReLU, noise=None):
        net = inducing.models.mlp(1, 1, [5], prior=prior, activation=activation, num_inducing=6)
        likelihood = inducing.Gaussian(noise or 0.1, learn_variance=noise is None)
        inducing.fit(net, likelihood, (X, Y), num_steps=3, checkpoint=tmp_path, progress=False)

    train()
    with pytest.raises(inducing.CheckpointError, match=message):
        train(**model)


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


def test_two_processes_cannot_share_a_folder(tmp_path):
    with (
        Checkpoints(tmp_path, {}).locked(),
        pytest.raises(inducing.CheckpointError, match="another process is training in"),
    ):
        fit(tmp_path)


def test_a_loader_whose_order_cannot_be_repeated_is_refused(tmp_path):
    loader = DataLoader(TensorDataset(X, Y), batch_size=5, shuffle=True)
    with pytest.raises(inducing.CheckpointError, match=r"DataLoader\(\.\.\., generator=torch\.Generator\(\)\)"):
        fit(tmp_path, data=loader)
    loader = DataLoader(TensorDataset(X, Y), batch_size=5, shuffle=True, generator=torch.Generator())
    with pytest.raises(Stop):
        fit(tmp_path, data=loader, callbacks=[stop_at(5)])
    assert numbers(fit(tmp_path, data=loader)[1]) == numbers(fit(None, data=loader)[1])


def test_no_warnings_in_an_ordinary_run(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(tmp_path)
