"""Mutants of model files and checkpoints, with valid checksums: each is refused with a clear error, or is a sound model.

As a script it tries many of them in this process, with limits on memory and time for each: mutants.py FIRST LAST. It prints
the number of the mutant before each, so that a crash names it, and a summary as JSON in the end.
"""

import copy
import json
import random
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import inducing
from inducing.estimators.predictions import Predictions
from inducing.files import digest
from inducing.saving.file import ENTRY

MEMORY = 500 * 2**20
# of the processor, so that other work on the machine does not count
SECONDS = 2.0
NAMES = [
    "Network",
    "Linear",
    "Conv2d",
    "GPLayer",
    "Residual",
    "ReLU",
    "Flatten",
    "Sequential",
    "GlobalInducing",
    "DSVI",
    "OptimalInducing",
    "NealPrior",
    "ScalePrior",
    "SpatialIWPrior",
    "Sum",
    "Product",
    "Gaussian",
    "Categorical",
    "StudentT",
    "Poisson",
    "float64",
    "float32",
    "exact",
    "identity",
    "tuple",
    "dict",
    "value",
    "Tensor",
    "FunctionSamples",
    "Standardiser",
    "BNNRegressor",
    "DeepGPClassifier",
    "eval",
    "os.system",
    "__class__",
    "<U200000000",
    "object",
    "callback",
]
NUMBERS = [-1, 0, 1, 2, 3, 7, 100, 2**31, 2**62, 2**63, 10**30, 0.0, -0.5, 0.5, 1e-300, 1e300, 1.5]
SHAPES = [(), (0,), (1,), (2,), (3, 3), (2, 0), (1, 2, 3), (100,)]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int64, torch.bool]
VALUES = [0.0, 1.0, -1.0, float("nan"), float("inf"), 1e30]
UNCLEAR = (KeyError, AttributeError, IndexError, RecursionError, MemoryError, AssertionError, ZeroDivisionError)
# what using a model may raise besides: its numbers are finite, but too large or too small to work with
NUMERICAL = (inducing.FactorisationError, inducing.DivergenceError)


class TooSlow(BaseException):
    """The time of a mutant is over; nothing catches this on its way."""


class Subject:
    """A file to make mutants of."""

    def __init__(self, name, path, entry):
        self.name, self.entry = name, entry
        with safe_open(path, framework="pt") as opened:
            self.header = json.loads(opened.metadata()[entry])
        del self.header["sha256"]
        self.tensors = load_file(path)

    def write(self, path, header, tensors):
        checksum = digest(header, tensors, with_shapes=self.entry == ENTRY)
        if isinstance(header, dict):
            header = {**header, "sha256": checksum}
        save_file(tensors, path, {self.entry: json.dumps(header)})


def blend(folder):
    """The file of several models."""
    rows = np.random.default_rng(0).normal(size=(12, 3))
    table = pd.DataFrame(rows, columns=["a", "b", "c"]).assign(colour=["red", "blue", "green"] * 4)
    small = {"max_steps": 2, "n_samples": 3, "likelihood": "gaussian"}
    members = {name: inducing.BNNRegressor((size,), **small) for name, size in (("narrow", 2), ("wide", 4))}
    model = inducing.AutoRegressor(members, weights={"narrow": 1, "wide": 2}, random_state=0).fit(table, rows[:, 0])
    inducing.save(model, folder / "original")
    return Subject("blend", folder / "original", ENTRY)


def subjects(folder):
    """One file of each kind."""
    torch.manual_seed(0)
    rows = np.random.default_rng(0).normal(size=(12, 3))
    table = pd.DataFrame(rows, columns=["a", "b", "c"]).assign(colour=["red", "blue", "green"] * 4)
    small = {"max_steps": 2, "n_samples": 3, "random_state": 0}
    x = torch.randn(6, 3)
    network = inducing.models.mlp(3, 2, [4], inducing_points=x, prior="scale")
    deep = inducing.models.deep_gp(3, 1, 2, inducing_points=x)
    models = {
        "pair": (network, inducing.Gaussian([0.1, 0.2])),
        "everything": everything(),
        "functions": network.sample_functions(2),
        "deep functions": deep.sample_functions(2),
        "exact regressor": inducing.BNNRegressor((4,), **small).fit(table, rows[:, 0]),
        "regressor": inducing.BNNRegressor((4,), num_inducing=5, **small).fit(rows, rows[:, :2]),
        "classifier": inducing.BNNClassifier((4,), num_inducing=5, **small).fit(rows, ["x", "y", "z"] * 4),
        "deep classifier": inducing.DeepGPClassifier(num_inducing=5, **small).fit(table, rows[:, 0] > 0),
    }
    found = []
    for name, model in models.items():
        inducing.save(model, folder / "original")
        found.append(Subject(name, folder / "original", ENTRY))
    fit(folder / "run", 3)
    found += [Subject("checkpoint", sorted((folder / "run").glob("step-*"))[-1], "inducing")] * 2
    return found


