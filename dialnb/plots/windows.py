"""What WMDC starts from, drawn: how few utterances make up much of a corpus, and one response with its windows."""

import pandas as pd
from matplotlib.figure import Figure

from dialnb.plots.sketch import Page
from dialnb.plots.style import BLUE, GREEN, INK, LINE, ORANGE, PURPLE, SOFT, WIDE, canvas, drawn_from, looks

BUBBLE, LETTERS = 4.3, 46
TINTS = (BLUE, ORANGE, PURPLE)
WINDOWS = len(TINTS)
CLAIMED = (15, 30)
"""Percent of a corpus that the most frequent hundredth of its utterances cover, as the paper says."""


@drawn_from("corpus", "top", "share")
def frequency_share(data: pd.DataFrame, *, whole: str = "all corpora") -> Figure:
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
    mark = {"color": GREEN, "lw": 9, "alpha": 0.45, "solid_capstyle": "butt"}
    axes.plot([1, 1], CLAIMED, label="claimed for the top 1 %", **mark)
    axes.set(xscale="log", xlim=(max(0.001, data["top"].min()), 100), ylim=(0, 100))
    axes.set_title("A few utterances make up much of a corpus")
    axes.set(xlabel="most frequent distinct utterances (%)", ylabel="share of all utterances (%)")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.grid(axis="y")
    figure.legend(loc="outside right center")
    return figure


@drawn_from("speaker", "text", "frequency", "weight")
def window_pairs(data: pd.DataFrame, *, title: str = "One response, and a context for every window") -> Figure:
    """Utterances in order, one a row: ``speaker``, ``text``, ``frequency`` and ``weight``; the last is the response.

    A bracket spans the context of each window and leads to the response, which is the positive of all of them; below
    stand its frequency in the corpus and the weight that follows from it.
    """
    page, response = Page(title), len(data)
    colours = [SOFT] * (response - 1) + [GREEN]
    edges = page.dialogue(data.assign(color=colours, dashes="-"), width=BUBBLE, letters=LETTERS, last_gap=0.3)
    high, low, response_edge = edges[-1]
    start, named = BUBBLE + 0.98, BUBBLE + 1.35 + 0.5 * WINDOWS
    for window in range(1, min(WINDOWS, response - 1) + 1):
        colour = TINTS[window - 1]
        x = start + 0.5 * window - 0.33
        top, bottom = edges[-1 - window][0] + 0.06, edges[-2][1] - 0.05 * window
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
