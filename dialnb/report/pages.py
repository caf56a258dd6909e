"""What the pages are made of: templates, and texts, notebooks and pictures of others with nothing in them that acts."""

import re
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import mistune
import nbformat
import nh3
from jinja2 import StrictUndefined
from latex2mathml.converter import convert
from markupsafe import Markup
from nbconvert import HTMLExporter

from dialnb import __version__
from dialnb.claims import MARKS, VERDICTS, interval_text, verdict_text
from dialnb.claims.rendering import templates
from dialnb.errors import DataError

CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)
EQUATION = re.compile(r"\$\$(.+?)\$\$|(?<![\\$])\$([^\s$](?:[^$\n]*[^\s$])?)\$", re.DOTALL)
STYLE = re.compile(r"<style[^<>]*>([^<]*)</style>", re.I)

LOOKS = (
    "background-color color font-style font-weight max-width min-width opacity text-align vertical-align "
    "white-space width"
)
"""What may be said of how a table looks: nothing that loads, moves or covers."""

RULE = re.compile(rf"\s*(?:#T_|\.dataframe)[\w\s#.,:>-]*\{{(?:\s*(?:{LOOKS.replace(' ', '|')}):[\w\s#%.,-]*;)*\s*")
"""A rule that pandas writes for its tables, up to the closing brace."""

MATHML = (
    "math menclose mfrac mi mn mo mover mpadded mphantom mroot mrow mspace msqrt mstyle msub msubsup msup mtable "
    "mtd mtext mtr munder munderover"
)
ATTRIBUTES = (
    "border class id lang style title valign accent accentunder columnalign display displaystyle fence form "
    "height linethickness lspace mathvariant maxsize minsize movablelimits notation rowspacing rspace scriptlevel "
    "separator stretchy width xmlns"
)
DRAWING = (
    "svg g defs style path use clipPath rect circle ellipse line polyline polygon text tspan image linearGradient "
    "radialGradient stop pattern mask marker symbol title desc filter metadata RDF Work type date format creator "
    "Agent"
)
"""Elements of an SVG that draw, and those in which matplotlib says when it drew."""

PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp|svg\+xml);base64,[\w+/=\s]*")


def _stays(tag: str, name: str, value: str) -> str | None:
    """The value of an attribute: a picture comes with its page, a link leads to a page."""
    if name == "src":
        return value if PICTURE.fullmatch(value) else None
    return None if name == "href" and value.lower().startswith("data:") else value


CLEANER = nh3.Cleaner(
    tags=nh3.ALLOWED_TAGS | set(MATHML.split()),
    clean_content_tags={"script", "style", "svg", "title", "textarea", "iframe", "noscript", "template"},
    attributes=nh3.ALLOWED_ATTRIBUTES | {"*": set(ATTRIBUTES.split())},
    attribute_filter=_stays,
    url_schemes={"http", "https", "mailto", "data"},
    filter_style_properties=set(LOOKS.split()),
)


templates("report").undefined = StrictUndefined
templates("report").globals |= {
    "MARKS": MARKS,
    "VERDICTS": VERDICTS,
    "interval_text": interval_text,
    "verdict_text": verdict_text,
    "version": __version__,
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
    said = (rule for sheet in STYLE.findall(html) for rule in sheet.split("}"))
    looks = "".join(f"{rule}}}" for rule in said if RULE.fullmatch(rule))
    return Markup((f"<style>{looks}</style>\n" if looks else "") + CLEANER.clean(html))  # a rule has no way out of it


def markdown_body(text: str) -> Markup:
    """Markdown as HTML of a page: raw HTML escaped, headings below those of the page, tables that scroll."""
    html = str(sanitised(str(mistune.create_markdown(escape=True, plugins=["table", "strikethrough"])(text))))
    html = re.sub(r"<(/?)h[12]>", r"<\1h3>", html)
    html = re.sub(r"<th(?=[ >])", '<th scope="col"', html)
    scroll = '<div class="scroll" role="region" aria-label="Table of the paper\'s page" tabindex="0"><table>'
    return Markup(html.replace("<table>", scroll).replace("</table>", "</table></div>"))


def notebook_body(path: Path) -> Markup:
    """The cells of a notebook as HTML, without the page around them and without anything that loads or acts."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = with_mathml(cell.source)
    body, _ = super(HTMLExporter, _exporter()).from_notebook_node(notebook)  # whose own parses all of it again
    body = re.sub(r"<img(?![^>]*\balt=)", '<img alt="No description has been provided for this image"', body)
    return Markup(str(sanitised(body)).replace("<h1", "<h2").replace("</h1>", "</h2>"))


def check_picture(path: Path) -> None:
    """Refuse a PNG that is cut, and an SVG that does more than draw: opened by itself, it may run script."""
    data = path.read_bytes()
    if path.suffix == ".png" and not (data.startswith(b"\x89PNG") and data.endswith(b"IEND\xaeB`\x82")):
        raise DataError(f"{path.name} is empty, cut, or no PNG")
    if path.suffix == ".svg":
        try:
            known, elements = set(DRAWING.split()), ElementTree.fromstring(data).iter()
            inert = b"<?xml-stylesheet" not in data and all(_draws(element, known) for element in elements)
        except ElementTree.ParseError as error:
            raise DataError(f"{path.name} is empty, cut, or no SVG: {error}") from error
        if not inert:
            raise DataError(f"{path.name} holds more than a drawing (script, links or foreign content)")


def _draws(element: ElementTree.Element, known: set[str]) -> bool:
    def own(name: str, value: str) -> bool:
        said = name.rpartition("}")[2].lower()
        return not said.startswith("on") and (said != "href" or value.startswith(("#", "data:image/png;base64,")))

    return element.tag.rpartition("}")[2] in known and all(own(*pair) for pair in element.items())


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
