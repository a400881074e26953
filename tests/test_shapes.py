"""The shape annotations of the whole package hold, checked at run time in a process of its own."""

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import subprocess
import sys
import typing
from pathlib import Path

import inducing

SCRIPT = """
from tests import shape_checks

shape_checks.install("inducing")

import tempfile, torch
import inducing
from inducing.experiments import toy
from inducing.linalg.noise import seeded

x, y, labels = torch.randn(12, 3), torch.randn(12, 2), torch.arange(12) % 4
posteriors = [
    "factorised", "local", "global", "prior", "factorised->global",
    inducing.Factorised(local_reparameterisation=True), inducing.GlobalInducing("full_per_output"),
    inducing.LocalInducing(precision="per_output", kl="closed_form"),
]
for posterior in posteriors:
    for prior in ("neal", "standard", "scale", "spatial-iw", "channel-iw", "kronecker-iw"):
        for likelihood, target, outputs in ((inducing.Gaussian([0.1, 0.2]), y, 2), (inducing.Categorical(), labels, 4)):
            if outputs == 4 and prior != "neal":
                continue
            network = inducing.models.mlp(3, outputs, [5], posterior=posterior, prior=prior, num_inducing=6)
            if list(network.parameters()) or list(likelihood.parameters()):
                inducing.fit(network, likelihood, (x, target), num_steps=2, batch_size=8, progress=False)
            inducing.evaluate(network, likelihood, (x, target), importance_samples=30).pareto_k
            predictive = inducing.predict(network, likelihood, x, 5, batch_size=7)
            predictive.mean, predictive.variance, predictive.samples, predictive.log_prob(target)
            if outputs == 2:
                predictive.unstandardise(torch.zeros(2), torch.ones(2)).quantile([0.1, 0.9])
            mixture = inducing.Mixture([network, network])
            mixture.optimise_weights(likelihood, (x, target), 5)
            bound = mixture.elbo(likelihood, (x, target), 5)
            bound.value, bound.standard_error, bound.component_elbos, mixture.sample_functions(4)(x)
for posterior in ("global", "local", "dsvi", "coupled", "prior->global", "global->dsvi", "dsvi->global"):
    for likelihood, target, outputs in ((inducing.Gaussian(), y, 2), (inducing.HeteroscedasticGaussian(), y, 4)):
        settings = {"width": 2, "posterior": posterior, "conditional": "tight", "inducing_points": x[:6]}
        network = inducing.models.deep_gp(3, outputs, 3, **settings)
        inducing.fit(network, likelihood, (x, target), num_steps=2, batch_size=8, progress=False)
        inducing.evaluate(network, likelihood, (x, target), importance_samples=30).pareto_k
        inducing.predict(network, likelihood, x, 5, batch_size=7).quantile([0.1, 0.9])
exact = ["global", inducing.OptimalInducing(heteroscedastic=True)]
points = {"inducing_points": x, "inducing_targets": torch.cat([y, 0 * y], 1), "learn_inducing_locations": False}
network, likelihood = inducing.models.mlp(3, 4, [5], posterior=exact, **points), inducing.HeteroscedasticStudentT()
likelihood.log_prob(torch.zeros(2, 12, 4), y), likelihood.icdf(torch.zeros(2, 12, 4), 0.9)
inducing.fit(network, inducing.HeteroscedasticGaussian(), (x, y), num_steps=2, progress=False)
kernels = inducing.kernels
for kernel in (kernels.Matern32() + kernels.Linear(), kernels.Matern12() * kernels.ArcCosine(2), kernels.Matern52(ard=False)):
    network = inducing.Network([inducing.GPLayer(3, 2, kernel, num_features=16)], inducing_points=x[:6])
    network(x, 2), network.sample_functions(2)(x)
    with tempfile.TemporaryDirectory() as folder:
        inducing.save((network, network.sample_functions(2), likelihood), f"{folder}/model")
        inducing.load(f"{folder}/model")[1](x)
for likelihood, target, outputs in ((inducing.Gaussian(), y, 2), (inducing.Categorical(), labels, 4)):
    network = inducing.models.mlp(3, outputs, [5], posterior="prior")
    samples = inducing.hmc(network, likelihood, (x, target), num_warmup=5, num_samples=8, num_leapfrog=2, progress=False)
    samples.diagnostics(x), inducing.predict(samples, likelihood, x, batch_size=7).mean
    settings = {"posterior_sample": network.draw(1), "num_chains": 3, "num_temperatures": 5, "progress": False}
    found = inducing.evidence(network, likelihood, (x, target), **settings)
    found.lower, found.standard_error, found.upper, found.upper_standard_error
maps = [torch.nn.Conv2d(2, 3, 3, padding=1), torch.nn.BatchNorm2d(3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]
for chosen in ("all", "last"):
    module, images = torch.nn.Sequential(*maps, torch.nn.Linear(3, 2)), torch.randn(12, 2, 6, 6)
    inducing.bayesianize(module, images, chosen).sample_functions(2)(images)
toy.run(toy.Config(num_steps=2, train_samples=2, test_samples=4), progress=False)
print("shapes hold")
"""


def test_every_annotation_holds():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.strip() == "shapes hold", done.stderr[-2000:]


def names_for_type_checkers(module):
    """Names that a module imports under ``if TYPE_CHECKING``, since their packages are optional or import it."""
    blocks = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.If)]
    guarded = [node for node in blocks if ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in guarded for node in ast.walk(block) if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: typing.Any for node in imports for alias in node.names}


def test_every_annotation_can_be_read():
    """A shape that lost its quotes would be an expression of names that do not exist."""
    for info in pkgutil.walk_packages(inducing.__path__, "inducing."):
        if info.name.endswith(".skpro") and importlib.util.find_spec("skpro") is None:
            # it needs another version of pandas: make test-skpro
            continue
        module = importlib.import_module(info.name)
        names = {**names_for_type_checkers(module), **vars(module), **vars(typing)}
        for _, value in inspect.getmembers(module, lambda v: inspect.isfunction(v) or inspect.isclass(v)):
            if value.__module__ != info.name:
                continue
            members = [value, *vars(value).values()] if inspect.isclass(value) else [value]
            if dataclasses.is_dataclass(value):
                # its constructor repeats the annotations of its fields, also of those from another module
                members = [member for member in members if member is not vars(value).get("__init__")]
            for member in members:
                function = member.fget if isinstance(member, property) else member
                if inspect.isfunction(function):
                    typing.get_type_hints(function, names)
