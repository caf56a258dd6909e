"""Drawings by somebody who means harm."""

from __future__ import annotations

XMLNS = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
DOT = '<rect width="9" height="9"/>'


def drawings(canary: str) -> dict[str, bytes]:
    """SVG files by what is wrong with them: each sets `window.ran`, or asks the canary for something."""
    act = f"window.ran = 1; new Image().src = '{canary}/script'"
    script = f"<script>{act}</script>"
    style = f"<svg {XMLNS}><style>%s</style>{DOT}<text y='9'>a</text></svg>"
    look = f'<svg {XMLNS}><g style="%s">{DOT}</g></svg>'
    sheet = '<?xml version="1.0"?><?xml-stylesheet type="%s" href="%s"?>'
    transformed = (
        f'<svg {XMLNS} xsl:version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">'
        f'<xsl:text disable-output-escaping="yes">&lt;script&gt;{act}&lt;/script&gt;</xsl:text></svg>'
    )
    texts = {
        "script": f"<svg {XMLNS}>{script}{DOT}</svg>",
        "script-in-utf-16": f'<?xml version="1.0" encoding="utf-16"?><svg {XMLNS}>{script}</svg>',
        "stylesheet-in-utf-16": sheet.replace("?>", ' encoding="utf-16"?>', 1) % ("text/css", f"{canary}/sheet")
        + f"<svg {XMLNS}>{DOT}</svg>",
        "transformed": sheet % ("text/xsl", "transformed.svg") + transformed,
        "transformed-in-utf-16": sheet.replace("?>", ' encoding="utf-16"?>', 1)
        % ("text/xsl", "transformed-in-utf-16.svg")
        + transformed,
        "html": f"<svg {XMLNS}><text><script xmlns='http://www.w3.org/1999/xhtml'>{act}</script></text></svg>",
        "handler": f'<svg {XMLNS} onload="{act}"><rect onfocus="{act}" tabindex="0"/></svg>',
        "frame": f"<svg {XMLNS}><foreignObject><iframe xmlns='http://www.w3.org/1999/xhtml' src='{canary}/frame'/>"
        "</foreignObject></svg>",
        "animated": f'<svg {XMLNS}><a xlink:href="#"><set attributeName="href" to="javascript:{act}"/></a></svg>',
        "entity": f'<!DOCTYPE svg [<!ENTITY act "{act}">]><svg {XMLNS}><text>&act;</text></svg>',
        "doctype": f'<!DOCTYPE svg SYSTEM "{canary}/dtd"><svg {XMLNS}>{DOT}</svg>',
        "import": style % f'@import "{canary}/import";',
        "rule": style % f"*{{fill: url({canary}/rule)}}",
        "font": style % f"@font-face{{font-family:f;src:url({canary}/font)}} text{{font-family:f}}",
        "escape": style % f"*{{mask: \\75rl({canary}/escape)}}",
        "style": look % f"fill: url('{canary}/fill#a'); mask: url({canary}/mask#a)",
        "cursor": look % f"cursor: url({canary}/cursor), auto; filter: url({canary}/filter#a)",
        "image-set": look % f"mask-image: image-set('{canary}/set' 1x); background: u\\72l({canary}/back)",
        "attribute": f'<svg {XMLNS}><rect width="9" height="9" fill="url({canary}/attribute#a)" '
        f'mask="url({canary}/mask#a)" clip-path="url({canary}/clip#a)"/></svg>',
        "image": f'<svg {XMLNS}><image xlink:href="{canary}/image" href="{canary}/image" width="9" height="9"/></svg>',
        "use": f'<svg {XMLNS}><use xlink:href="{canary}/use#a"/></svg>',
        "base": f'<svg {XMLNS} xml:base="{canary}/"><use xlink:href="a.svg#a"/></svg>',
    }
    return {name: text.encode("utf-16" if "utf-16" in name else "utf-8") for name, text in texts.items()}
