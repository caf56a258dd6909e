"""TaDSE's drawings on real utterances: what templates add to a space (F1), the losses (F2), the whole system (F3)."""

from __future__ import annotations

from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch

from dialnb.plots.style import BLUE, CARD, GREEN, INK, LINE, ORANGE, PURPLE, RED, SOFT, WIDE, canvas, in_style, require

TINTS = (BLUE, RED)
KINDS = ("utterance", "other", "template", "filled")
"""What a row of the data may be, other than the values of a slot type."""


def _page(height: float, title: str) -> tuple[Figure, Axes]:
    figure = canvas(WIDE, height, layout=None)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDE), ylim=(0, height))
    axes.axis("off")
    axes.text(0.25, height - 0.25, title, weight="bold", va="center")
    return figure, axes


def _box(
    axes: Axes, x: float, y: float, width: float, height: float, text: str, tint: str = SOFT, head: str = "", **look
) -> None:
    """A card with its middle line at ``y``: a bold heading in colour, and text below it."""
    style = {"boxstyle": "round,pad=0,rounding_size=0.08", "facecolor": CARD, "edgecolor": tint, "lw": 1.3}
    axes.add_patch(FancyBboxPatch((x, y - height / 2), width, height, **style))
    if head:
        axes.text(x + 0.12, y + height / 2 - 0.19, head, color=tint, weight="bold", va="center", size=10)
    place = y - 0.13 if head else y
    axes.text(x + 0.12, place, text, va="center", linespacing=1.25, **{"size": 10, **look})


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], tint: str = SOFT, **look) -> None:
    style = {"arrowstyle": "-|>", "mutation_scale": 12, "color": tint, "lw": 1.5, "shrinkA": 0, "shrinkB": 0}
    axes.add_patch(FancyArrowPatch(start, end, **style | look))


@in_style
def template_clusters(
    data: pd.DataFrame, *, title: str = "Templates draw the utterances of an intent together"
) -> Figure:
    """Rows of ``intent``, ``kind`` (utterance, other, template, filled) and ``text``: left utterances alone, right one
    of them around its template with what that is filled to. A schematic: places are chosen (TaDSE, Figure 1)."""
    require(data, "template_clusters", ("intent", "kind", "text"))
    figure, axes = _page(5.1, title)
    intents = list(dict.fromkeys(data["intent"]))[:2]
    for x, caption in ((0.25, "without templates"), (3.45, "with templates and what they are filled to")):
        axes.text(x, 4.52, caption, color=SOFT, va="center")
    axes.plot([3.2, 3.2], [0.25, 4.65], color=LINE, lw=1)
    for intent, tint, middle in zip(intents, TINTS, (3.35, 1.2)):
        part = data[data["intent"] == intent]
        said, template, *filled = (
            part[part["kind"] == kind]["text"].tolist() for kind in ("utterance", "template", "filled")
        )
        axes.text(0.25, middle + 0.8, intent, color=tint, weight="bold", va="center")
        for number, text in enumerate([said[0], *part[part["kind"] == "other"]["text"]][:3]):
            x, y = 0.4 + (0.0, 0.22, 0.08)[number], middle + 0.42 - 0.56 * number
            axes.add_patch(Circle((x, y), 0.085, facecolor=tint, edgecolor="white"))
            axes.text(x + 0.2, y, fill(text, 28), va="center", size=9.5, linespacing=1.15)
        centre = np.array([4.35, middle])
        axes.add_patch(Circle(centre, 0.95, facecolor=tint, alpha=0.1, edgecolor="none"))
        axes.plot(*centre, marker="*", color=tint, markersize=17, markeredgecolor="white", zorder=4)
        texts = [template[0], said[0], *filled[0]]
        for number, text in enumerate(texts):
            angle = np.pi * (0.75 - 1.5 * (number - 1) / max(1, len(texts) - 2)) if number else 0.0
            dot = centre + 0.72 * np.array([np.cos(angle) * 0.75, np.sin(angle)]) if number else centre
            line = middle + 0.8 - 0.4 * number
            if number:
                look = {"facecolor": tint, "edgecolor": "white"} if number == 1 else {"facecolor": "white"}
                axes.plot(*zip(centre, dot), color=tint, lw=1, alpha=0.6)
                axes.add_patch(Circle(dot, 0.085, **{"edgecolor": tint, "lw": 1.4} | look, zorder=5))
            mark = {"marker": "*", "markersize": 12} if not number else {"marker": "o", "markersize": 8}
            hollow = {"markerfacecolor": "white" if number > 1 else tint, "markeredgecolor": tint}
            axes.plot(5.62, line, linestyle="", **mark, **hollow)
            axes.text(5.8, line, fill(text, 44), va="center", size=9.5, linespacing=1.1)
    return figure