def everything():
    """A model with something of everything."""
    images = torch.randn(5, 1, 6, 6)
    kernel = inducing.kernels.Matern52() + inducing.kernels.Linear() * inducing.kernels.ArcCosine()
    network = inducing.Network(
        [
            inducing.Conv2d(1, 2, 3, padding=1, prior="spatial-iw"),
            inducing.Residual(nn.LeakyReLU(0.1), inducing.Conv2d(2, 2, 1, posterior="factorised")),
            nn.MaxPool2d(2),
            nn.Flatten(),
            inducing.Linear(18, 3, prior="scale", posterior=inducing.LocalInducing(4)),
            inducing.GPLayer(3, 3, kernel, posterior="coupled", mean="identity", num_features=4),
        ],
        inducing_points=images,
    )
    scale = inducing.Standardiser.of(torch.randn(9, 3))
    return {"network": network, "likelihood": inducing.StudentT([0.1, 0.2, 0.3]), "scale": scale, "columns": ["a", "b"]}


def fit(folder, num_steps):
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 10)[:, None]
    network = inducing.models.mlp(1, 1, [3], num_inducing=4)
    settings = {"num_steps": num_steps, "num_samples": 1, "checkpoint": folder, "progress": False}
    inducing.fit(network, inducing.Gaussian(), (x, x.sin()), schedule="constant", early_samples=None, **settings)
    return network


def places(node, path=()):
    yield path
    if isinstance(node, dict | list):
        for key in node if isinstance(node, dict) else range(len(node)):
            yield from places(node[key], (*path, key))


def at(node, place):
    for key in place:
        node = node[key]
    return node


def value(choice):
    """Any small JSON value."""
    kind = choice.randrange(8)
    if kind < 3:
        return choice.choice(NUMBERS)
    if kind < 5:
        return choice.choice(NAMES)
    return choice.choice([None, True, False, "", [], {}, [1], [[]], {"a": 1}, ["a"] * 3, "x" * 1000, [[[[0]]]]])


def mutate_header(header, choice):
    found = [place for place in places(header) if place]
    if "run" in header and choice.random() < 0.7:
        # what identifies the run is most of a checkpoint's header, and is compared as a whole
        found = [place for place in found if place[0] != "run"] or found
    *above, last = choice.choice(found)
    node = at(header, above)
    kind = choice.randrange(5)
    if kind == 0:
        del node[last]
    elif kind == 1:
        # of another place: a likely value in an unlikely one
        node[last] = copy.deepcopy(at(header, choice.choice(list(places(header)))))
    elif kind == 2 and isinstance(node, dict):
        node[choice.choice([*NAMES, *node])] = value(choice)
    elif kind == 3 and type(node[last]) in (int, float):
        node[last] += choice.choice([-1, 1, 0.5])
    else:
        node[last] = value(choice)


def mutate_tensors(tensors, choice):
    if not tensors:
        return
    name = choice.choice(sorted(tensors))
    tensor = tensors[name]
    kind = choice.randrange(7)
    if kind == 0:
        del tensors[name]
    elif kind == 1:
        tensors[choice.choice([f"{name}x", "state/more", "history", name[1:]])] = tensors.pop(name)
    elif kind == 2:
        tensors[name] = torch.ones(choice.choice(SHAPES)).to(choice.choice(DTYPES))
    elif kind == 3:
        tensors[name] = tensor.to(choice.choice(DTYPES))
    elif kind == 4:
        other = choice.choice(sorted(tensors))
        tensors[name], tensors[other] = tensors[other], tensor
    elif kind == 5 and tensor.ndim:
        tensors[name] = torch.cat([tensor, tensor]) if choice.random() < 0.5 else tensor[1:].clone()
    else:
        changed = tensor.flatten().clone()
        changed[: choice.choice([1, len(changed)])] = torch.tensor(choice.choice(VALUES)).to(tensor.dtype)
        tensors[name] = changed.view(tensor.shape)


