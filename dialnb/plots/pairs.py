"""How DSE makes its pairs (Figure 2), drawn on a real dialogue."""

from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dialnb.plots.sketch import DASHED, Page, wrapped
from dialnb.plots.style import BLUE, CARD, GREEN, ORANGE, RED, SOFT, WIDE, drawn_from

BUBBLE, LETTERS = 3.85, 42
TINTS = (BLUE, ORANGE)


@drawn_from("dialogue", "speaker", "text", "kept")
def pair_construction(
    data: pd.DataFrame, *, title: str = "Consecutive utterances of a dialogue are positive pairs"
) -> Figure:
    """Utterances in order, one a row: ``dialogue``, ``speaker``, ``text`` and ``kept`` (does it pass the word filter?).

    The first dialogue is drawn as bubbles. Neighbours that are both kept are bracketed as a positive pair, others as
    dropped. The first utterance of a second dialogue stands for the rest of the batch: it is a negative.
    """
    first = data["dialogue"] == data["dialogue"].iloc[0]
    here, others = data[first], data[~first]
    codes, speakers = pd.factorize(here["speaker"])
    colors = np.where(here["kept"], np.take(TINTS, codes % 2), SOFT)
    page = Page(title)
    edges = page.dialogue(
        here.assign(color=colors, dashes=np.where(here["kept"], "-", "--")), width=BUBBLE, letters=LETTERS
    )
    for number, (one, two) in enumerate(pairwise(zip(edges, here["kept"])), 1):
        _bracket(page, number, one[0], two[0], one[1] and two[1])
    if len(others):
        _negative(page, others["text"].iloc[0], edges[0])
    foot = edges[-1][1]
    page.text(0.3, foot + 0.3, "A pair is kept if both utterances have more than 3 words.", SOFT)
    card = {"facecolor": CARD, "lw": 1.5}
    key = [Patch(edgecolor=tint, label=who, **card) for who, tint in zip(speakers, TINTS)]
    key.append(Patch(edgecolor=SOFT, linestyle="--", label="too short", **card))
    figure = page.cut(foot + 0.9)
    figure.legend(handles=key, loc="lower left", ncols=3, bbox_to_anchor=(0.015, 0))
    return figure


def _bracket(
    page: Page,
    number: int,
    upper: tuple,
    lower: tuple,
    kept: bool,
) -> None:
    """Join two neighbours at their right edges, from the middle of one to that of the other."""
    high, low = sum(upper[:2]) / 2 + 0.05, sum(lower[:2]) / 2 - 0.05
    x = 0.9 + BUBBLE + 0.25
    look = {"color": GREEN, "lw": 2.2} if kept else {"linestyle": DASHED}
    page.line([upper[2] + 0.05, x, x, lower[2] + 0.05], [high, high, low, low], **look)
    words = {"color": GREEN, "weight": "bold"} if kept else {"color": SOFT}
    kind = "positive" if kept else "dropped"
    page.text(x + 0.12, (high + low) / 2, f"{kind} ({number}, {number + 1})", **words)


def _negative(page: Page, text: str, bubble: tuple) -> None:
    """An utterance of another dialogue at the right, held away from the first one."""
    x, top = 6.55, bubble[0] - 0.05
    bottom = page.card(x, top, WIDE - 0.2 - x, wrapped(text, 23), RED)
    y = (bubble[0] + bubble[1]) / 2 - 0.05
    page.line([bubble[2] + 0.05, x - 0.05], [y, y], RED, lw=1.6, linestyle=DASHED)
    page.text((bubble[2] + 0.5 + x) / 2, y - 0.13, "negative", RED, weight="bold", ha="center")
    page.text(x, bottom + 0.08, "another dialogue\nof the same batch", SOFT, va="top")
