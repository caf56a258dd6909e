"""How DSE makes its pairs (Figure 2), drawn on a real dialogue."""

from __future__ import annotations

from textwrap import wrap

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch, Patch

from dialnb.plots.style import BLUE, CARD, GREEN, ORANGE, RED, SOFT, WIDE, canvas, in_style, require

LEFT, INDENT, BUBBLE, GAP, PAD, LEADING = 0.45, 0.45, 3.85, 0.17, 0.11, 0.19
"""Inches at the usual letter size: margin, shift of the second speaker, width of a bubble, space between two, ..."""


@in_style
def pair_construction(
    data: pd.DataFrame, *, title: str = "Consecutive utterances of a dialogue are positive pairs", above: int = 3
) -> Figure:
    """Utterances in order, one a row: ``dialogue``, ``speaker``, ``text`` and ``kept`` (does it pass the word filter?).

    The first dialogue is drawn as bubbles. Neighbours that are both kept are bracketed as a positive pair, others as
    dropped. The first utterance of a second dialogue stands for the rest of the batch: it is a negative.
    """
    require(data, "pair_construction", ("dialogue", "speaker", "text", "kept"))
    here = data[data["dialogue"] == data["dialogue"].iloc[0]]
    others = data[data["dialogue"] != data["dialogue"].iloc[0]]
    speakers = list(dict.fromkeys(here["speaker"]))
    lines = [wrap(" ".join(text.split()), 42) for text in here["text"]]
    heights = [2 * PAD + LEADING * len(text) for text in lines]
    total = sum(heights) + GAP * (len(heights) - 1) + 1.5
    figure = canvas(WIDE, total, layout=None)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDE), ylim=(0, total))
    axes.axis("off")
    axes.text(LEFT - 0.15, total - 0.25, title, weight="bold", va="center")
    top, middles, edges = total - 0.6, [], []
    for number, (row, text, height) in enumerate(zip(here.itertuples(), lines, heights), 1):
        second = speakers.index(row.speaker) % 2
        x, tint = LEFT + INDENT * second, (BLUE, ORANGE)[second] if row.kept else SOFT
        bubble(axes, x, top, height, text, tint, "-" if row.kept else "--", number=number)
        middles.append(top - height / 2)
        edges.append(x + BUBBLE)
        top -= height + GAP
    for i, (first, second) in enumerate(zip(here["kept"], here["kept"].iloc[1:])):
        _bracket(axes, middles, edges, i, bool(first and second))
    if len(others):
        _negative(axes, others["text"].iloc[0], middles[0], edges[0])
    note = f"A pair is kept if both utterances have more than {above} words."
    axes.text(LEFT - 0.15, 0.58, note, color=SOFT, va="center")
    key = [Patch(facecolor=CARD, edgecolor=tint, lw=1.5, label=who) for who, tint in zip(speakers, (BLUE, ORANGE))]
    key += [Patch(facecolor=CARD, edgecolor=SOFT, lw=1.5, linestyle="--", label="too short")]
    axes.legend(handles=key, loc="lower left", bbox_to_anchor=(LEFT - 0.15, 0.1), bbox_transform=axes.transData,
                ncols=3, borderpad=0, borderaxespad=0)  # fmt: skip
    return figure


def bubble(
    axes: Axes, x: float, top: float, height: float, text: list[str], tint: str, dashes: str, width: float = BUBBLE,
    number: int | None = None,
) -> None:  # fmt: skip
    """An utterance in a box, with its number on a disc at the upper left corner."""
    box = {"boxstyle": "round,pad=0,rounding_size=0.1", "lw": 1.2, "linestyle": dashes, "edgecolor": tint}
    axes.add_patch(FancyBboxPatch((x, top - height), width, height, facecolor=CARD, **box))
    axes.text(x + 0.2, top - height / 2, "\n".join(text), va="center", linespacing=1.15)
    if number is not None:
        axes.add_patch(Circle((x, top), 0.13, facecolor=tint, edgecolor="white", zorder=3))
        axes.text(x, top - 0.01, str(number), color="white", weight="bold", ha="center", va="center", zorder=4)


def _bracket(axes: Axes, middles: list[float], edges: list[float], i: int, kept: bool) -> None:
    high, low, x = middles[i] - 0.05, middles[i + 1] + 0.05, LEFT + INDENT + BUBBLE + 0.25
    look = {"color": GREEN, "lw": 2.2} if kept else {"color": SOFT, "lw": 1.2, "linestyle": (0, (2, 2))}
    axes.plot([edges[i] + 0.05, x, x, edges[i + 1] + 0.05], [high, high, low, low], solid_joinstyle="round", **look)
    words = {"color": GREEN, "weight": "bold"} if kept else {"color": SOFT}
    text = f"positive ({i + 1}, {i + 2})" if kept else f"dropped ({i + 1}, {i + 2})"
    axes.text(x + 0.12, (high + low) / 2, text, va="center", **words)


def _negative(axes: Axes, text: str, middle: float, edge: float) -> None:
    """A bubble of another dialogue at the right, held away from the first utterance."""
    lines, x = wrap(" ".join(text.split()), 23), 6.55
    height, y = 2 * PAD + LEADING * len(lines), middle + 0.05
    bubble(axes, x, y + height / 2, height, lines, RED, "-", WIDE - 0.2 - x)
    axes.plot([edge + 0.05, x - 0.05], [y, y], color=RED, lw=1.6, linestyle=(0, (4, 2)))
    axes.text((edge + 0.5 + x) / 2, y + 0.13, "negative", color=RED, weight="bold", ha="center", va="center")
    axes.text(x, y - height / 2 - 0.08, "another dialogue\nof the same batch", color=SOFT, va="top")
