"""Your own classes: registered, trained, saved and loaded; refused where they are not registered."""

import importlib
import inspect
import json
import pkgutil
import sys
from dataclasses import dataclass

import pytest
import torch
from safetensors import safe_open
from torch import nn

import inducing
from inducing.nn.draw import Function
from inducing.nn.kernels import Matern32
from inducing.nn.likelihoods import Gaussian
from inducing.nn.posteriors import GlobalInducing
from inducing.nn.posteriors.base import WeightPosterior
from inducing.nn.priors import NealPrior
from inducing.nn.priors.base import Prior
from inducing.saving.file import ENTRY
from inducing.saving.registry import ATTRIBUTES, CLASSES, KINDS

X = torch.linspace(-2, 2, 60).sin().reshape(20, 3)


@pytest.fixture(autouse=True)
def _own_tables(monkeypatch):
    for kind, known in CLASSES.items():
        monkeypatch.setitem(CLASSES, kind, dict(known))


@dataclass(frozen=True)
class WidePrior(Prior):
    factor: float = 1.0

    def build(self, layout):
        return NealPrior().build(layout)


@dataclass(frozen=True)
class MyPosterior(WeightPosterior):
    log_precision: float | None = None
    needs_inducing = True

    def build_weights(self, context):
        return GlobalInducing(log_precision=self.log_precision).build_weights(context)


@dataclass(frozen=True)
class Rough(Matern32):
    name: str = "rough"


class Scaled(nn.Module):
    def __init__(self, factor: float, inner: nn.Module, shifts: tuple[float, ...] = ()):
        super().__init__()
        self.factor, self.inner, self.shifts = factor, inner, shifts
        self.register_buffer("offset", torch.rand(5))

    def forward(self, x):
        return self.inner(self.factor * x + self.offset + sum(self.shifts))


class Tempered(Gaussian):
    def __init__(self, temperature: float, num_levels: int = 2):
        super().__init__(0.5)
        self.temperature, self.num_levels = temperature, num_levels
        self.levels = nn.Parameter(torch.zeros(num_levels, 2))
        self.register_buffer("count", torch.tensor(3))

    def log_prob(self, outputs, y):
        return super().log_prob(outputs, y) / self.temperature + 0 * self.levels.sum()


class Dense(inducing.Linear):
    pass


def everything():
    layers = [
        inducing.Linear(3, 5, prior=WidePrior(2.0), posterior=MyPosterior(-1.0)),
        Scaled(0.5, nn.Tanh(), (0.1, 0.2)),
        Dense(5, 5),
        inducing.GPLayer(5, 1, Rough(0.3, name="x") + inducing.kernels.Linear(), num_features=8),
    ]
    return inducing.Network(layers, inducing_points=X[:6])


CLASSES_OF_MINE = (WidePrior, MyPosterior, Rough, Scaled, Tempered, Dense)


def test_networks_and_functions_with_classes_of_ones_own(tmp_path):
    for cls in CLASSES_OF_MINE:
        assert inducing.register(cls) is cls
    network, likelihood = everything(), Tempered(2.0, 4)
    inducing.fit(network, likelihood, (X, X[:, :1]), num_steps=3, progress=False)
    functions = network.sample_functions(3)
    inducing.save((network, likelihood, functions), tmp_path / "model")
    loaded, loaded_likelihood, loaded_functions = inducing.load(tmp_path / "model")
    assert repr(loaded) == repr(network)
    assert type(loaded.layers[1]) is Scaled
    assert loaded.layers[1].shifts == (0.1, 0.2)
    assert torch.equal(loaded.layers[1].offset, network.layers[1].offset)
    for each in (loaded.sample_functions(3), loaded_functions):
        assert torch.equal(each(X), functions(X))
    assert loaded_likelihood.temperature == 2.0
    assert torch.equal(loaded_likelihood.levels, likelihood.levels)
    assert loaded_likelihood.count == 3
    outputs = functions(X)
    assert torch.equal(loaded_likelihood.log_prob(outputs, X[:, :1]), likelihood.log_prob(outputs, X[:, :1]))


@pytest.mark.parametrize("cls", CLASSES_OF_MINE)
def test_classes_that_are_not_registered_are_neither_saved_nor_loaded(cls, tmp_path):
    for each in CLASSES_OF_MINE:
        inducing.register(each)
    model = (everything(), Tempered(2.0))
    inducing.save(model, tmp_path / "model")
    (kind,) = (kind for kind, known in CLASSES.items() if known.get(cls.__name__) is cls)
    del CLASSES[kind][cls.__name__]
    with pytest.raises(ValueError, match=rf"cannot be saved.*inducing.register\({cls.__name__}\)"):
        inducing.save(model, tmp_path / "other")
    with pytest.raises(inducing.SavedModelError, match=rf"there is no {kind} '{cls.__name__}'.*call inducing.register"):
        inducing.load(tmp_path / "model")


