"""HTML by others with nothing in it that acts; also a program of its own, which can be ended if it takes too long."""

import re
import sys

import nh3

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


def cleaned(html: str) -> str:
    """What reads (texts, tables and their looks, equations, pictures, links) of HTML that someone else wrote."""
    rules = (rule for sheet in STYLE.findall(html) for rule in sheet.split("}"))
    looks = "".join(f"{rule}}}" for rule in rules if RULE.fullmatch(rule))
    return (f"<style>{looks}</style>\n" if looks else "") + CLEANER.clean(html)  # a rule has no way out of it


if __name__ == "__main__":
    sys.stdout.buffer.write(cleaned(sys.stdin.buffer.read().decode()).encode())
