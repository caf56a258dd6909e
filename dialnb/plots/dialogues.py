"""Dialogues on paper: the pairs of DSE (Figure 2), the windows of WMDC and how few utterances make up much of a corpus,
the inputs that UMS makes of a dialogue (Figure 2), and what two models think of a reply (Figure 1)."""

from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from pandas import DataFrame

from dialnb.files import Values
from dialnb.plots.sketch import DASHED, GAP, LEADING, Card, Page, wrapped
from dialnb.plots.style import BLUE, CARD, GREEN, INK, LINE, ORANGE, PURPLE, RED, SOFT, WIDE, canvas, drawn_from, looks

LETTERS = 84
TINTS = {
    "utterance": SOFT,
    "target": ORANGE,
    "foreign": RED,
    "given": BLUE,
    "response": GREEN,
}
WORDS = {
    "target": "the right mark",
    "foreign": "foreign utterance, the right mark",
    "given": "given apart",
    "response": "true response",
}


@drawn_from("column", "mark", "text", "kind")
def manipulations(data: DataFrame, *, title: str = "One dialogue, three questions about its order") -> Figure:
    """Columns of utterances, a row of ``data`` each: ``column``, ``mark`` (a special token, or ""), ``text``, ``kind``.

    Kinds are utterance, target (its mark is the right one), foreign, given (the second segment), response; a text may
    be empty where a mark stands alone. UMS, Figure 2.
    """
    data = data.fillna({"mark": "", "text": ""})  # a stored table has nothing there
    page, foot = Page(title), 0.0
    columns = data.groupby("column", sort=False)
    step = (WIDE - 0.3) / len(columns)
    for place, (name, rows) in enumerate(columns):
        x, y = 0.2 + step * place, 0.9
        page.text(x, 0.65, name, weight="bold")
        for row in rows.itertuples():
            text = wrapped(row.text, 23, most=4)
            asked = row.kind in ("target", "foreign")
            card = page.card(
                x,
                y,
                step - 0.2 if text else 0.95,
                text,
                TINTS[row.kind],
                head=f"{row.mark}  ✓" if asked and row.mark else row.mark,
                lw=2.0 if asked else 1.0,
                dashes="--" if row.kind == "foreign" else "-",
            )
            y = card.bottom + GAP
        foot = max(foot, y)
    key = []
    for kind, words in WORDS.items():
        if kind in set(data["kind"]):
            key.append(Line2D([], [], color=TINTS[kind], lw=4, label=words))
    figure = page.cut(foot + 0.45)
    figure.legend(
        handles=key, loc="lower left", bbox_to_anchor=(0.012, 0), ncols=len(key), handlelength=1.4, labelcolor=SOFT
    )
    return figure


@drawn_from("part", "text", "model", "score")
def scored_replies(data: DataFrame) -> Figure:
    """The end of a dialogue and, for two replies to it, a bar for the score of each model. UMS, Figure 1.

    Rows with ``part`` "context" are the dialogue (``text``); the others name a reply by ``part`` and have a ``model``
    and its ``score`` between 0 and 1.
    """
    context, replies = data[data["part"] == "context"], data[data["part"] != "context"]
    page, y = Page("Which of the two comes next?"), 0.6
    for number, text in enumerate(context["text"]):
        card = page.card(0.25 + 0.4 * (number % 2), y, 8.0, wrapped(text, LETTERS, most=2))
        y = card.bottom + GAP
    colours = looks(replies["model"])
    for place, (part, rows) in enumerate(replies.groupby("part", sort=False)):
        reply = wrapped(rows["text"].iloc[0], LETTERS, most=2)
        page.text(0.25, y + 0.2, part, RED if place else GREEN, weight="bold")
        page.text(0.4, y + 0.33, reply, va="top", parse_math=False)
        y += 0.48 + LEADING * len(reply.splitlines())
        for row in rows.itertuples():
            page.axes.barh(y, 6.1, 0.19, left=1.9, color=LINE, alpha=0.45)
            page.axes.barh(y, 6.1 * row.score, 0.19, left=1.9, color=colours[row.model][0])
            page.text(1.8, y, row.model, ha="right")
            page.text(8.1, y, f"{row.score:.2f}")
            y += 0.3
    return page.cut(y + 0.15)


