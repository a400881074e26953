"""The examples that people copy are run as they stand."""

import doctest
import importlib
import pkgutil
import re
import warnings
from pathlib import Path

import pytest
import torch

import inducing

ROOT = Path(__file__).parents[1]
MODULES = sorted(module.name for module in pkgutil.walk_packages(inducing.__path__, "inducing."))


@pytest.mark.parametrize("page", ["README.md", "docs/howto.md", "docs/walkthrough.md"])
def test_python_blocks_run(page, tmp_path, monkeypatch):
    """All blocks of a page in one namespace, in order, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    namespace = {}
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for block in blocks:
            exec(compile(block, page, "exec"), namespace)


def test_the_readme_starts_with_what_people_need():
    text = (ROOT / "README.md").read_text()
    places = [text.index(part) for part in ("docs/toy.png", "make demo", "make test", "```python")]
    assert places == sorted(places)
    assert text.index("```python") < 3000


def test_links_and_pictures_exist():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
