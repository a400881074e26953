"""What is shipped: a wheel that imports by itself, with everything in it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import inducing

ROOT = Path(__file__).parents[1]


def test_the_wheel_is_complete_and_imports(tmp_path):
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", tmp_path, ROOT]
    subprocess.run(build, check=True, timeout=300)
    (wheel,) = tmp_path.glob("inducing-*.whl")
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel]
    subprocess.run(install, check=True, timeout=300)
    source = {p.relative_to(ROOT / "src") for p in (ROOT / "src").rglob("*") if p.suffix in {".py", ".json", ".typed"}}
    shipped = {p.relative_to(site) for p in site.rglob("*")}
    assert source <= shipped
    script = (
        "import inducing, inducing.experiments.paper as paper, pathlib, sys, torch\n"
        f"assert pathlib.Path(inducing.__file__).is_relative_to({str(site)!r}), inducing.__file__\n"
        "paper.published()\n"
        "assert inducing.models.mlp(3, 1, num_inducing=4)(torch.zeros(2, 3)).shape == (1, 2, 1)\n"
        # slow to import, and needed for tables alone
        "assert not {'sklearn', 'pandas'} & sys.modules.keys()\n"
        "inducing.estimators.BNNRegressor()\n"
    )
    # -I would also hide the site folder, so put it first by hand
    subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(site)!r})\n{script}"], check=True, timeout=300
    )


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
        "linalg",
        "nn",
        "inference",
        "prediction",
        "data",
        "saving",
        "estimators",
        "tabular",
        "experiments",
        "cli",
        "__main__",
    ]
    free = {"arrays", "checks", "files", "threads"}
    for path in (ROOT / "src" / "inducing").rglob("*.py"):
        own = path.relative_to(ROOT / "src" / "inducing").parts[0].removesuffix(".py")
        if own == "__init__":
            continue
        for other in re.findall(r"^\s*from inducing\.(\w+)", path.read_text(), re.MULTILINE):
            if own in free:
                raise AssertionError(f"{path.name} must not import inducing.{other}")
            assert other in free or order.index(other) <= order.index(own), f"{path} imports inducing.{other}"


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
    optional = [
        extra for name in ("dask", "parquet", "tensorboard") for extra in project["optional-dependencies"][name]
    ]
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    lowest = {found.name: found for found in (Requirement(line) for line in lines if line and line[0] != "#")}
    for bound in map(Requirement, project["dependencies"] + optional):
        assert bound.specifier == Requirement(str(lowest[bound.name]).replace("==", ">=")).specifier, bound.name
