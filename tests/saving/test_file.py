"""The file as a user meets it: truncated, foreign, newer, damaged, tampered with, on a full disk."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import inducing
from inducing.files import digest
from inducing.saving.file import ENTRY

FILES = Path(__file__).parent / "files"


@pytest.fixture
def path(tmp_path):
    network = inducing.models.mlp(3, 1, [5], prior="scale", inducing_points=torch.randn(6, 3))
    inducing.save((network, inducing.Gaussian()), tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def rewrite(path, change, sign=True):
    """Change the header and tensors of a file, with a new checksum or the old one."""
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()[ENTRY])
    tensors = load_file(path)
    change(header, tensors)
    if sign:
        header.pop("sha256", None)
        header["sha256"] = digest(header, tensors)
    save_file(tensors, path, {ENTRY: json.dumps(header)})


def refuses(path, reason):
    with pytest.raises(inducing.SavedModelError, match=rf"{re.escape(str(path))} cannot be loaded: .*{reason}"):
        inducing.load(path)


def test_the_header_says_what_it_is(path):
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()[ENTRY])
    assert header["format"] == 1
    assert header["library"] == version("inducing")
    network, likelihood = header["model"]["items"]
    assert network["input_shape"] == [3]
    assert network["layers"][1] == {"module": "ReLU", "arguments": {}}
    assert network["layers"][0]["arguments"]["prior"] == {
        "prior": "ScalePrior",
        "arguments": {"shape": 2.0, "rate": 2.0, "initial": 400.0},
    }
    assert likelihood["class"] == "Gaussian"


def test_the_same_model_gives_the_same_file(path):
    first = path.read_bytes()
    for _ in range(5):
        inducing.save(inducing.load(path), path)
        assert path.read_bytes() == first


def test_other_programs_read_the_tensors(path):
    network, _ = inducing.load(path)
    tensors = load_file(path)
    assert torch.equal(tensors["0/layers.0.posterior.pseudo_outputs"], network.layers[0].posterior.pseudo_outputs)


def test_the_error_is_a_value_error():
    assert issubclass(inducing.SavedModelError, ValueError)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x80\x04N.", bytes(100), b"\xff" * 100])
def test_not_a_safetensors_file(path, content):
    path.write_bytes(content)
    refuses(path, "not a model file, since it is not a complete safetensors file")


def test_truncated(path):
    content = path.read_bytes()
    for length in (*range(0, 64), *range(64, len(content), 61), len(content) - 1):
        path.write_bytes(content[:length])
        refuses(path, "not a complete safetensors file")


def test_longer_than_it_says(path):
    path.write_bytes(path.read_bytes() + b"more")
    refuses(path, "not a complete safetensors file")


def test_foreign(path):
    save_file({"weight": torch.zeros(3)}, path, {"format": "pt"})
    refuses(path, "a safetensors file that inducing.save did not write$")
    save_file({"weight": torch.zeros(3)}, path)
    refuses(path, "a safetensors file that inducing.save did not write$")


def test_a_checkpoint_is_no_model(tmp_path):
    x = torch.linspace(-1, 1, 20)[:, None]
    network = inducing.models.mlp(1, 1, [5], num_inducing=6)
    inducing.fit(network, inducing.Gaussian(), (x, x), num_steps=2, progress=False, checkpoint=tmp_path)
    refuses(next(tmp_path.glob("*.safetensors")), r"did not write \(it is a checkpoint of inducing.fit\)")


def test_newer(path):
    rewrite(path, lambda header, _: header.update(format=2, library="9.0"))
    refuses(path, r"format is 2, written by inducing '9.0'.*upgrade inducing")


@pytest.mark.parametrize("number", [None, 0, -1, 1.0, "1", True, [1]])
def test_no_format(path, number):
    rewrite(path, lambda header, _: header.update(format=number))
    refuses(path, "its format is")


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "3", "{", '{"format": 1}', "[" * 10_000, '{"format": NaN}', "9" * 5000]
)
def test_a_header_that_is_no_header(path, text):
    save_file({"weight": torch.zeros(3)}, path, {ENTRY: text})
    refuses(path, "")


def test_damaged(path):
    rewrite(path, lambda _, tensors: tensors["0/inducing_points"].add_(1), sign=False)
    refuses(path, "its checksum does not match")


def test_changed_by_hand(path):
    rewrite(path, lambda header, _: header["model"]["items"][0].update(learn_inducing_locations=False), sign=False)
    refuses(path, "its checksum does not match")


def first_layer(header):
    return header["model"]["items"][0]["layers"][0]["arguments"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda h, t: t.pop("0/inducing_points"), "the tensor 'inducing_points' is missing"),
        (lambda h, t: t.update({"0/more": torch.zeros(2)}), "the tensor 'more' is not a part of its specification"),
        (lambda h, t: t.update({"2/more": torch.zeros(2)}), "the tensor '2/more' belongs to nothing"),
        (
            lambda h, t: t.update({"0/inducing_points": torch.zeros(7, 3)}),
            r"inducing_points is float32 \(7, 3\), by the",
        ),
        (
            lambda h, t: t.update({"0/inducing_points": torch.zeros(6, 3).int()}),
            r"inducing_points is int32 \(6, 3\), by",
        ),
        (
            lambda h, t: t.update({"1/scaled_log_variance": torch.zeros(2, 3)}),
            r"scaled_log_variance of a Gaussian is float32 \(2, 3\)",
        ),
        (lambda h, t: h.update(more=1), "its header has the entries"),
        (lambda h, t: h.pop("library"), "its header has the entries"),
        (lambda h, t: h.update(model=None), "there is no object"),
        (lambda h, t: h["model"].update(object="os"), "there is no object 'os'"),
        (lambda h, t: h["model"]["items"][0].update(dtype="complex64"), "dtype cannot be 'complex64'"),
        (
            lambda h, t: h["model"]["items"][0].update(dtype="float64"),
            "is float32 .* by the specification it is float64",
        ),
        (lambda h, t: h["model"]["items"][0].update(input_shape=[-3]), "negative dimension"),
        (lambda h, t: h["model"]["items"][0].update(input_shape=[4]), "layers.0 .*rows of 3 features"),
        (lambda h, t: h["model"]["items"][0].update(layers=[]), "at least one Bayesian layer"),
        (lambda h, t: h["model"]["items"][0].update(frozen=["weight"]), "there is no parameter 'weight' to freeze"),
        (
            lambda h, t: h["model"]["items"][0].update(num_inducing=10**15),
            r"by the specification it is .*1000000000000000",
        ),
        (lambda h, t: first_layer(h).update(out_features=10**12), "1000000000000"),
        (lambda h, t: first_layer(h).update(out_features=10**30), ""),
        (lambda h, t: first_layer(h).update(out_features="5"), "Linear: out_features cannot be '5'"),
        (lambda h, t: first_layer(h).update(prior={"prior": "Evil", "arguments": {}}), "there is no prior 'Evil'"),
        (lambda h, t: first_layer(h).update(posterior="global", prior="os"), "unknown prior 'os'"),
        (lambda h, t: h["model"]["items"][0]["layers"][1].update(module="eval"), "there is no module 'eval'"),
    ],
)
def test_tampered_with(path, change, reason):
    rewrite(path, change)
    refuses(path, reason)


def test_a_missing_file_names_similar_ones(tmp_path):
    for name in ("yacht.safetensors", "model.st", "notes.txt"):
        (tmp_path / name).touch()
    with pytest.raises(FileNotFoundError, match=r"missing\.safetensors does not exist.*yacht\.safetensors$"):
        inducing.load(tmp_path / "missing.safetensors")
    with pytest.raises(FileNotFoundError, match=r"modle\.st does not exist.*model\.st$"):
        inducing.load(tmp_path / "modle.st")
    for path in (tmp_path / "unlike", tmp_path / "nowhere" / "model.st"):
        with pytest.raises(FileNotFoundError, match=r"does not exist$"):
            inducing.load(path)


def test_files_that_are_not_there_are_errors_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing"):
        inducing.load(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError):
        inducing.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        inducing.save(inducing.Gaussian(), tmp_path / "missing" / "model")


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_an_interrupted_write_leaves_the_old_file(path, moment, monkeypatch):
    before = path.read_bytes()

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, moment, interrupted)
    with pytest.raises(KeyboardInterrupt):
        inducing.save(inducing.Poisson(), path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_model_that_cannot_be_saved_leaves_the_old_file(path):
    before = path.read_bytes()
    with pytest.raises(ValueError, match="cannot be saved"):
        inducing.save(object(), path)
    assert path.read_bytes() == before


def test_another_process_with_little_memory(path, tmp_path):
    """It finds the same model there, without any class of the user's, and sizes that a file only claims cost nothing."""
    network, _ = inducing.load(str(path))
    expected = network.sample_functions(2, seed=0)(torch.ones(1, 3)).flatten().tolist()
    absurd = tmp_path / "absurd.safetensors"
    absurd.write_bytes(path.read_bytes())
    rewrite(absurd, lambda header, _: first_layer(header).update(out_features=2**36))
    script = f"""
import resource, inducing, torch
kilobytes = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1])
resource.setrlimit(resource.RLIMIT_AS, (1024 * kilobytes + 2**28,) * 2)
network, _ = inducing.load({str(path)!r})
print(network.sample_functions(2, seed=0)(torch.ones(1, 3)).flatten().tolist())
try:
    inducing.load({str(absurd)!r})
except inducing.SavedModelError as error:
    assert "68719476736" in str(error), error
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == f"{expected}\nrefused\n", done.stderr


def test_what_is_not_a_regular_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(inducing.SavedModelError, match="not a regular file"):
            inducing.load(path)


def test_nesting_without_end_is_refused(tmp_path):
    deep = []
    for _ in range(300):
        deep = [deep]
    with pytest.raises(ValueError, match="levels deep"):
        inducing.save({"a": deep}, tmp_path / "model")
    inducing.save(1, tmp_path / "model")
    rewrite(tmp_path / "model", lambda header, _: header["model"].update(value=deep))
    refuses(tmp_path / "model", "levels deep")


def test_what_is_too_large_for_the_memory_is_refused(path, monkeypatch):
    def decode(*_):
        raise MemoryError

    monkeypatch.setattr("inducing.saving.file.decode_object", decode)
    refuses(path, "MemoryError")


def test_a_network_saved_by_version_0_1_0():
    """It was saved with the outputs of its functions."""
    model = inducing.load(FILES / "network-0.1.0.safetensors")
    images = model["inputs"]
    for functions in (model["functions"], model["network"].sample_functions(2, seed=1)):
        torch.testing.assert_close(functions(images), model["expected"])
    likelihood = model["likelihood"]
    assert [(name, each.requires_grad) for name, each in likelihood.named_parameters()] == [
        ("scaled_log_excess", False)
    ]
    torch.testing.assert_close(likelihood.scale, torch.tensor([0.1, 0.2, 0.3]))
    assert (model["notes"], model["pair"][1]) == ({"a": [1, 2.5, None]}, "text")
    assert model["scale"].mean.shape == (3,)


def test_an_estimator_saved_by_version_0_1_0():
    estimator = inducing.load(FILES / "estimator-0.1.0.safetensors")
    rows = np.random.default_rng(0).normal(size=(24, 2))
    table = pd.DataFrame(rows, columns=["a", "b"]).assign(colour=["red", "blue", "green"] * 8)
    assert estimator.recipe.num_steps == 5
    np.testing.assert_allclose(estimator.predict(table)[:3], [2.8490523, 2.5643343, 2.5495899], rtol=1e-5)
