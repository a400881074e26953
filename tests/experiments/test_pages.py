import base64
import re
from html.parser import HTMLParser

from inducing.experiments.pages import Figure, Section, as_html, as_markdown

SECTIONS = [
    Section("Missing", ["Run `inducing reproduce x`."]),
    Section(
        "a < b",
        ["Text & more."],
        (["set", "ELBO", "mark"], [["yacht", "0.7 ± 0.1", "short by 0.04"], ["boston", "<1>", ""]]),
        ["A note."],
        "┏━┓\n┃<┃",
        Figure(b"\x89PNG picture", "../results/toy.png", 'the "figure"'),
    ),
]


class Reader(HTMLParser):
    """Checks that tags are closed in order, and keeps attributes and text."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_markdown():
    page = as_markdown("Title", SECTIONS)
    assert page.startswith(
        "# Title\n\n## Missing\n\nRun `inducing reproduce x`.\n\n## a < b\n\nText & more.\n\n| set |"
    )
    assert "| yacht | 0.7 ± 0.1 | short by 0.04 |" in page
    assert page.endswith('A note.\n\n```text\n┏━┓\n┃<┃\n```\n\n![the "figure"](../results/toy.png)\n')


def test_html_is_well_formed_and_stands_alone():
    page = as_html("Title", SECTIONS)
    reader = Reader()
    reader.feed(page)
    assert not reader.open
    (picture,) = [attributes for tag, attributes in reader.tags if tag == "img"]
    assert picture["alt"] == 'the "figure"'
    assert base64.b64decode(picture["src"].removeprefix("data:image/png;base64,")) == b"\x89PNG picture"
    assert not re.search(r"https?://|<script|<link|url\(", page), "nothing is fetched"
    assert "<1>" in reader.text
    assert "┏━┓\n┃<┃" in reader.text
    assert "<code>inducing reproduce x</code>" in page


def test_html_on_a_phone():
    """A viewport, and each cell with its heading, which narrow screens show beside it instead of above."""
    page = as_html("Title", SECTIONS)
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    assert '<td data-label="mark" class="short">short by 0.04</td>' in page
    assert '<td data-label="ELBO">0.7 ± 0.1</td>' in page
    assert "@media (max-width: 60rem)" in page
