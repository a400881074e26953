"""The package: what is shipped, what is imported, which extras it has."""

import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import inducing
from inducing.extras import EXTRAS

ROOT = Path(__file__).parents[1]
# packages that are slow to import or optional
LATER = {"typer", "rich", "matplotlib", "pooch", "joblib", "filelock", "pandas", "sklearn", "scipy", "pyarrow", "onnx"}
LATER |= {"onnxruntime", "botorch", "gpytorch", "skpro"}
# train, predict, save and load
BASE = """
import inducing, sys, tempfile, torch
x, y = torch.randn(20, 2), torch.randn(20, 1)
network, likelihood = inducing.models.mlp(2, 1, [5], num_inducing=5), inducing.Gaussian()
inducing.fit(network, likelihood, (x, y), num_steps=2, progress=PROGRESS)
assert inducing.predict(network, likelihood, x).mean.shape == (20, 1)
path = tempfile.mkdtemp() + "/model.safetensors"
inducing.save((network, likelihood), path)
loaded = inducing.load(path)
assert torch.equal(inducing.predict(*loaded, x).mean, inducing.predict(network, likelihood, x).mean)
"""


def test_the_wheel_is_complete_and_imports(tmp_path):
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", tmp_path, ROOT]
    subprocess.run(build, check=True, timeout=300)
    (wheel,) = tmp_path.glob("inducing-*.whl")
    site = tmp_path / "site"
    # a wheel without compiled parts is installed by unpacking it
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    kinds = {".py", ".json", ".toml", ".typed"}
    source = {p.relative_to(ROOT / "src") for p in (ROOT / "src").rglob("*") if p.suffix in kinds}
    shipped = {p.relative_to(site) for p in site.rglob("*")}
    assert source <= shipped
    script = (
        "import inducing, inducing.experiments.paper as paper, pathlib, torch\n"
        f"assert pathlib.Path(inducing.__file__).is_relative_to({str(site)!r}), inducing.__file__\n"
        "paper.published()\n"
        "assert inducing.models.mlp(3, 1, num_inducing=4)(torch.zeros(2, 3)).shape == (1, 2, 1)\n"
        "inducing.estimators.BNNRegressor()\n"
    )
    # -I would also hide the site folder, so put it first by hand
    subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(site)!r})\n{script}"], check=True, timeout=300
    )


@pytest.mark.slow
def test_the_wheel_in_an_empty_environment(tmp_path):
    """The base install trains, predicts, saves and loads, and names the extra that anything else needs."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path, ROOT]
    subprocess.run(pip, check=True, timeout=600)
    (wheel,) = tmp_path.glob("inducing-*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel]
    subprocess.run(install, check=True, timeout=1800)
    script = BASE.replace("PROGRESS", "True") + (
        "from inducing.experiments.paper import published\n"
        "assert published()\n"
        "t = inducing.StudentT()\n"
        "assert inducing.predict(network, t, x).quantile(0.9).shape == (20, 1)\n"
        "inducing.fit(network, t, (x, y), num_steps=2, checkpoint=tempfile.mkdtemp())\n"
        "try:\n"
        "    inducing.BNNRegressor\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    # outside of the clone, and without its path
    options = {"cwd": tmp_path, "env": {"PATH": "/usr/bin:/bin"}, "capture_output": True, "text": True, "timeout": 600}
    done = subprocess.run([python, "-c", script], check=False, **options)
    assert done.returncode == 0, done.stderr
    assert 'pip install "inducing[tables]"' in done.stdout
    command = subprocess.run([tmp_path / "venv" / "bin" / "inducing"], check=False, **options)
    assert command.returncode == 1
    assert command.stderr.endswith('pip install "inducing[cli]"\n')


def test_training_and_predicting_import_no_optional_package():
    check = f"assert not {LATER!r} & sys.modules.keys(), {LATER!r} & sys.modules.keys()\n"
    subprocess.run([sys.executable, "-c", BASE.replace("PROGRESS", "False") + check], check=True, timeout=300)


# (missing package, its extra, a use of it): each runs before the modules that it imports are imported by others
USES = [
    ("sklearn", "tables", "inducing.BNNRegressor"),
    ("sklearn", "tables", "import inducing.estimators"),
    ("sklearn", "tables", f"inducing.load({str(ROOT / 'tests/estimators/saved/regressor.safetensors')!r})"),
    ("sklearn", "tables", "inducing.choose_inducing_points(torch.randn(20, 2), torch.randn(20, 1), 5)"),
    ("pandas", "tables", "inducing.Schema"),
    ("pandas", "tables", "inducing.read_table"),
    ("pandas", "tables", "import inducing.tables.fitting"),
    ("rich", "cli", "import inducing.experiments.toy"),
    ("rich", "cli", "import inducing.experiments.demo"),
    ("rich", "cli", "import inducing.experiments.engine.sweep"),
    ("rich", "cli", "inducing.pages.to_rich(inducing.pages.Table(['x'], [['1']]))"),
    ("pooch", "experiments", "inducing.data.uci.load('yacht')"),
    ("pooch", "experiments", "inducing.data.images.load('mnist')"),
    ("tensorboard", "tensorboard", "inducing.TensorBoard('logs')"),
    ("onnx", "onnx", "inducing.models.mlp(2, 1, [5], num_inducing=5).sample_functions(2).export('model.onnx')"),
    ("botorch", "botorch", "import inducing.integrations.botorch"),
    ("skpro", "skpro", "import inducing.integrations.skpro"),
    ("matplotlib", "plots", "inducing.plots.plot_band([0], [0], [0])"),
    ("matplotlib", "plots", "inducing.pages.render(None)"),
    ("matplotlib", "plots", "from inducing.experiments.engine.figures import panels; panels(1, 1, (1, 1))"),
    ("pyarrow", "parquet", "pathlib.Path('table.parquet').touch(); inducing.read_table('table.parquet')"),
    ("joblib", "experiments", "from inducing.experiments.demo import demo; demo(None, 1, 0, None)"),
    (
        "joblib",
        "experiments",
        "from inducing.experiments import linear; from inducing.experiments.engine.sweep import reproduce\n"
        "reproduce(linear.LINEAR, 'smoke', pathlib.Path('results'), jobs=2)",
    ),
    (
        "distributed",
        "dask",
        "from inducing.experiments.engine.cluster import connect; connect('tcp://localhost:1').__enter__()",
    ),
    ("typer", "cli", "import inducing.__main__; inducing.__main__.main()"),
]


def test_a_missing_package_is_an_error_with_its_install_line(tmp_path):
    script = f"""
