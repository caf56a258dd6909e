"""TaDSE's drawings on real utterances: what templates add to a space (F1), the losses (F2), the whole system (F3)."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from pandas import DataFrame

from dialnb.files import read_yaml
from dialnb.plots.sketch import DASHED, Page, wrapped
from dialnb.plots.style import BLUE, GREEN, LINE, ORANGE, RED, SOFT, WIDE, drawn_from

KINDS = ("utterance", "other", "template", "filled")
"""What a row of the data may be, other than the values of a slot type."""


def _texts_by_kind(rows: DataFrame) -> dict[str, list[str]]:
    return rows.groupby("kind", sort=False)["text"].agg(list).to_dict()


@drawn_from("intent", "kind", "text")
def template_clusters(data: DataFrame) -> Figure:
    """Rows of ``intent``, ``kind`` (utterance, other, template, filled) and ``text``: left utterances alone, right one
    of them around its template with what that is filled to. A schematic: places are chosen (TaDSE, Figure 1)."""
    page = Page("Templates draw the utterances of an intent together")
    page.text(0.25, 0.58, "without templates", SOFT)
    page.text(3.45, 0.58, "with templates and what they are filled to", SOFT)
    page.line([3.2, 3.2], [0.45, 4.85], LINE)
    intents = data.groupby("intent", sort=False)
    for (intent, rows), colour, middle in zip(intents, (BLUE, RED), (1.75, 3.9)):
        texts = _texts_by_kind(rows)
        (spoken, *_), (template, *_) = texts["utterance"], texts["template"]
        page.text(0.25, middle - 0.8, intent, colour, weight="bold")
        alone = [spoken, *texts.get("other", [])]
        for text, x, y in zip(alone, (0.4, 0.62, 0.48), (-0.42, 0.14, 0.7)):
            page.disc(x, middle + y, 0.085, colour)
            page.text(x + 0.2, middle + y, wrapped(text, 28), size=9.5)
        _constellation(page, middle, colour, template, [spoken, *texts.get("filled", [])])
    return page.cut(5.1)


def _constellation(
    page: Page,
    middle: float,
    colour: str,
    template: str,
    around: list[str],
) -> None:
    """Draw a template as a star with its utterances around it, the spoken one filled, and their texts beside them."""
    x, listed, top = 4.35, 5.62, middle - 0.8
    page.axes.add_patch(Circle((x, middle), 0.95, facecolor=colour, alpha=0.1))
    page.line([x], [middle], colour, marker="*", markersize=17, zorder=5)
    page.line([listed], [top], colour, marker="*", markersize=12)
    page.text(listed + 0.18, top, wrapped(template, 44), size=9.5)
    angles = np.linspace(0.75, -0.75, len(around)) * np.pi
    for number, (text, angle) in enumerate(zip(around, angles)):
        dot_x, dot_y = x + 0.54 * np.cos(angle), middle - 0.72 * np.sin(angle)
        line_y = top + 0.4 * (number + 1)
        page.line([x, dot_x], [middle, dot_y], colour, alpha=0.6)
        page.disc(dot_x, dot_y, 0.085, colour, filled=number == 0)
        page.disc(listed, line_y, 0.06, colour, filled=number == 0)
        page.text(listed + 0.18, line_y, wrapped(text, 44), size=9.5)


@drawn_from("loss", "anchor", "positive", "negative", "text")
def template_losses(data: DataFrame) -> Figure:
    """Rows of ``loss``, ``anchor``, ``positive``, ``negative`` and ``text``: one panel each (TaDSE, Figure 2)."""
    page, y = Page("Three losses over one batch"), 1.45
    for place, (row, colour) in enumerate(zip(data.itertuples(), (BLUE, ORANGE, GREEN))):
        x = WIDE / len(data) * place + 0.65
        page.text(x - 0.4, y - 0.82, row.loss, colour, weight="bold")
        page.line([x, x + 1.3], [y, y - 0.5], colour, lw=2.6)
        page.line([x, x + 1.3], [y, y + 0.4], linestyle=DASHED)
        page.disc(x, y, 0.24, colour, filled=False, label=row.anchor)
        page.disc(x + 1.3, y - 0.5, 0.24, colour, filled=False, label=row.positive)
        page.disc(x + 1.3, y + 0.4, 0.24, SOFT, filled=False, label=row.negative)
        page.text(x + 1.6, y - 0.5, "closer", colour)
        page.text(x + 1.6, y + 0.4, "apart", SOFT)
        page.text(x - 0.4, y + 1, wrapped(row.text, 30), SOFT, size=10)
    return page.cut(2.75)


@drawn_from("intent", "kind", "text")
def template_system(data: DataFrame) -> Figure:
    """The first intent of the data of :func:`template_clusters`, whose slot types are further kinds, through the whole
    system: template, Entity Book, filling, encoder, losses; below, compression at inference (TaDSE, Figure 3)."""
    texts = _texts_by_kind(data[data["intent"] == data["intent"].iloc[0]])
    book = [f"{kind}: {values[0]}" for kind, values in texts.items() if kind not in KINDS]
    words = {
        "utterance": wrapped(texts["utterance"][0], 36),
        "template": wrapped(texts["template"][0], 36),
        "book": "\n".join(wrapped(line, 38, most=1) for line in book),
        "filled": "\n".join(wrapped(text, 40, most=1) for text in texts["filled"]),
    }
    page = Page("From an utterance to three losses")
    page.draw(read_yaml(__file__, "template_system.yaml"), words)
    return page.cut(4.9)
