"""The documentation: its examples run, its links lead somewhere, its reference is complete."""

import doctest
import importlib
import pkgutil
import re
import warnings
from pathlib import Path

import matplotlib as mpl
import pytest
import torch
from matplotlib import pyplot as plt

import inducing

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MODULES = sorted(module.name for module in pkgutil.walk_packages(inducing.__path__, "inducing."))
GUIDES = [DOCS / f"{name}.md" for name in ("walkthrough", "bounds", "from_your_framework")]
PAGES = [ROOT / "README.md", *GUIDES, *sorted((DOCS / "howto").glob("*.md"))]
BLOCKS = {page: re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL) for page in PAGES}


@pytest.fixture
def _hidden_figures():
    """Figures are not shown, and closed in the end."""
    with mpl.rc_context({"backend": "agg"}):
        yield
        plt.close("all")


@pytest.mark.usefixtures("_hidden_figures")
@pytest.mark.parametrize("page", [page for page in PAGES if BLOCKS[page]], ids=lambda page: page.stem)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    """All blocks of a page run in one namespace, in order."""
    if page.stem == "skpro":
        # it needs another version of pandas: make test-skpro
        pytest.importorskip("skpro")
    monkeypatch.chdir(tmp_path)
    namespace = {}
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for block in BLOCKS[page]:
            exec(compile(block, page, "exec"), namespace)


def test_most_guides_have_code():
    assert sum(bool(blocks) for blocks in BLOCKS.values()) >= 16


def test_the_readme_starts_with_what_people_need():
    text = (ROOT / "README.md").read_text()
    places = [text.index(part) for part in ("docs/toy.png", "make demo", "make test", "```python")]
    assert places == sorted(places)
    assert text.index("```python") < 3000


def test_the_site_starts_with_the_example_of_the_readme():
    assert BLOCKS[ROOT / "README.md"][0] in (DOCS / "index.md").read_text()


def test_links_and_pictures_exist():
    pages = [page for page in DOCS.rglob("*.md") if "_build" not in page.parts]
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *pages]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_page_is_in_a_table_of_contents():
    listed = {DOCS / "index.md"}
    for page in DOCS.rglob("*.md"):
        for tree in re.findall(r"```{toctree}\n(.*?)```", page.read_text(), re.DOTALL):
            listed |= {page.parent / f"{line}.md" for line in tree.splitlines() if line and line[0] != ":"}
    assert listed == {page for page in DOCS.rglob("*.md") if "_build" not in page.parts}


def test_the_reference_has_every_public_name():
    text = "".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    documented = set(re.findall(r":: inducing\.(?:nn\.)?(\w+)", text))
    assert {*inducing.__all__, *inducing.nn.__all__} <= documented


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.usefixtures("_hidden_figures")
def test_docstring_examples(name):
    if name.endswith(".skpro"):
        pytest.importorskip("skpro")
    assert doctest.testmod(importlib.import_module(name)).failed == 0
