"""An executed notebook as one page that needs no network: our own style, equations as MathML, scripts left out."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from latex2mathml.converter import convert
from nbconvert import HTMLExporter

CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)
EQUATION = re.compile(r"\$\$(.+?)\$\$|(?<![\\$])\$([^\s$](?:[^$\n]*[^\s$])?)\$", re.DOTALL)
OUTSIDE = re.compile(r"<script\b.*?</script>|<link\b[^>]*>|<iframe\b.*?</iframe>|@import[^;]*;", re.DOTALL | re.I)
LOADED = re.compile(
    r"""<(?:img|source|video|audio|embed|object)\b[^>]*?\s(?:src|data)=["'](?:https?:)?//[^>]*>""", re.I
)


def notebook_body(path: Path) -> str:
    """The cells of a notebook as HTML, without the page around them and without anything that loads from outside."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = with_mathml(cell.source)
    body, _ = HTMLExporter(template_name="basic", embed_images=False).from_notebook_node(notebook)
    body = LOADED.sub("", OUTSIDE.sub("", body))
    return re.sub(r"<h1\b(.*?)</h1>", r"<h2\1</h2>", body, flags=re.DOTALL)


def with_mathml(markdown: str) -> str:
    """Markdown with its equations ($...$ and $$...$$) turned into MathML; code stays as it is.

    >>> with_mathml("loss $L$").startswith("loss <math")
    True
    """
    parts = CODE.split(markdown)
    return "".join(part if number % 2 else EQUATION.sub(_equation, part) for number, part in enumerate(parts))


def _equation(match: re.Match) -> str:
    source, display = (match[1], "block") if match[1] else (match[2], "inline")
    try:
        return convert(source.strip(), display=display).replace("\n", " ")
    except Exception:  # an equation beyond the converter is shown as it was written
        return f"<code>{source.replace('&', '&amp;').replace('<', '&lt;')}</code>"
