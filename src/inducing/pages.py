"""Pages of text, tables and figures, written as Markdown or as one HTML file.

A page is a title and a list of blocks. A block is a paragraph (a string, with `code` in backticks), a `Heading`, a `Table`
or an `Image`. An HTML page includes its images, has no scripts, and fits the width of a phone. All text is escaped.

Example:
    >>> table = Table(["posterior", "ELBO"], [["global", "-1.13"]])
    >>> print(to_markdown(Page("Results", ["In nats.", table])))
    # Results
    <BLANKLINE>
    In nats.
    <BLANKLINE>
    | posterior | ELBO |
    | --- | ---: |
    | global | -1.13 |
    <BLANKLINE>
"""

from __future__ import annotations

import base64
import io
import os
import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from inducing.extras import require
from inducing.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Figure
    from rich.table import Table as RichTable
else:
    # imported where they are used
    Figure = RichTable = Any

Format = Literal["png", "svg"]
Style = Literal["plain", "bold", "marked", "good", "neutral", "bad"]

MEDIA_TYPES: dict[Format, str] = {"png": "image/png", "svg": "image/svg+xml"}
TERMINAL_STYLES: dict[Style, str] = {
    "plain": "",
    "bold": "bold",
    "marked": "reverse",
    "good": "green",
    "neutral": "blue",
    "bad": "red",
}
# the page loads no external content
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
CSS = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 0 auto; padding: 1rem; }
h1, h2 { line-height: 1.25; } h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
h1, h2, p { overflow-wrap: anywhere; } p { max-width: 46rem; }
.images { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 320px), 1fr)); gap: 1rem; }
figure { margin: 0; } figure.wide { grid-column: 1 / -1; } figcaption { font-size: 0.875rem; opacity: 0.8; }
img { display: block; width: 100%; height: auto; background: white; }
.table { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; white-space: nowrap; }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid #8884; text-align: right; vertical-align: top; }
thead th { vertical-align: bottom; } tbody th { font-weight: inherit; } td, tbody th { white-space: nowrap; }
th:first-child { position: sticky; left: 0; background: Canvas; padding-left: 0; }
.text { text-align: left; } td.text { white-space: normal; overflow-wrap: anywhere; min-width: 7rem; }
.bold { font-weight: 600; } .marked { background: #3465a433; }
.good { color: #2e7d32; } .neutral { color: #1565c0; } .bad { color: #c62828; font-weight: 600; }
@media (prefers-color-scheme: dark) { .good { color: #81c784; } .neutral { color: #90caf9; } .bad { color: #ef9a9a; } }
@media (max-width: 600px) { table { font-size: 0.8rem; } th, td { padding: 0.3rem 0.35rem; } }
"""


class Heading(NamedTuple):
    """The heading of a section."""

    text: str


class Cell(NamedTuple):
    """A cell of a table with a style. A cell without a style is a string."""

    text: str
    style: Style = "plain"


class Table(NamedTuple):
    """A table. The first cell of each row is its heading.

    Arguments:
        headings: The heading of each column.
        rows: The rows, with one cell for each column.
        title: Text above the table.
        note: Text below the table.
        text_columns: Number of columns with text, which is aligned left. The other columns have numbers.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    title: str = ""
    note: str = ""
    text_columns: int = 1


class Image(NamedTuple):
    """A Matplotlib figure on a page. Consecutive images are placed side by side in HTML.

    Arguments:
        figure: The figure.
        alt: Alternative text for readers who do not see the image.
        caption: Text below the image.
        format: "png" or "svg".
        file: Name of the image file for a Markdown page.
        wide: Whether the image has the full width of an HTML page.
    """

    figure: Figure
    alt: str
    caption: str = ""
    format: Format = "png"
    file: str = ""
    wide: bool = False


Block = str | Heading | Table | Image


class Page(NamedTuple):
    """A title and the blocks below it."""

    title: str
    blocks: Sequence[Block]


def write(page: Page, path: Path, images: Path | None = None) -> None:
    """Write a page as ``.html``, including its images, or as ``.md``.

    Arguments:
        page: The page.
        path: The file to write.
        images: Folder for the images of a Markdown page. Default: the folder of the page.
    """
    if path.suffix == ".html":
        content = to_html(page)
    else:
        folder = images or path.parent
        for block in page.blocks:
            if isinstance(block, Image):
                write_atomically(folder / block.file, render(block.figure, block.format))
        content = to_markdown(page, Path(os.path.relpath(folder, path.parent)).as_posix())
    write_atomically(path, content.encode())


def to_markdown(page: Page, images: str = ".") -> str:
    """Return the page as Markdown. Images are links to files in the folder `images`."""
    parts = [f"# {page.title}"]
    for block in page.blocks:
        match block:
            case str():
                parts.append(block)
            case Heading(text):
                parts.append(f"## {text}")
            case Table():
                parts += filter(None, [block.title and f"**{block.title}**", _markdown_table(block), block.note])
            case Image():
                link = block.file if images == "." else f"{images}/{block.file}"
                parts += filter(None, [f"![{block.alt}]({link})", block.caption])
    return "\n\n".join(parts) + "\n"


def to_html(page: Page) -> str:
    """Return the page as one HTML document."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<link rel="icon" href="data:,">',
        f"<title>{escape(page.title)}</title><style>{CSS}</style></head><body>",
        f"<h1>{escape(page.title)}</h1>",
    ]
    for side_by_side, blocks in groupby(page.blocks, lambda block: isinstance(block, Image)):
        lines = [_html(block) for block in blocks]
        parts += ['<div class="images">', *lines, "</div>"] if side_by_side else lines
    return "\n".join([*parts, "</body></html>", ""])


def to_rich(table: Table) -> RichTable:
    """The table for a terminal."""
    require("rich")
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(
        title=table.title or None,
        title_justify="left",
        caption=table.note or None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for index, heading in enumerate(table.headings):
        text = index < table.text_columns
        shown.add_column(heading, justify="left" if text else "right", no_wrap=index == 0)
    for row in table.rows:
        shown.add_row(*(Text(cell.text, TERMINAL_STYLES[cell.style]) for cell in map(_cell, row)))
    return shown


def render(figure: Figure, format: Format = "png") -> bytes:
    """Render a Matplotlib figure without a display. The same figure gives the same bytes."""
    require("matplotlib")
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    buffer = io.BytesIO()
    # text as paths, which need no fonts
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "inducing"}):
        metadata = {"Date": None, "Creator": None} if format == "svg" else None
        figure.savefig(buffer, format=format, dpi=150, metadata=metadata)
    return buffer.getvalue()


def _cell(cell: str | Cell) -> Cell:
    return cell if isinstance(cell, Cell) else Cell(cell)


def _markdown_table(table: Table) -> str:
    numbers = len(table.headings) - table.text_columns
    rows = [[_cell(cell).text.replace("|", "\\|") for cell in row] for row in (table.headings, *table.rows)]
    rows.insert(1, ["---"] * table.text_columns + ["---:"] * numbers)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _html(block: Block) -> str:
    match block:
        case Heading(text):
            return f"<h2>{escape(text)}</h2>"
        case Table():
            return "\n".join(_html_table(block))
        case Image():
            content = base64.b64encode(render(block.figure, block.format)).decode()
            image = f'<img alt="{escape(block.alt)}" src="data:{MEDIA_TYPES[block.format]};base64,{content}">'
            caption = f"<figcaption>{escape(block.caption)}</figcaption>" if block.caption else ""
            return f'<figure class="{"wide" if block.wide else "narrow"}">{image}{caption}</figure>'
        case _:
            return "<p>" + re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(block, quote=False)) + "</p>"


def _html_table(table: Table) -> Iterator[str]:
    yield '<div class="table"><table>'
    if table.title:
        yield f"<caption>{escape(table.title)}</caption>"
    yield f"<thead>{_html_row(table, table.headings, 'col')}</thead><tbody>"
    for row in table.rows:
        yield _html_row(table, row, "row")
    yield "</tbody></table></div>"
    if table.note:
        yield _html(table.note)


def _html_row(table: Table, row: Sequence[str | Cell], scope: Literal["row", "col"]) -> str:
    cells = []
    for index, cell in enumerate(map(_cell, row)):
        classes = ["text"] if index < table.text_columns else []
        classes += [cell.style] if cell.style != "plain" else []
        attributes = f' class="{" ".join(classes)}"' if classes else ""
        tag, scoped = ("th", f' scope="{scope}"') if scope == "col" or index == 0 else ("td", "")
        cells.append(f"<{tag}{scoped}{attributes}>{escape(cell.text)}</{tag}>")
    return f"<tr>{''.join(cells)}</tr>"
