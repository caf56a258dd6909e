"""What the pages are made of: templates, and texts, notebooks and pictures of others with nothing in them that acts."""

import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import mistune
import nbformat
from jinja2 import StrictUndefined
from latex2mathml.converter import convert
from markupsafe import Markup
from nbconvert import HTMLExporter

from dialnb import __version__
from dialnb.claims import DECIDED, MARKS, MEANINGS, NEGATIVE, SIZES, VERDICTS, interval_text, verdict_text
from dialnb.claims.rendering import templates
from dialnb.errors import DataError
from dialnb.limits import FILE_SECONDS, PIECE, regular
from dialnb.report.cleaning import cleaned
from dialnb.report.drawings import drawn_again

CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)
EQUATION = re.compile(r"\$\$(.+?)\$\$|(?<![\\$])\$([^\s$](?:[^$\n]*[^\s$])?)\$", re.DOTALL)

templates("report").undefined = StrictUndefined
templates("report").globals |= {
    "MARKS": MARKS,
    "VERDICTS": VERDICTS,
    "interval_text": interval_text,
    "verdict_text": verdict_text,
    "DECIDED": DECIDED,
    "MEANINGS": MEANINGS,
    "SIZES": SIZES,
    "NEGATIVE": NEGATIVE,
    "Counter": Counter,
    "version": __version__,
}

templates("report").filters |= {
    "verdict_text": verdict_text,
    "share": lambda claim: "an unknown share" if claim["share"] is None else f"{100 * claim['share']:.2g} %",
}


@cache
def _exporter() -> HTMLExporter:
    code = {"highlight_code": "nbconvert.filters.Highlight2HTML"}
    return HTMLExporter(template_name="basic", embed_images=False, filters=code)


def sanitised(html: str) -> Markup:
    """HTML that someone else wrote, with what reads (texts, tables and their looks, equations, pictures, links) alone.

    >>> print(sanitised('<b onclick="x()">kept</b><script>gone</script><a href="javascript:x()">text</a>'))
    <b>kept</b><a rel="noopener noreferrer">text</a>
    """
    if len(html) <= PIECE:
        return Markup(cleaned(html))
    command = [sys.executable, "-P", str(Path(__file__).with_name("cleaning.py"))]  # a process can be ended
    try:
        done = subprocess.run(command, input=html.encode(), capture_output=True, timeout=FILE_SECONDS, check=True)
    except (subprocess.SubprocessError, UnicodeError) as error:
        raise DataError(f"its HTML could not be cleaned within {FILE_SECONDS} s") from error
    return Markup(done.stdout.decode())


def markdown_body(text: str) -> Markup:
    """Markdown as HTML of a page: raw HTML escaped, headings below those of the page, tables that scroll."""
    html = str(sanitised(str(mistune.create_markdown(escape=True, plugins=["table", "strikethrough"])(text))))
    html = re.sub(r"<(/?)h[12]>", r"<\1h3>", html)
    html = re.sub(r"<th(?=[ >])", '<th scope="col"', html)
    scroll = '<div class="scroll" role="region" aria-label="Table of the paper\'s page" tabindex="0"><table>'
    return Markup(html.replace("<table>", scroll).replace("</table>", "</table></div>"))


def notebook_body(path: Path) -> Markup:
    """The cells of a notebook as HTML, without the page around them and without anything that loads or acts."""
    notebook = nbformat.reads(regular(path).read_text("utf-8"), as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = with_mathml(cell.source)
    body, _ = super(HTMLExporter, _exporter()).from_notebook_node(notebook)  # whose own parses all of it again
    body = str(sanitised(body)).replace("<h1", "<h2").replace("</h1>", "</h2>")  # from here on, tags are whole
    return Markup(re.sub(r"<img(?![^>]*\balt=)", '<img alt="No description has been provided for this image"', body))


def picture(path: Path) -> bytes:
    """A file of a figure as the site keeps it: a PNG that is whole, an SVG that is drawn again, or data."""
    data = regular(path).read_bytes()
    if path.suffix == ".png" and not (data.startswith(b"\x89PNG") and data.endswith(b"IEND\xaeB`\x82")):
        raise DataError(f"{path.name} is empty, cut, or no PNG")
    if path.suffix != ".svg":
        return data
    try:
        return drawn_again(data).encode()
    except DataError as error:
        raise DataError(f"{path.name} {error}") from error


def with_mathml(markdown: str) -> str:
    """Markdown with its equations ($...$ and $$...$$) turned into MathML; code stays as it is.

    >>> with_mathml("loss $L$").startswith("loss <math")
    True
    """
    parts = CODE.split(markdown)
    return "".join(part if number % 2 else EQUATION.sub(_equation, part) for number, part in enumerate(parts))


def _equation(match: re.Match[str]) -> str:
    source, display = (match[1], "block") if match[1] else (match[2], "inline")
    try:
        return convert(source.strip(), display=display).replace("\n", " ")
    except Exception:  # an equation beyond the converter is shown as it was written
        return f"<code>{source.replace('&', '&amp;').replace('<', '&lt;')}</code>"
