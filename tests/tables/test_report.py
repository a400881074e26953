"""The report: complete, escaped, and without anything from outside."""

import os
import re
import shutil
import subprocess
from html import escape
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from inducing.pages import Table, to_html
from inducing.tables.report import _written, report_page
from tests.tables.examples import NASTY, outcome

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CASES = {"regression": ("price",), "several": ("price", "weight"), "classes": ("kind",)}


@pytest.fixture(params=CASES, scope="module")
def page(request):
    return to_html(report_page(outcome(*CASES[request.param]), f"{NASTY}.csv"))


class Tags(HTMLParser):
    """Which tags and attributes a browser sees."""

    def __init__(self, page):
        super().__init__()
        self.seen, self.open, self.text = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag not in ("meta", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_nothing_is_executed_or_fetched(page):
    tags = Tags(page)
    assert not tags.open
    assert {tag for tag, _ in tags.seen}.isdisjoint({"script", "iframe", "object", "embed", "base", "form"})
    for tag, attributes in tags.seen:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href"):
            if name in attributes:
                assert attributes[name].startswith("data:"), tag
    assert "url(" not in page
    # the name itself is shown as it is
    assert NASTY in "".join(tags.text)
    assert NASTY not in page
    policy = next(attributes["content"] for tag, attributes in tags.seen if attributes.get("http-equiv"))
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in tags.seen


def test_what_is_in_it(page):
    text = " ".join(Tags(page).text)
    kinds = re.findall(r'<img alt="([^"]+)"', page)
    for part in ("Scores", "Most uncertain rows", "Training", "Settings", "max_steps", "constant"):
        assert part in text
    curves = [kind for kind in kinds if kind.startswith("partial dependence of ")]
    others = [kind for kind in kinds if kind not in curves]
    assert others[-2:] == ["importances of columns", "ELBO"]
    if "Confusion matrix" in text:
        assert others[:-2] == ["calibration"]
        assert len(curves) == 3
    else:
        targets = 1 + ("weight, true" in text)
        assert others[:-2] == ["predicted and true", "calibration", "residuals"] * targets
        assert len(curves) == 3 * targets


def find_table(fitted, heading):
    (found,) = [
        block
        for block in report_page(fitted, "t.csv").blocks
        if isinstance(block, Table) and block.headings[0] == heading
    ]
    return found


def test_confusions_count_all_test_rows():
    fitted = outcome("kind")
    counts = [[int(cell.text) for cell in row[1:]] for row in find_table(fitted, "true \\ predicted").rows]
    predicted = fitted.predictive.mean.argmax(1)
    assert counts == [[int(((fitted.y_test == i) & (predicted == j)).sum()) for j in (0, 1)] for i in (0, 1)]


def test_missing_values_are_left_empty():
    assert _written(pd.Series(["red", None, np.nan], dtype=object)) == ["red", "", ""]
    assert _written(pd.Series([1.5, np.nan])) == ["1.5", ""]
    assert _written(pd.to_datetime(pd.Series(["2020-01-01", None])))[1] == ""


def test_the_most_uncertain_rows_come_first():
    fitted = outcome("price")
    rows = [int(row[0]) for row in find_table(fitted, "row").rows]
    order = fitted.predictive.stddev[:, 0].argsort(descending=True)[:10]
    assert rows == fitted.problem.test[order.numpy()].tolist()


def chromium(*arguments):
    """A browser without a window; its profile is its own."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "LANG": "C"}
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: apt install chromium")
def test_it_loads_in_a_browser_without_errors(page, tmp_path):
    path = tmp_path / "r.html"
    path.write_text(page)
    document, console = chromium(f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri())
    assert console == []
    assert "Settings" in document
    assert "<title>run" not in document
    # a page that does what ours must not would be found out
    path.write_text("<script>document.title='run'; console.error('bad')</script>")
    document, console = chromium(f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri())
    assert len(console) == 1
    assert "<title>run" in document


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: apt install chromium")
def test_it_fits_a_phone(page, tmp_path):
    """At 390 pixels nothing but wide tables, each in a box of its own, has to be scrolled sideways."""
    script = (
        "document.title = frames[0].document.documentElement.scrollWidth + ' wide, ' + frames[0].document.images.length"
    )
    frame = f'<iframe style="width:390px;height:800px;border:0" srcdoc="{escape(page)}" onload="{script}"></iframe>'
    (tmp_path / "frame.html").write_text(frame)
    document, _ = chromium(
        f"--user-data-dir={tmp_path / 'profile'}",
        "--virtual-time-budget=5000",
        "--dump-dom",
        (tmp_path / "frame.html").as_uri(),
    )
    width, images = re.search(r"<title>(\d+) wide, (\d+)</title>", document).groups()
    assert int(width) <= 390
    assert int(images) == page.count("<img ")
