"""Drawings by others: an SVG is read, and what draws in it is written again; nothing else of it stays."""

import re
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from dialnb.errors import DataError
from dialnb.limits import DEPTH, ELEMENTS

SVG, HREF = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink href"
SHAPES = {"path", "rect", "circle", "ellipse", "line", "polyline", "polygon", "image"}
"""What a `use` may repeat: one shape, so that a few lines cannot draw without end."""
TEXTS = {"text", "tspan", "title", "desc"}
KNOWN = SHAPES | TEXTS | {"svg", "g", "defs", "style", "use", "clipPath", "pattern"}
"""Elements that matplotlib and our own explanations draw with, and the other plain shapes."""
PLACES = (
    "id d x y x1 y1 x2 y2 cx cy r rx ry dx dy width height points viewBox version transform patternUnits "
    "patternTransform clipPathUnits preserveAspectRatio"
)
LOOKS = (
    "clip-path clip-rule color fill fill-opacity fill-rule font font-family font-size font-stretch font-style "
    "font-variant font-weight image-rendering letter-spacing opacity shape-rendering stroke stroke-dasharray "
    "stroke-dashoffset stroke-linecap stroke-linejoin stroke-miterlimit stroke-opacity stroke-width text-anchor "
    "visibility white-space"
)
LISTED = {*PLACES.split(), *LOOKS.split()}
FUNCTIONS = {"matrix", "translate", "scale", "rotate", "skewx", "skewy", "rgb", "rgba"}
FUNCTION = re.compile(r"([^\s,;:()]*)\((?=\s*(.?))")
SHEET = re.compile(r"\s*\*\s*\{([^{}@]*)\}\s*")
"""The one rule that matplotlib writes: for all elements."""
PICTURE = re.compile(r"data:image/(?:png|jpeg);base64,[\w+/=\s]*")


def drawn_again(data: bytes) -> str:
    """The drawing alone, of an SVG in any encoding; DataError if there is more in it, or if it is too large.

    Elements are of a closed list. Attributes and looks that are not listed are left out, and so is every look that
    names another place than one in the drawing.
    """
    drawing = _Drawing()
    try:
        drawing.parser.Parse(data, True)
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise DataError(f"is empty, cut, or no SVG: {error}") from error
    if not drawing.parts or any(drawing.ids.get(name, "path") not in SHAPES for name in drawing.used):
        raise DataError("holds more than a drawing: it repeats groups of shapes, or draws nothing")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + "".join(drawing.parts)


def _is_inert(value: str, links: bool = True) -> bool:
    """Whether a value calls no function but those that place and colour, and leads to no place outside."""
    calls = FUNCTION.findall(value)
    known = (name.lower() in FUNCTIONS or (links and name == "url" and first == "#") for name, first in calls)
    return "\\" not in value and all(known)


def _looks(declarations: str, links: bool = True) -> str:
    pairs = (declaration.partition(":") for declaration in declarations.split(";"))
    kept = [f"{name.strip()}: {value.strip()}" for name, _, value in pairs if name.strip() in LOOKS.split()]
    return "; ".join(look for look in kept if _is_inert(look.partition(":")[2], links))


class _Drawing:
    """What an SVG draws, piece by piece, as its elements come."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.open: list[str] = []
        self.sheet: list[str] = []
        self.count = 0
        self.ids: dict[str | None, str] = {}
        self.used: set[str] = set()
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.StartElementHandler, self.parser.EndElementHandler = self._start, self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.StartDoctypeDeclHandler = self._doctype

    def _doctype(self, *facts: object) -> None:
        if facts[-1]:
            raise DataError("holds more than a drawing: declarations of its own")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        namespace, _, tag = name.rpartition(" ")
        self.open.append(tag)
        self.count += 1
        if self.count > ELEMENTS or len(self.open) > DEPTH:
            raise DataError(f"has more than {ELEMENTS:,} elements, or lies more than {DEPTH} deep in itself")
        if "metadata" in self.open:
            return
        if namespace != SVG or tag not in KNOWN or (tag == "svg") != (len(self.open) == 1):
            raise DataError(f"holds more than a drawing (script, links or foreign content): {tag}")
        self.ids.setdefault(attributes.get("id"), tag)
        kept = {name: value for name, given in attributes.items() if (value := self._value(tag, name, given))}
        if tag == "svg":
            kept |= {"xmlns": SVG, "xmlns:xlink": HREF.partition(" ")[0]}
        written = (f" {'xlink:href' if name == HREF else name}={quoteattr(value)}" for name, value in kept.items())
        self.parts.append(f"<{tag}{''.join(written)}>")

    def _value(self, tag: str, name: str, value: str) -> str:
        """What stays of an attribute; tiles and clips are plain, as those within those could go on for ever."""
        links = not {"pattern", "clipPath"} & set(self.open)
        if name in (HREF, "href"):
            if tag == "use" and links and value.startswith("#"):
                self.used.add(value[1:])
                return value
            return value if tag == "image" and PICTURE.fullmatch(value) else ""
        if name == "style":
            return _looks(value, links)
        return value if name in LISTED and _is_inert(value, links) else ""

    def _end(self, name: str) -> None:
        tag = self.open.pop()
        if tag == "style" and (rule := SHEET.fullmatch("".join(self.sheet))):
            self.parts.append(escape(f"*{{{_looks(rule[1])}}}"))
        if tag != "metadata" and "metadata" not in self.open:
            self.parts.append(f"</{tag}>")

    def _text(self, text: str) -> None:
        if self.open[-1] == "style":
            self.sheet.append(text)
        elif self.open[-1] in TEXTS and "metadata" not in self.open:
            self.parts.append(escape(text))
