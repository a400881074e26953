"""Files that are wrong in ways nobody thought of: the documented error or a sound model, and nothing is executed."""

import copy
import json
import sys

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import inducing
from inducing.files import digest
from inducing.saving.file import ENTRY

FUZZ = settings(deadline=None, derandomize=True, database=None, phases=[Phase.generate])
# what happens when code is made, run, fetched or unpickled, or a process started
FORBIDDEN = ("compile", "exec", "import", "marshal.", "pickle.", "ctypes.", "subprocess.", "socket.", "os.system")
# what happens to the file system
WRITING = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "shutil.")
watched: list[list] = []


def _watch(event, arguments):
    if watched and (event.startswith(FORBIDDEN + WRITING) or event in ("os.exec", "os.fork", "os.posix_spawn")):
        watched[0].append((event, str(arguments)[:200]))


sys.addaudithook(_watch)


def attempt(path):
    """Load a file; what is returned is a model, or None where the file was refused."""
    model, events = load_watched(path)
    if events:
        # torch imports parts of itself when it first needs them; what a file did, it would do each time
        model, events = load_watched(path)
    assert events == []
    return model


def load_watched(path):
    watched.append([])
    try:
        return inducing.load(path), watched[0]
    except inducing.SavedModelError:
        return None, watched[0]
    finally:
        watched.clear()