PAIR_BUBBLE, PAIR_LETTERS = 3.85, 42
PAIR_TINTS = (BLUE, ORANGE)


@drawn_from("dialogue", "speaker", "text", "kept")
def pair_construction(
    data: DataFrame, *, title: str = "Consecutive utterances of a dialogue are positive pairs"
) -> Figure:
    """Utterances in order, one a row: ``dialogue``, ``speaker``, ``text`` and ``kept`` (does it pass the word filter?).

    The first dialogue is drawn as bubbles. Neighbours that are both kept are bracketed as a positive pair, others as
    dropped. The first utterance of a second dialogue stands for the rest of the batch: it is a negative.
    """
    first = data["dialogue"] == data["dialogue"].iloc[0]
    here, others = data[first], data[~first]
    codes, speakers = pd.factorize(here["speaker"])
    colors = np.where(here["kept"], np.take(PAIR_TINTS, codes % 2), SOFT)
    page = Page(title)
    cards = page.dialogue(
        here.assign(color=colors, dashes=np.where(here["kept"], "-", "--")), width=PAIR_BUBBLE, letters=PAIR_LETTERS
    )
    kept = list(here["kept"])
    for number, (upper, lower) in enumerate(pairwise(cards), 1):
        _bracket(page, number, upper, lower, all(kept[number - 1 : number + 1]))
    if len(others):
        _negative(page, others["text"].iloc[0], cards[0])
    foot = cards[-1].bottom
    page.text(0.3, foot + 0.3, "A pair is kept if both utterances have more than 3 words.", SOFT)
    card: Values = {"facecolor": CARD, "lw": 1.5}
    key = [Patch(edgecolor=tint, label=who, **card) for who, tint in zip(speakers, PAIR_TINTS)]
    key.append(Patch(edgecolor=SOFT, linestyle="--", label="too short", **card))
    figure = page.cut(foot + 0.9)
    figure.legend(handles=key, loc="lower left", ncols=3, bbox_to_anchor=(0.015, 0))
    return figure


def _bracket(
    page: Page,
    number: int,
    upper: Card,
    lower: Card,
    kept: bool,
) -> None:
    """Join two neighbours at their right edges, from the middle of one to that of the other."""
    high, low = upper.middle + 0.05, lower.middle - 0.05
    x = 0.9 + PAIR_BUBBLE + 0.25
    look: Values = {"color": GREEN, "lw": 2.2} if kept else {"linestyle": DASHED}
    page.line([upper.right + 0.05, x, x, lower.right + 0.05], [high, high, low, low], **look)
    words = {"color": GREEN, "weight": "bold"} if kept else {"color": SOFT}
    kind = "positive" if kept else "dropped"
    page.text(x + 0.12, (high + low) / 2, f"{kind} ({number}, {number + 1})", **words)


def _negative(page: Page, text: str, first: Card) -> None:
    """An utterance of another dialogue at the right, held away from the first one."""
    x, y = 6.55, first.middle - 0.05
    card = page.card(x, first.top - 0.05, WIDE - 0.2 - x, wrapped(text, 23), RED)
    page.line([first.right + 0.05, x - 0.05], [y, y], RED, lw=1.6, linestyle=DASHED)
    page.text((first.right + 0.5 + x) / 2, y - 0.13, "negative", RED, weight="bold", ha="center")
    page.text(x, card.bottom + 0.08, "another dialogue\nof the same batch", SOFT, va="top")


WINDOW_BUBBLE, WINDOW_LETTERS = 4.3, 46
WINDOW_TINTS = (BLUE, ORANGE, PURPLE)
WINDOWS = len(WINDOW_TINTS)
CLAIMED = (15, 30)
"""Percent of a corpus that the most frequent hundredth of its utterances cover, as the paper says."""


