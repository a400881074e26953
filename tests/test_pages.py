import base64
import re
from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from inducing.pages import Cell, Heading, Image, Page, Table, render, to_html, to_markdown, to_rich, write


def figure():
    drawn = Figure(figsize=(2, 1))
    drawn.subplots().plot([1, 2])
    return drawn


@pytest.fixture
def page():
    table = Table(
        ["set", "posterior", "ELBO", "mark"],
        [["yacht", "a|b", "0.7 ± 0.1", Cell("short by 0.04", "bad")], ["boston", "global", "<1>", ""]],
        title="ELBO of a & b",
        note="In `nats`.",
        text_columns=2,
    )
    image = Image(figure(), 'the "figure"', "A line.", file="toy.png")
    return Page("Title <b>", ["Run `inducing reproduce x`.", Heading("a < b"), table, image, image._replace(wide=True)])


class Reader(HTMLParser):
    """Checks that tags are closed in order, and keeps attributes and text."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.text = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_markdown(page):
    table = (
        "| set | posterior | ELBO | mark |\n| --- | --- | ---: | ---: |\n| yacht | a\\|b | 0.7 ± 0.1 | short by 0.04 |"
    )
    start = f"# Title <b>\n\nRun `inducing reproduce x`.\n\n## a < b\n\n**ELBO of a & b**\n\n{table}\n"
    assert to_markdown(page).startswith(start)
    assert to_markdown(page, "../results").endswith(
        'In `nats`.\n\n![the "figure"](../results/toy.png)\n\nA line.\n\n![the "figure"](../results/toy.png)\n\nA line.\n'
    )


def test_html_is_well_formed_and_stands_alone(page):
    text = to_html(page)
    reader = Reader(text)
    assert not reader.open
    first, second = (attributes for tag, attributes in reader.tags if tag == "img")
    assert first["alt"] == 'the "figure"'
    assert base64.b64decode(first["src"].removeprefix("data:image/png;base64,")).startswith(b"\x89PNG")
    assert first == second
    assert not re.search(r"https?://|<script|url\(", text), "nothing is fetched"
    assert all(attributes["href"].startswith("data:") for tag, attributes in reader.tags if tag == "link")
    assert "<1>" in reader.text
    assert reader.text.count("Title <b>") == 2
    assert "<code>inducing reproduce x</code>" in text
    assert text.count('<div class="images">') == 1, "images that follow each other stand side by side"


def test_html_cells_are_aligned_and_styled(page):
    text = to_html(page)
    assert '<th scope="row" class="text">yacht</th><td class="text">a|b</td><td>0.7 ± 0.1</td>' in text
    assert '<td class="bad">short by 0.04</td>' in text
    assert '<th scope="col">ELBO</th>' in text


def test_images_are_files_for_markdown_and_inside_for_html(page, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "results").mkdir()
    write(page, tmp_path / "docs" / "page.md", tmp_path / "results")
    assert "](../results/toy.png)" in (tmp_path / "docs" / "page.md").read_text()
    assert (tmp_path / "results" / "toy.png").read_bytes().startswith(b"\x89PNG")
    write(page, tmp_path / "docs" / "page.html")
    assert (tmp_path / "docs" / "page.html").read_text() == to_html(page)
    assert sorted(path.name for path in (tmp_path / "docs").iterdir()) == ["page.html", "page.md"]
    write(page, tmp_path / "docs" / "page.md")
    assert "](toy.png)" in (tmp_path / "docs" / "page.md").read_text()


@pytest.mark.parametrize(("format", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_the_same_figure_gives_the_same_bytes(format, start):
    assert render(figure(), format).startswith(start)
    assert render(figure(), format) == render(figure(), format)


def test_a_table_in_a_terminal(page, capsys):
    table = page.blocks[2]._replace(rows=[["[red]x", "global", "1", Cell("short", "bad")]])
    Console(width=80).print(to_rich(table))
    printed = capsys.readouterr().out
    for text in ("ELBO of a & b", "[red]x", "short", "In `nats`."):
        assert text in printed