import os, pathlib, sys
import inducing, inducing.pages, torch
os.environ.pop("INDUCING_DATA", None)
for package, extra, use in {USES!r}:
    present = sys.modules.pop(package, None)
    sys.modules[package] = None
    try:
        exec(use)
    except (ImportError, SystemExit) as error:
        assert str(error).endswith(f'pip install "inducing[{{extra}}]"'), (use, error)
    else:
        raise AssertionError(use)
    del sys.modules[package]
    if present is not None:
        sys.modules[package] = present
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300, cwd=tmp_path)


def test_every_optional_package_is_in_its_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for package, extra in EXTRAS.items():
        name = {"sklearn": "scikit-learn"}.get(package, package)
        assert name in {Requirement(line).name for line in extras[extra]}, package


def test_every_public_name_is_documented():
    for name in inducing.__all__:
        assert getattr(inducing, name).__doc__, name


def test_names_that_are_imported_later_are_there_as_the_others():
    assert set(inducing.__all__) <= set(dir(inducing))
    assert inducing.BNNRegressor is inducing.estimators.BNNRegressor
    with pytest.raises(AttributeError, match="no attribute 'BNNRegresor'"):
        _ = inducing.BNNRegresor


def test_imports_go_only_upwards():
    """A layer knows nothing of those above it."""
    order = [
        "pages",
        "linalg",
        "nn",
        "inference",
        "prediction",
        "plots",
        "data",
        "saving",
        "tables.numbers",
        "tables.errors",
        "tables.columns",
        "tables.reading",
        "tables.schema",
        "estimators",
        "integrations",
        "tables",
        "experiments",
        "cli",
        "__main__",
    ]
    free = {"arrays", "autocasting", "checks", "errors", "exporting", "extras", "files", "memory", "threads", "waiting"}

    def place(module):
        """A module that is listed by itself, or the nearest package that is."""
        while module not in order:
            module = module.rpartition(".")[0]
        return order.index(module)

    for path in (ROOT / "src" / "inducing").rglob("*.py"):
        own = ".".join(path.relative_to(ROOT / "src" / "inducing").with_suffix("").parts)
        if own == "__init__":
            continue
        for other in re.findall(r"^\s*from inducing\.([\w.]+)", path.read_text(), re.MULTILINE):
            if own in free and other not in free:
                raise AssertionError(f"{path.name} must not import inducing.{other}")
            assert other in free or place(other) <= place(own), f"{path} imports inducing.{other}"


def test_the_version_is_in_the_changelog():
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE).group(1)
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text()


def test_no_global_generator_is_seeded():
    """Threads share the global generators of torch and NumPy; ours have a generator for each purpose."""
    pattern = r"torch\.(manual_seed|random\.|seed\()|fork_rng|np\.random\.(?!default_rng|Generator)"
    for path in (ROOT / "src" / "inducing").rglob("*.py"):
        assert not re.search(pattern, path.read_text()), path


def test_the_lowest_versions_are_the_bounds_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    optional = [line for name in set(EXTRAS.values()) for line in extras[name] if not line.startswith("inducing[")]
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    lowest = {found.name: found for found in (Requirement(line) for line in lines if line and line[0] != "#")}
    for bound in map(Requirement, project["dependencies"] + optional):
        assert bound.specifier == Requirement(str(lowest[bound.name]).replace("==", ">=")).specifier, bound.name
