"""Dialogues on paper: the inputs that UMS makes of one (Figure 2), and what two models think of a reply (Figure 1)."""

from __future__ import annotations

from textwrap import shorten, wrap

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from dialnb.plots.style import BLUE, CARD, GREEN, INK, LINE, ORANGE, RED, SOFT, WIDE, canvas, in_style, looks, require

PAD, LEADING, GAP = 0.09, 0.19, 0.13
TINTS = {"utterance": SOFT, "target": ORANGE, "foreign": RED, "given": BLUE, "response": GREEN}


@in_style
def manipulations(
    data: pd.DataFrame, *, title: str = "One dialogue, three questions about its order", width: int = 23
) -> Figure:
    """Columns of utterances, a row of ``data`` each: ``column``, ``mark`` (a special token, or ""), ``text``, ``kind``.

    Kinds are utterance, target (its mark is the right one), foreign, given (the second segment), response; a text may
    be empty where a mark stands alone. UMS, Figure 2.
    """
    require(data, "manipulations", ("column", "mark", "text", "kind"))
    data = data.fillna({"mark": "", "text": ""})  # a stored table has nothing there
    names = list(dict.fromkeys(data["column"]))
    each = (WIDE - 0.3) / len(names)
    columns = {name: [_card(row, width) for row in data[data["column"] == name].itertuples()] for name in names}
    total = max(sum(height + GAP for *_, height in cards) for cards in columns.values()) + 1.55
    figure = canvas(WIDE, total, layout=None)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDE), ylim=(0, total))
    axes.axis("off")
    axes.text(0.2, total - 0.25, title, weight="bold", va="center")
    for place, (name, cards) in enumerate(columns.items()):
        x, top = 0.2 + each * place, total - 0.65
        axes.text(x, top, name, weight="bold", va="center", color=INK)
        top -= 0.25
        for mark, lines, kind, height in cards:
            _draw(axes, x, top, each - 0.2, height, mark, lines, kind)
            top -= height + GAP
    _key(axes, data["kind"])
    return figure


def _card(row, width: int) -> tuple[str, list[str], str, float]:
    lines = wrap(_short(row.text, width, 4), width)
    return row.mark, lines, row.kind, 2 * PAD + LEADING * (len(lines) + bool(row.mark))


def _short(text: str, width: int, lines: int = 2) -> str:
    return shorten(" ".join(text.split()), lines * width, placeholder=" …")


def _draw(
    axes: Axes, x: float, top: float, width: float, height: float, mark: str, lines: list[str], kind: str
) -> None:
    tint = TINTS[kind]
    dashes = "--" if kind == "foreign" else "-"
    box = {"boxstyle": "round,pad=0,rounding_size=0.07", "edgecolor": tint, "linestyle": dashes}
    width = width if lines else 0.95  # a mark that stands alone
    thick = 2.0 if kind in ("target", "foreign") else 1.0
    axes.add_patch(FancyBboxPatch((x, top - height), width, height, facecolor=CARD, lw=thick, **box))
    y = top - PAD - LEADING / 2
    if mark:
        right = kind in ("target", "foreign")
        axes.text(x + 0.1, y, mark + ("  ✓" if right else ""), weight="bold", color=tint, va="center")
        y -= LEADING
    for line in lines:
        axes.text(x + 0.1, y, line, va="center")
        y -= LEADING


def _key(axes: Axes, kinds: pd.Series) -> None:
    """What the colours mean, in one line at the foot."""
    words = {"target": "the right mark", "foreign": "foreign utterance, the right mark", "given": "given apart",
             "response": "true response"}  # fmt: skip
    x = 0.2
    for kind, text in words.items():
        if kind in set(kinds):
            axes.plot([x, x + 0.28], [0.28, 0.28], color=TINTS[kind], lw=4, solid_capstyle="butt")
            axes.text(x + 0.36, 0.28, text, va="center", color=SOFT)
            x += 0.62 + 0.082 * len(text)


@in_style
def scored_replies(data: pd.DataFrame, *, title: str = "Which of the two comes next?", width: int = 84) -> Figure:
    """The end of a dialogue and, for two replies to it, a bar for the score of each model. UMS, Figure 1.

    Rows with ``part`` "context" are the dialogue (``text``); the others name a reply by ``part`` and have a ``model``
    and its ``score`` between 0 and 1.
    """
    require(data, "scored_replies", ("part", "text", "model", "score"))
    context = [_short(text, width) for text in data[data["part"] == "context"]["text"]]
    replies = data[data["part"] != "context"]
    parts, models = list(dict.fromkeys(replies["part"])), looks(replies["model"])
    lines = [wrap(text, width) for text in context]
    texts = {part: wrap(_short(replies[replies["part"] == part]["text"].iloc[0], width), width) for part in parts}
    above = sum(2 * PAD + LEADING * len(text) + GAP for text in lines)
    below = sum(LEADING * len(texts[part]) + 0.35 + 0.3 * len(models) + 0.25 for part in parts)
    total = 0.75 + above + below + 0.1
    figure = canvas(WIDE, total, layout=None)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDE), ylim=(0, total))
    axes.axis("off")
    axes.text(0.25, total - 0.3, title, weight="bold", va="center")
    top = total - 0.6
    for number, text in enumerate(lines):
        height, shift = 2 * PAD + LEADING * len(text), 0.4 * (number % 2)
        _draw(axes, 0.25 + shift, top, 8.0, height, "", text, "utterance")
        top -= height + GAP
    top -= 0.1
    for part in parts:
        axes.text(0.25, top - 0.12, part, weight="bold", va="center", color=GREEN if part == parts[0] else RED)
        top -= 0.33
        for line in texts[part]:
            axes.text(0.4, top, line, va="center")
            top -= LEADING
        for model, (colour, *_) in models.items():
            score = float(replies[(replies["part"] == part) & (replies["model"] == model)]["score"].iloc[0])
            top -= 0.06
            axes.barh(top - 0.1, 6.1, 0.19, left=1.9, color=LINE, alpha=0.45)
            axes.barh(top - 0.1, 6.1 * score, 0.19, left=1.9, color=colour)
            axes.text(1.8, top - 0.1, str(model), ha="right", va="center")
            axes.text(8.1, top - 0.1, f"{score:.2f}", va="center")
            top -= 0.24
        top -= 0.25
    return figure