@drawn_from("corpus", "top", "share")
def frequency_share(data: DataFrame, *, whole: str = "all corpora") -> Figure:
    """``share`` of a corpus covered by its most frequent utterances, over the part of the distinct ones that these are
    (``top``), both in percent. The line named ``whole`` is thick; the mark at 1 % spans what the paper claims."""
    figure = canvas(WIDE, 4.8)
    axes = figure.subplots()
    data = data.sort_values("top")
    corpora = data[data["corpus"] != whole]
    everything = data[data["corpus"] == whole]
    for name, (colour, marker, dashes) in looks(corpora["corpus"].sort_index()).items():
        rows = corpora[corpora["corpus"] == name]
        (drawn,) = axes.plot(
            rows["top"],
            rows["share"],
            label=name,
            color=colour,
            linestyle=dashes,
            lw=1.1,
        )
        drawn.set(marker=marker, markersize=5, markevery=max(1, len(rows) // 5))
    if len(everything):
        axes.plot(everything["top"], everything["share"], color=INK, lw=3, label=whole)
    axes.axvline(1, color=LINE, lw=1, zorder=0)
    (mark,) = axes.plot([1, 1], CLAIMED, label="claimed for the top 1 %", color=GREEN)
    mark.set(lw=9, alpha=0.45, solid_capstyle="butt")
    axes.set(xscale="log", xlim=(max(0.001, data["top"].min()), 100), ylim=(0, 100))
    axes.set_title("A few utterances make up much of a corpus")
    axes.set(xlabel="most frequent distinct utterances (%)", ylabel="share of all utterances (%)")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.grid(axis="y")
    figure.legend(loc="outside right center")
    return figure


@drawn_from("speaker", "text", "frequency", "weight")
def window_pairs(data: DataFrame, *, title: str = "One response, and a context for every window") -> Figure:
    """Utterances in order, one a row: ``speaker``, ``text``, ``frequency`` and ``weight``; the last is the response.

    A bracket spans the context of each window and leads to the response, which is the positive of all of them; below
    stand its frequency in the corpus and the weight that follows from it.
    """
    page, response = Page(title), len(data)
    colours = [SOFT] * (response - 1) + [GREEN]
    cards = page.dialogue(
        data.assign(color=colours, dashes="-"), width=WINDOW_BUBBLE, letters=WINDOW_LETTERS, last_gap=0.3
    )
    high, low, response_edge = cards[-1]
    start, named = WINDOW_BUBBLE + 0.98, WINDOW_BUBBLE + 1.35 + 0.5 * WINDOWS
    for window in range(1, min(WINDOWS, response - 1) + 1):
        colour = WINDOW_TINTS[window - 1]
        x = start + 0.5 * window - 0.33
        top, bottom = cards[-1 - window].top + 0.06, cards[-2].bottom - 0.05 * window
        into = high + (low - high) * window / (WINDOWS + 1)
        page.line([start, x, x, start], [top, top, bottom, bottom], colour, lw=2.2)
        page.line([x, x], [bottom, into], colour, linestyle=":")
        page.arrow((x, into), (response_edge + 0.05, into), colour)
        page.line([x, named - 0.05], [top + 0.08] * 2, colour, lw=0.8, linestyle=":")
        context = f"{response - window} to {response - 1}" if window > 1 else str(response - 1)
        page.text(named, top + 0.08, f"window {window}: {context}", colour, weight="bold")
    count, weight = int(data["frequency"].iloc[-1]), data["weight"].iloc[-1]
    occurs = f"The response occurs {count:,} times in this corpus: weight 1 / (log {count:,} + 1) = {weight:.2f}"
    page.text(0.3, low + 0.3, occurs, GREEN, weight="bold")
    heads = "Every window has a projection head of its own; negatives are the other pairs of the batch."
    page.text(0.3, low + 0.6, heads, SOFT)
    return page.cut(low + 0.85)