def test_the_watch_sees_what_is_executed(tmp_path, monkeypatch):
    inducing.save(inducing.Poisson(), tmp_path / "model")
    assert attempt(tmp_path / "model") is not None
    monkeypatch.setattr("inducing.saving.file.decode_object", lambda *_: eval("1"))
    with pytest.raises(AssertionError, match="compile"):
        attempt(tmp_path / "model")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A file with something of everything."""
    torch.manual_seed(0)
    images = torch.randn(5, 1, 6, 6)
    kernel = inducing.kernels.Matern52() + inducing.kernels.Linear() * inducing.kernels.ArcCosine()
    network = inducing.Network(
        [
            inducing.Conv2d(1, 2, 3, padding=1, prior="spatial-iw"),
            inducing.Residual(
                nn.LeakyReLU(0.1), inducing.Conv2d(2, 2, 1, posterior="factorised"), shortcut=nn.Identity()
            ),
            nn.MaxPool2d(2),
            nn.Flatten(),
            inducing.Linear(18, 3, prior="scale", posterior=inducing.LocalInducing(4)),
            inducing.GPLayer(3, 3, kernel, posterior="coupled", mean="identity", num_features=4),
        ],
        inducing_points=images,
    )
    model = {
        "network": network,
        "likelihood": inducing.StudentT([0.1, 0.2, 0.3]),
        "functions": network.sample_functions(2),
        "scale": inducing.Standardiser.of(torch.randn(9, 3)),
        "schema": {"columns": ["a", "b"]},
    }
    path = tmp_path_factory.mktemp("fuzz") / "model.safetensors"
    inducing.save(model, path)
    # everything that is imported on first use is imported here
    inducing.load(path)["network"](images)
    for content in (path.read_bytes()[:-1], b""):
        broken = path.with_name("broken")
        broken.write_bytes(content)
        with pytest.raises(inducing.SavedModelError):
            inducing.load(broken)
    return path


@pytest.fixture(scope="module")
def parts(original):
    with safe_open(original, framework="pt") as file:
        header = json.loads(file.metadata()[ENTRY])
    del header["sha256"]
    return header, load_file(original)


def write(path, header, tensors):
    header = {**header, "sha256": digest(header, tensors)}
    save_file(tensors, path, {ENTRY: json.dumps(header)})


def places(node, path=()):
    """Every place in a JSON value."""
    yield path
    if isinstance(node, dict | list):
        for key in node if isinstance(node, dict) else range(len(node)):
            yield from places(node[key], (*path, key))


KNOWN = "Network Linear Conv2d GPLayer Residual ReLU Flatten GlobalInducing DSVI OptimalInducing NealPrior SpatialIWPrior Sum Product"
OTHERS = "Gaussian Categorical float64 exact tuple value eval os.system __class__ builtins.exec ../../etc/passwd"
names = st.sampled_from([*KNOWN.split(), *OTHERS.split(), ""])
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-3, 40)
    | st.sampled_from([2**31, 2**62, 2**63, -(2**63), 10**30])
    | st.floats(allow_nan=False, allow_infinity=False)
    | names
    | st.text(max_size=5)
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=6
)


@settings(FUZZ, max_examples=120)
@given(data=st.data())
def test_headers_that_were_changed_in_a_few_places(original, parts, data):
    header, tensors = copy.deepcopy(parts[0]), parts[1]
    for _ in range(data.draw(st.integers(1, 3))):
        *above, last = data.draw(st.sampled_from([place for place in places(header) if place]))
        node = header
        for key in above:
            node = node[key]
        kind = data.draw(st.sampled_from(["replace", "remove", "copy"]))
        if kind == "remove":
            del node[last]
        elif kind == "copy":
            # of another place: a likely value in an unlikely one
            other = header
            for key in data.draw(st.sampled_from(list(places(header)))):
                other = other[key]
            node[last] = copy.deepcopy(other)
        else:
            node[last] = data.draw(values)
    path = original.with_name("changed")
    write(path, header, tensors)
    model = attempt(path)
    network = model.get("network") if isinstance(model, dict) else None
    sizes = [node for place in places(header) for node in [_at(header, place)] if type(node) is int]
    if isinstance(network, inducing.Network) and max(sizes) <= 100:
        # what was accepted is whole
        assert network.draw(2).function is not None


def _at(node, place):
    for key in place:
        node = node[key]
    return node


@settings(FUZZ, max_examples=150)
@given(model=values | st.fixed_dictionaries({"object": names | st.just("dict"), "items": values}))
def test_headers_of_any_json(original, parts, model):
    path = original.with_name("any")
    write(path, {**parts[0], "model": model}, {})
    attempt(path)


@settings(FUZZ, max_examples=50)
@given(data=st.data())
def test_tensors_that_were_changed(original, parts, data):
    header, tensors = parts[0], dict(parts[1])
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(sorted(tensors)))
        dtype = data.draw(
            st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.bool])
        )
        shape = data.draw(st.lists(st.integers(0, 4), max_size=4))
        change = data.draw(st.sampled_from(["remove", "rename", "replace", "cast"]))
        tensor = tensors.pop(name)
        if change == "rename":
            tensors[data.draw(st.text(max_size=4)) + name] = tensor
        elif change == "replace":
            tensors[name] = torch.ones(shape).to(dtype)
        elif change == "cast":
            tensors[name] = tensor.to(dtype)
    path = original.with_name("tensors")
    write(path, header, tensors)
    attempt(path)


@settings(FUZZ, max_examples=150)
@given(content=st.binary(max_size=200), length=st.integers(0, 220) | st.none())
def test_any_bytes(original, content, length):
    path = original.with_name("bytes")
    path.write_bytes(content if length is None else length.to_bytes(8, "little") + content)
    assert attempt(path) is None


def test_truncations(original):
    content = original.read_bytes()
    path = original.with_name("truncated")
    for length in range(0, len(content), 97):
        path.write_bytes(content[:length])
        assert attempt(path) is None


def flipped(original, bits):
    content = original.read_bytes()
    expected = torch.cat([t.flatten().double() for t in inducing.load(original)["network"].state_dict().values()])
    path = original.with_name("flipped")
    for bit in bits:
        changed = bytearray(content)
        changed[bit // 8 % len(content)] ^= 1 << bit % 8
        path.write_bytes(changed)
        model = attempt(path)
        if model is not None:
            # the bit meant nothing
            found = torch.cat([t.flatten().double() for t in model["network"].state_dict().values()])
            assert torch.equal(found, expected), bit


def test_flipped_bits(original):
    flipped(original, range(0, 8 * original.stat().st_size, 251))


@pytest.mark.slow
def test_many_flipped_bits(original):
    flipped(original, range(0, 8 * original.stat().st_size, 37))
