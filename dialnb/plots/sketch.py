"""Explanations that are drawn, not plotted: a page measured in inches, filled from the top down."""

from textwrap import fill
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch
from pandas import DataFrame

from dialnb.files import Values
from dialnb.plots import style
from dialnb.plots.style import CARD, INK, SOFT, WIDE, canvas

PAD, LEADING, GAP = 0.11, 0.19, 0.17
"""Inches at the usual letter size: around the text of a card, from one line to the next, between two cards."""
DASHED = (0, (3, 2))


def wrapped(text: str, width: int, most: int | None = None) -> str:
    """The text in lines of so many letters; of more than ``most`` lines the rest is cut."""
    return fill(" ".join(text.split()), width, max_lines=most, placeholder=" …")


class Card(NamedTuple):
    """Where a card stands on its page."""

    top: float
    bottom: float
    right: float

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2


class Page:
    """A page of the full width with its title; ``x`` goes to the right and ``y`` down, both in inches."""

    def __init__(self, title: str) -> None:
        self.figure = canvas(WIDE, 1, layout=None)
        self.axes = self.figure.add_axes((0, 0, 1, 1), xlim=(0, WIDE))
        self.axes.axis("off")
        self.text(0.25, 0.25, title, weight="bold")

    def cut(self, height: float) -> Figure:
        """End the page here and return the figure."""
        self.figure.set_figheight(height * self.figure.get_figwidth() / WIDE)
        self.axes.set_ylim(height, 0)
        return self.figure

    def text(
        self,
        x: float,
        y: float,
        text: str,
        color: str = INK,
        **look: Any,
    ) -> None:
        """Write from ``x`` on, with the middle of the lines at ``y``."""
        defaults: Values = {"va": "center", "linespacing": 1.15}
        self.axes.text(x, y, text, color=color, **defaults | look)

    def line(
        self,
        xs: list[float],
        ys: list[float],
        color: str = SOFT,
        lw: float = 1.2,
        **look: Any,
    ) -> None:
        """Draw a line through these places."""
        self.axes.plot(xs, ys, color=color, lw=lw, **look)

    def arrow(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        color: str = SOFT,
        lw: float = 1.4,
    ) -> None:
        """Draw an arrow from edge to edge."""
        arrow = FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11, shrinkA=0, shrinkB=0)
        arrow.set(color=color, lw=lw)
        self.axes.add_patch(arrow)

    def disc(
        self,
        x: float,
        y: float,
        radius: float,
        color: str,
        filled: bool = True,
        label: str = "",
    ) -> None:
        """Draw a disc, or a ring, with a short label on it."""
        face, edge, ink = (color, "white", "white") if filled else ("white", color, INK)
        self.axes.add_patch(
            Circle(
                (x, y),
                radius,
                facecolor=face,
                edgecolor=edge,
                lw=1.5,
                zorder=4,
            )
        )
        self.text(x, y, label, ink, ha="center", weight="bold" if filled else "normal", zorder=5)

    def card(
        self,
        x: float,
        top: float,
        width: float,
        text: str,
        color: str = SOFT,
        *,
        head: str = "",
        height: float = 0.0,
        lw: float = 1.2,
        dashes: str = "-",
        **look: Any,
    ) -> Card:
        """Draw a box with a bold heading and a text, as high as they need."""
        lines = len(text.splitlines()) + bool(head)
        height = height or 2 * PAD + LEADING * lines
        box = FancyBboxPatch((x, top), width, height, boxstyle="round,pad=0,rounding_size=0.08", facecolor=CARD)
        box.set(edgecolor=color, lw=lw, linestyle=dashes)
        self.axes.add_patch(box)
        middle = top + height / 2
        if head:
            above = LEADING * (lines - 1) / 2
            self.text(x + 0.1, middle - above, head, color, weight="bold")
            middle += LEADING / 2
        self.text(x + 0.1, middle, text, parse_math=False, **look)  # dollars are no formulas
        return Card(top, top + height, x + width)

    def draw(self, layout: dict[str, list[Values]], words: dict[str, str]) -> None:
        """Draw the cards, arrows, lines and texts of a layout, with words for the {names} in it."""
        for kind, parts in layout.items():
            for part in parts:
                if "text" in part:
                    part = {"size": 10, **part}
                    part["text"] = part["text"].format(**words)
                part["color"] = getattr(style, part.get("color", "SOFT"))
                getattr(self, kind)(**part)

    def dialogue(
        self,
        data: DataFrame,
        width: float,
        letters: int,
        last_gap: float = 0.0,
    ) -> list[Card]:
        """Draw numbered utterances below the title, a card each, those of the second speaker further right. ``data``
        has ``speaker``, ``text``, ``color`` and ``dashes``."""
        speakers, top = list(data["speaker"].unique()), 0.6
        cards: list[Card] = []
        for number, row in enumerate(data.itertuples(), 1):
            x = 0.45 + 0.45 * (speakers.index(row.speaker) % 2)
            if number == len(data):
                top += last_gap
            cards.append(self.card(x, top, width, wrapped(row.text, letters), row.color, dashes=row.dashes))
            self.disc(x, top, 0.13, row.color, label=str(number))
            top = cards[-1].bottom + GAP
        return cards
