"""Pages of tables and figures: Markdown, and HTML in one file that needs no network and fits the width of a phone."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Sequence
from typing import NamedTuple

from inducing.experiments.comparison import markdown_table

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1, h2 { line-height: 1.2; }
section { border-top: 1px solid #8886; margin-top: 2rem; }
img { display: block; max-width: 100%; height: auto; background: white; }
pre { overflow-x: auto; font-size: 12px; line-height: 1.25; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 0.2rem 0.5rem; border-bottom: 1px solid #8884; overflow-wrap: normal; }
.better { color: #2e7d32; }
.within { color: #1565c0; }
.short { color: #c62828; font-weight: 600; }
@media (prefers-color-scheme: dark) { .better { color: #81c784; } .within { color: #90caf9; } .short { color: #ef9a9a; } }
@media (max-width: 60rem) {
  thead { display: none; }
  tr { display: block; border: 1px solid #8886; border-radius: 6px; margin: 0.75rem 0; padding: 0.25rem 0; }
  td { display: flex; justify-content: space-between; gap: 1rem; border: 0; padding: 0.1rem 0.75rem; }
  td::before { content: attr(data-label); opacity: 0.7; }
  td:empty { display: none; }
}
"""


class Figure(NamedTuple):
    """A picture: its PNG, where a page of Markdown finds it, and what it shows."""

    png: bytes
    link: str
    title: str


class Section(NamedTuple):
    """A part of a page, in this order; `code` in the text is marked by backticks."""

    title: str
    text: Sequence[str]
    table: tuple[Sequence[str], Sequence[Sequence[str]]] | None = None
    notes: Sequence[str] = ()
    printed: str = ""
    figure: Figure | None = None


def as_markdown(title: str, sections: Sequence[Section]) -> str:
    """The page as Markdown."""
    parts = [f"# {title}"]
    for section in sections:
        parts += [f"## {section.title}", *section.text]
        if section.table is not None:
            parts.append(markdown_table(*section.table))
        parts += section.notes
        if section.printed:
            parts.append(f"```text\n{section.printed}\n```")
        if section.figure is not None:
            parts.append(f"![{section.figure.title}]({section.figure.link})")
    return "\n\n".join(parts) + "\n"


def as_html(title: str, sections: Sequence[Section]) -> str:
    """The page as HTML, its pictures inside."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{html.escape(title)}</h1>",
    ]
    for section in sections:
        parts += ["<section>", f"<h2>{html.escape(section.title)}</h2>", *map(_paragraph, section.text)]
        if section.table is not None:
            parts += _table(*section.table)
        parts += map(_paragraph, section.notes)
        if section.printed:
            parts.append(f"<pre>{html.escape(section.printed)}</pre>")
        if section.figure is not None:
            picture = base64.b64encode(section.figure.png).decode()
            parts.append(f'<img alt="{html.escape(section.figure.title)}" src="data:image/png;base64,{picture}">')
        parts.append("</section>")
    return "\n".join([*parts, "</body></html>", ""])


def _paragraph(text: str) -> str:
    return "<p>" + re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False)) + "</p>"


def _table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    parts = [
        "<table><thead><tr>",
        *(f"<th>{html.escape(heading)}</th>" for heading in headings),
        "</tr></thead><tbody>",
    ]
    for line in lines:
        parts.append("<tr>")
        for heading, cell in zip(headings, line, strict=True):
            kind = cell.split(" ")[0] if heading == "mark" and cell else ""
            marked = f' class="{kind}"' if kind else ""
            parts.append(f'<td data-label="{html.escape(heading)}"{marked}>{html.escape(cell)}</td>')
        parts.append("</tr>")
    return [*parts, "</tbody></table>"]