def attempt(number, subject, folder):
    """Make a mutant and try it; return what became of it in a word, and raise where that is not allowed."""
    choice = random.Random(number)
    header, tensors = copy.deepcopy(subject.header), dict(subject.tensors)
    for _ in range(choice.randint(1, 3)):
        if choice.random() < 0.6 and len(list(places(header))) > 1:
            mutate_header(header, choice)
        else:
            mutate_tensors(tensors, choice)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if subject.entry == "inducing":
            return try_checkpoint(subject, header, tensors, folder)
        subject.write(folder / "mutant", header, tensors)
        return try_model(folder / "mutant", header)


def try_model(path, header):
    try:
        model = inducing.load(path)
    except inducing.SavedModelError as error:
        if isinstance(error.__cause__, UNCLEAR):
            raise
        return "refused"
    sizes = [at(header, place) for place in places(header) if type(at(header, place)) is int]
    if max(sizes) >= 2**31:
        # a setting, such as the number of samples, that was asked for and would be paid for
        return "large"
    try:
        outputs = list(use(model))
    except NUMERICAL:
        return "numerical"
    return "sound" if all(torch.isfinite(output).all() for output in outputs) else "not finite"


def use(model):
    """Everything that a loaded model gives."""
    if isinstance(model, tuple | dict):
        for part in model.values() if isinstance(model, dict) else model:
            yield from use(part)
    elif isinstance(model, inducing.Network):
        if model.optimal_last is None:
            yield model.sample_functions(2)(torch.zeros(2, *model.input_shape, dtype=model.dtype))
    elif isinstance(model, inducing.FunctionSamples):
        yield model(torch.zeros(2, *model.input_shape, dtype=model.dtype))
    elif isinstance(model, inducing.Standardiser):
        yield model.apply(torch.zeros(2, len(model.mean)))
    elif isinstance(model, Predictions):
        names = model.input_names or [f"x{index}" for index in range(model.n_features_in_)]
        columns = {} if model.schema_ is None else {c.name: getattr(c, "categories", ()) for c in model.schema_.columns}
        rows = {name: list(columns.get(name, ())[:1] or [0.1]) * 2 for name in names}
        table = pd.DataFrame(rows) if model.input_names else np.zeros((2, model.n_features_in_))
        model.predict(table)
        yield torch.as_tensor(model.predict_distribution(table).mean)
        yield torch.as_tensor(model.sample_functions(2)(table))


def try_checkpoint(subject, header, tensors, folder):
    run = Path(tempfile.mkdtemp(dir=folder))
    subject.write(run / "step-000000003.safetensors", header, tensors)
    try:
        network = fit(run, 5)
    except inducing.CheckpointError:
        return "refused"
    except NUMERICAL:
        return "numerical"
    if list(run.glob("corrupt-*")):
        return "put aside"
    return "sound" if all(torch.isfinite(each).all() for each in network.parameters()) else "not finite"


def limit_memory():
    """Let this process grow by so much, and no more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)


def alarm(*_):
    raise TooSlow


def main(first, last):
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    found = subjects(folder)
    for subject in found:
        # what is imported and allocated once is not a mutant's
        subject.write(folder / "mutant", subject.header, subject.tensors)
        if subject.entry != "inducing":
            list(use(inducing.load(folder / "mutant")))
    limit_memory()
    signal.signal(signal.SIGPROF, alarm)
    counts, faults, slowest = Counter(), [], (0.0, None)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(first, last):
        subject = found[number % len(found)]
        sys.stderr.write(f"{number}\n")
        sys.stderr.flush()
        start = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            outcome = attempt(number, subject, folder)
        except (Exception, TooSlow) as error:
            outcome = "fault"
            faults.append(f"{number} ({subject.name}): {type(error).__name__} {error} <- {error.__cause__!r}"[:400])
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        slowest = max(slowest, (time.process_time() - start, f"{number} ({subject.name}, {outcome})"))
        counts[f"checkpoint {outcome}" if subject.entry == "inducing" else outcome] += 1
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    sys.stdout.write(json.dumps({"counts": counts, "faults": faults, "slowest": slowest, "growth in bytes": growth}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