def test_a_file_imports_nothing(tmp_path, monkeypatch):
    """The class is defined in a module that could be imported; it is not."""
    (tmp_path / "evil.py").write_text(
        "import inducing, torch\n"
        "@inducing.register\nclass Evil(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    evil = importlib.import_module("evil")
    inducing.save(inducing.Network([inducing.Linear(3, 2), evil.Evil()], num_inducing=3), tmp_path / "model")
    monkeypatch.delitem(sys.modules, "evil")
    del CLASSES["module"]["Evil"]
    with pytest.raises(inducing.SavedModelError, match="Evil"):
        inducing.load(tmp_path / "model")
    assert "evil" not in sys.modules
    again = importlib.import_module("evil")
    assert type(inducing.load(tmp_path / "model").layers[1]) is again.Evil


def test_arguments_of_a_file_are_compared_with_the_annotations(tmp_path):
    inducing.register(Scaled)
    network = inducing.Network([inducing.Linear(3, 5), Scaled(0.5, nn.Tanh())], num_inducing=3)
    for name, wrong in (("factor", "0.5"), ("factor", True), ("shifts", 3), ("shifts", ("a",)), ("inner", NealPrior())):
        given = getattr(network.layers[1], name)
        # not by setattr, which refuses all but modules in the place of a module
        network.layers[1]._modules.pop(name, None)
        network.layers[1].__dict__[name] = wrong
        with pytest.raises(ValueError, match=f"Scaled: {name} cannot be"):
            inducing.save(network, tmp_path / "model")
        del network.layers[1].__dict__[name]
        setattr(network.layers[1], name, given)


def test_arguments_must_be_kept_as_attributes(tmp_path):
    @inducing.register
    class Forgetful(nn.Module):
        def __init__(self, slope: float = 0.5):
            super().__init__()
            self.s = slope

        def forward(self, x):
            return self.s * x

    network = inducing.Network([inducing.Linear(3, 5), Forgetful()], num_inducing=3)
    with pytest.raises(ValueError, match=r"layers.1 cannot be saved.*'slope'.*attribute of the same name"):
        inducing.save(network, tmp_path / "model")


def test_tensors_must_be_buffers(tmp_path):
    @inducing.register
    class Shift(nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = torch.ones(5)

        def forward(self, x):
            return x + self.shift

    network = inducing.Network([inducing.Linear(3, 5), Shift()], num_inducing=3)
    with pytest.raises(ValueError, match=r"layers.1 keeps a tensor.*register_buffer"):
        inducing.save(network, tmp_path / "model")


def test_a_likelihood_that_was_resized_is_refused_when_it_is_saved(tmp_path):
    inducing.register(Tempered)
    likelihood = Tempered(2.0)
    likelihood.levels = nn.Parameter(torch.zeros(3, 2))
    message = (
        r"levels of a Tempered is float32 \(3, 2\), by the specification it is float32 \(2, 2\).*argument for its size"
    )
    with pytest.raises(ValueError, match=message):
        inducing.save(likelihood, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_likelihood_whose_class_has_changed_is_refused_when_it_is_loaded(tmp_path, monkeypatch):
    inducing.register(Tempered)
    inducing.save(Tempered(2.0), tmp_path / "model")
    before = Tempered.__init__
    monkeypatch.setattr(Tempered, "__init__", lambda self, temperature, num_levels=2: before(self, temperature, 3))
    with pytest.raises(inducing.SavedModelError, match=r"levels .* is float32 \(2, 2\), by .* float32 \(3, 2\)"):
        inducing.load(tmp_path / "model")


def test_a_function_of_ones_own(tmp_path):
    @inducing.register
    @dataclass(frozen=True, eq=False)
    class Halved(Function):
        weights: torch.Tensor

        def __call__(self, x):
            return x @ self.weights / 2

    functions = inducing.FunctionSamples(Halved(torch.rand(2, 3, 1)), (3,), torch.float32)
    inducing.save(functions, tmp_path / "model")
    assert torch.equal(inducing.load(tmp_path / "model")(X), functions(X))


def test_the_same_class_may_be_defined_again():
    """As in a notebook, where a cell is run twice."""
    for _ in range(2):
        cls = type("Again", (nn.Module,), {"__module__": __name__})
        assert inducing.register(cls) is cls
    assert CLASSES["module"]["Again"] is cls


@pytest.mark.parametrize("name", ["ReLU", "Linear", "Residual", "Sequential"])
def test_names_of_the_library_are_taken(name):
    with pytest.raises(ValueError, match="taken"):
        inducing.register(type(name, (nn.Module,), {}))


@pytest.mark.parametrize("name", ["Network", "dict", "value"])
def test_names_of_objects_are_taken(name):
    methods = {"to_state": lambda self: None, "from_state": classmethod(lambda cls: None)}
    with pytest.raises(ValueError, match="taken"):
        inducing.register(type(name, (), methods))


def test_what_cannot_be_registered():
    class Anything:
        pass

    class Many(nn.Module):
        def __init__(self, *sizes: int):
            super().__init__()

    with pytest.raises(TypeError, match="Derive it from Prior"):
        inducing.register(Anything)
    with pytest.raises(TypeError, match="Name each argument"):
        inducing.register(Many)


def subclasses(cls):
    return set(cls.__subclasses__()).union(*map(subclasses, cls.__subclasses__()))


@pytest.mark.parametrize("kind", ["prior", "posterior", "kernel", "function", "likelihood"])
def test_every_concrete_class_of_the_library_is_registered(kind):
    # the baseline of the experiments is not saved
    packages = (inducing.nn, inducing.inference, inducing.prediction)
    for package in packages:
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    # these hold a generator, and the last two are made for predictions
    resampling = {"JointProcess", "Process", "ReparameterisedAffine", "LogScale", "Blended"}
    found = {
        cls
        for cls in subclasses(KINDS[kind])
        if cls.__module__.startswith(tuple(package.__name__ for package in packages))
        and not inspect.isabstract(cls)
        and cls.__name__ not in resampling
    }
    assert set(CLASSES[kind].values()) == found


def test_likelihoods_of_the_library_have_no_arguments_in_a_file(tmp_path):
    inducing.save(inducing.Gaussian(), tmp_path / "model")
    with safe_open(tmp_path / "model", framework="pt") as file:
        assert "arguments" not in json.loads(file.metadata()[ENTRY])["model"]
    assert ATTRIBUTES[inducing.Gaussian] == {}
