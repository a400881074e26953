"""Checkpoints that are not of this run or model are refused."""

import json
from functools import partial

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save
from torch.utils.data import DataLoader, TensorDataset

import inducing
from inducing.files import digest
from inducing.inference.checkpoint import Checkpoints
from tests.inference.checkpointed import Stop, X, Y, fit, numbers, same, stop_at


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


def test_another_jitter_is_another_run(tmp_path):
    x = torch.linspace(-1, 1, 12, dtype=torch.float64)[:, None]

    def fit(jitter):
        network = inducing.Network([inducing.GPLayer(1, 1, jitter=jitter)], inducing_points=x[:6])
        inducing.fit(network, inducing.Gaussian().double(), (x, x), num_steps=2, checkpoint=tmp_path, progress=False)

    fit(1e-6)
    with pytest.raises(inducing.CheckpointError, match="network"):
        fit(1e-1)
