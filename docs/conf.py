"""Settings of the documentation site: `make docs` builds it."""

import os
import re
from importlib import metadata

from docutils import nodes
from sphinx.application import Sphinx

project = "inducing"
author = "The inducing maintainers"
copyright = author
try:
    release = metadata.version("inducing")
except metadata.PackageNotFoundError:
    release = "development"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = "inducing"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
# equations are plain text and no page needs the network
html_theme_options = {"navigation_with_keys": True}

# a name in backticks is a reference where there is something of that name, else code
default_role = "py:obj"
autodoc_member_order = "bysource"
# skpro needs another version of pandas
autodoc_mock_imports = ["skpro"]
autodoc_typehints = "none"
napoleon_numpy_docstring = False
napoleon_use_rtype = False

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_number_source_lines = False

# notebooks run on one core
os.environ.update(
    OMP_NUM_THREADS="1",
    NO_COLOR="1",
    COLUMNS="100",
    PYTHONWARNINGS="ignore:IProgress not found",
)

# docstrings are plain text with `names` and ``code``
CODE = re.compile(r"(``.+?``|`[^`]+`)")
SECTION = re.compile(r"(Arguments|Returns|Raises|References|Example|Examples):$")


def as_rst(
    app: object, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Convert a docstring: an indented paragraph outside of a section is an equation, and * | _ stand for themselves."""
    converted: list[str] = []
    in_section = False
    for paragraph in re.split(r"\n\s*\n", "\n".join(lines)):
        indented = paragraph.startswith(" ")
        if not indented:
            in_section = bool(SECTION.match(paragraph.split("\n")[0]))
        if indented and not in_section:
            converted += ["::", "", paragraph, ""]
        elif ">>>" in paragraph:
            converted += [paragraph, ""]
        else:
            parts = CODE.split(paragraph)
            parts[::2] = [
                re.sub(r"([*|]|(?<=\w)_(?!\w))", r"\\\1", part) for part in parts[::2]
            ]
            converted += ["".join(parts), ""]
    # napoleon reads "a: b" in the first line of a property as its type: begin with a line that shows nothing
    first = ["\\"] if what in ("property", "attribute") else []
    lines[:] = first + "\n".join(converted).split("\n")


def skip_fields(
    app: object, what: str, name: str, obj: object, skip: bool, options: object
) -> bool | None:
    """Leave out the fields of named tuples, which the docstring of the class describes."""
    return (
        True
        if str(getattr(obj, "__doc__", "")).startswith("Alias for field number")
        else None
    )


def shorten_signature(
    app: object,
    what: str,
    name: str,
    obj: object,
    options: object,
    signature: str | None,
    returns: str | None,
) -> tuple[str, str | None] | None:
    """Shorten defaults: a class is shown by its name, a long number with four digits."""
    if not signature:
        return None
    # a module without a constructor has that of torch.nn.Module
    signature = signature.replace("(*args, **kwargs)", "()").replace("=<factory>", "=[]")
    signature = re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", signature)
    return re.sub(
        r"\d+\.\d{6,}", lambda number: f"{float(number[0]):.4g}", signature
    ), returns


def mark_results(app: object, document: nodes.document) -> None:
    """Link the figures of the results to their full size, by giving them a width. Mark their tables for site.css."""
    name = document.settings.env.current_document.docname
    if name in ("index", "results"):
        for image in document.findall(nodes.image):
            image["width"] = "100%"
    if name in ("results", "estimators", "recipes"):
        for table in document.findall(nodes.table):
            table["classes"].append("numbers")


def setup(app: Sphinx) -> None:
    """Convert docstrings before napoleon reads their sections."""
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("doctree-read", mark_results)
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("autodoc-process-docstring", as_rst, priority=100)