@in_style
def template_losses(data: pd.DataFrame, *, title: str = "Three losses over one batch") -> Figure:
    """Rows of ``loss``, ``anchor``, ``positive``, ``negative`` and ``text``: one panel each (TaDSE, Figure 2)."""
    require(data, "template_losses", ("loss", "anchor", "positive", "negative", "text"))
    figure, axes = _page(2.75, title)
    width = WIDE / len(data)
    for number, (row, tint) in enumerate(zip(data.itertuples(), (BLUE, ORANGE, GREEN))):
        x, y = number * width + 0.45, 1.3
        axes.text(x - 0.2, y + 0.82, row.loss, color=tint, weight="bold", va="center")
        ends = {row.positive: (x + 1.5, y + 0.5), row.negative: (x + 1.5, y - 0.4)}
        for label, end in ends.items():
            kept = label == row.positive
            look = {"color": tint, "lw": 2.6} if kept else {"color": SOFT, "lw": 1.2, "linestyle": (0, (3, 2))}
            axes.plot([x + 0.2, end[0]], [y, end[1]], zorder=1, **look)
            _disc(axes, end, label, tint if kept else SOFT)
            axes.text(end[0] + 0.3, end[1], "closer" if kept else "apart", color=tint if kept else SOFT, va="center")
        _disc(axes, (x + 0.2, y), row.anchor, tint)
        axes.text(x - 0.2, 0.3, fill(row.text, 30), size=10, color=SOFT, va="center", linespacing=1.2)
    return figure


def _disc(axes: Axes, place: tuple[float, float], label: str, tint: str) -> None:
    axes.add_patch(Circle(place, 0.24, facecolor="white", edgecolor=tint, lw=1.6, zorder=3))
    axes.text(*place, label, color=INK, ha="center", va="center", size=10, zorder=4)


@in_style
def template_system(data: pd.DataFrame, *, title: str = "From an utterance to three losses") -> Figure:
    """The first intent of the data of :func:`template_clusters`, whose slot types are further kinds, through the whole
    system: template, Entity Book, filling, encoder, losses; below, compression at inference (TaDSE, Figure 3)."""
    require(data, "template_system", ("intent", "kind", "text"))
    part = data[data["intent"] == data["intent"].iloc[0]]
    texts = {kind: found["text"].tolist() for kind, found in part.groupby("kind", sort=False)}
    book = [
        f"{kind}: {found[0]}"
        for kind, found in texts.items()
        if kind not in ("utterance", "other", "template", "filled")
    ]
    figure, axes = _page(4.9, title)
    _box(axes, 0.25, 3.9, 2.75, 0.85, fill(texts["utterance"][0], 34), BLUE, "utterance u")
    _box(axes, 0.25, 2.65, 2.75, 0.85, fill(texts["template"][0], 34), ORANGE, "template t")
    _box(axes, 3.4, 3.9, 2.75, 0.85, "\n".join(fill(line, 36, max_lines=1) for line in book), SOFT,
         "Entity Book, most frequent", size=9)  # fmt: skip
    _box(axes, 3.4, 2.65, 2.75, 1.1, "\n".join(fill(text, 38, max_lines=1) for text in texts["filled"]), BLUE,
         "filled utterances", size=9)  # fmt: skip
    _arrow(axes, (1.6, 3.46), (1.6, 3.1))
    axes.text(1.7, 3.28, "mask slots", color=SOFT, size=9.5, va="center")
    _arrow(axes, (3.03, 2.65), (3.37, 2.65))
    _arrow(axes, (4.78, 3.46), (4.78, 3.23))
    _box(axes, 6.55, 3.25, 0.95, 2.1, "encoder\n+ head", PURPLE)
    _arrow(axes, (6.18, 2.65), (6.52, 2.65), BLUE)
    axes.plot([1.6, 1.6, 6.3, 6.3], [2.2, 2.0, 2.0, 2.32], color=ORANGE, lw=1.5)
    _arrow(axes, (6.3, 2.32), (6.52, 2.32), ORANGE)
    _arrow(axes, (3.03, 3.9), (3.37, 3.9))
    axes.text(7.62, 3.97, "u, u⁺", color=BLUE, va="center")
    axes.text(7.62, 2.55, "t, t⁺", color=ORANGE, va="center")
    for y, label, tint in ((3.97, "L_u", BLUE), (3.25, "L_pair", GREEN), (2.55, "L_t", ORANGE)):
        _box(axes, 8.1, y, 0.72, 0.42, label, tint)
    _arrow(axes, (7.8, 3.82), (8.08, 3.38), GREEN)
    _arrow(axes, (7.8, 2.7), (8.08, 3.12), GREEN)
    axes.text(7.6, 2.23, "M_A(t) if aligned", color=SOFT, size=9, va="center")
    axes.plot([0.25, WIDE - 0.2], [1.75, 1.75], color=LINE, lw=1)
    axes.text(0.25, 1.45, "At inference: semantic compression", weight="bold", va="center")
    _box(axes, 0.25, 0.75, 2.75, 0.6, "vector of the utterance, u", BLUE)
    _box(axes, 3.4, 0.75, 2.75, 0.6, "vector of its template, t or M_A(t)", ORANGE)
    _box(axes, 6.55, 0.75, 2.27, 0.6, "λ t + (1 − λ) u\nfor nearest neighbours", GREEN, size=9.5)
    axes.text(3.2, 0.75, "+", ha="center", va="center")
    _arrow(axes, (6.18, 0.75), (6.52, 0.75))
    return figure
