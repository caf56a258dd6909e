"""Dialogues on paper: the inputs that UMS makes of one (Figure 2), and what two models think of a reply (Figure 1)."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dialnb.plots.sketch import GAP, LEADING, Page, wrapped
from dialnb.plots.style import BLUE, GREEN, LINE, ORANGE, RED, SOFT, WIDE, drawn_from, looks

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
def manipulations(data: pd.DataFrame, *, title: str = "One dialogue, three questions about its order") -> Figure:
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
            bottom = page.card(
                x,
                y,
                step - 0.2 if text else 0.95,
                text,
                TINTS[row.kind],
                head=f"{row.mark}  ✓" if asked and row.mark else row.mark,
                lw=2.0 if asked else 1.0,
                dashes="--" if row.kind == "foreign" else "-",
            )
            y = bottom + GAP
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
def scored_replies(data: pd.DataFrame) -> Figure:
    """The end of a dialogue and, for two replies to it, a bar for the score of each model. UMS, Figure 1.

    Rows with ``part`` "context" are the dialogue (``text``); the others name a reply by ``part`` and have a ``model``
    and its ``score`` between 0 and 1.
    """
    context, replies = data[data["part"] == "context"], data[data["part"] != "context"]
    page, y = Page("Which of the two comes next?"), 0.6
    for number, text in enumerate(context["text"]):
        bottom = page.card(0.25 + 0.4 * (number % 2), y, 8.0, wrapped(text, LETTERS, most=2))
        y = bottom + GAP
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
