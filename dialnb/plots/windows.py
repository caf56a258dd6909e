"""What WMDC starts from, drawn: how few utterances make up much of a corpus, and one response with its windows."""

from __future__ import annotations

from textwrap import wrap

import pandas as pd
from matplotlib.figure import Figure

from dialnb.plots.pairs import GAP, LEADING, PAD, bubble
from dialnb.plots.style import BLUE, GREEN, INK, LINE, ORANGE, PURPLE, SKY, SOFT, WIDE, canvas, in_style, looks, require

BUBBLE = 4.3
TINTS = (BLUE, ORANGE, PURPLE, SKY)


@in_style
def frequency_share(
    data: pd.DataFrame,
    *,
    line: str = "corpus",
    whole: str = "all corpora",
    claimed: tuple[float, float] = (15, 30),
    title: str = "A few utterances make up much of a corpus",
) -> Figure:
    """``share`` of a corpus covered by its most frequent utterances, over the part of the distinct ones that these are
    (``top``), both in percent. The line named ``whole`` is thick; the mark at 1 % spans what the paper claims."""
    require(data, "frequency_share", (line, "top", "share"))
    figure = canvas(WIDE, 4.8)
    axes = figure.subplots()
    names = [name for name in dict.fromkeys(data[line]) if name != whole]
    for name, (colour, marker, dashes) in looks(names).items():
        part = data[data[line] == name].sort_values("top")
        marked = {"marker": marker, "markersize": 5, "markevery": max(1, len(part) // 5)}
        axes.plot(part["top"], part["share"], color=colour, linestyle=dashes, lw=1.1, label=str(name), **marked)
    part = data[data[line] == whole].sort_values("top")
    if len(part):
        axes.plot(part["top"], part["share"], color=INK, lw=3, label=whole)
    axes.axvline(1, color=LINE, lw=1, zorder=0)
    axes.plot([1, 1], claimed, color=GREEN, lw=9, alpha=0.45, solid_capstyle="butt", label="claimed for the top 1 %")
    axes.set_xscale("log")
    ticks = [tick for tick in (0.001, 0.01, 0.1, 1, 10, 100) if tick >= data["top"].min()]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set(xlim=(max(0.001, data["top"].min()), 100), ylim=(0, 100), title=title)
    axes.set(xlabel="most frequent distinct utterances (%)", ylabel="share of all utterances (%)")
    axes.grid(axis="y")
    figure.legend(loc="outside right center")
    return figure


@in_style
def window_pairs(
    data: pd.DataFrame, *, windows: int = 3, title: str = "One response, and a context for every window"
) -> Figure:
    """Utterances in order, one a row: ``speaker``, ``text``, ``frequency`` and ``weight``; the last is the response.

    A bracket spans the context of each window and leads to the response, which is the positive of all of them; above
    the response stand its frequency in the corpus and the weight that follows from it.
    """
    require(data, "window_pairs", ("speaker", "text", "frequency", "weight"))
    speakers = list(dict.fromkeys(data["speaker"]))
    lines = [wrap(" ".join(text.split()), 46) for text in data["text"]]
    heights = [2 * PAD + LEADING * len(text) for text in lines]
    total = sum(heights) + GAP * (len(heights) - 1) + 1.75
    figure = canvas(WIDE, total, layout=None)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDE), ylim=(0, total))
    axes.axis("off")
    axes.text(0.3, total - 0.25, title, weight="bold", va="center")
    top, spans = total - 0.6, []
    for place, (row, text, height) in enumerate(zip(data.itertuples(), lines, heights)):
        last = place == len(data) - 1
        top -= 0.3 if last else 0
        x, tint = 0.45 + 0.45 * (speakers.index(row.speaker) % 2), GREEN if last else SOFT
        bubble(axes, x, top, height, text, tint, "-", BUBBLE, place + 1)
        spans.append((top, top - height))
        response_edge = x + BUBBLE
        top -= height + GAP
    (high, low), edge = spans[-1], 0.9 + BUBBLE
    last, named = len(data), edge + 0.45 + 0.5 * windows
    for window in range(min(windows, last - 1), 0, -1):
        x, tint = edge + 0.25 + 0.5 * (window - 1), TINTS[(window - 1) % len(TINTS)]
        first, end = spans[-1 - window][0] - 0.06, spans[-2][1] + 0.05 * window
        into = high - (high - low) * window / (windows + 1)
        axes.plot([edge + 0.08, x, x, edge + 0.08], [first, first, end, end], color=tint, lw=2.2)
        axes.plot([x, x], [end, into], color=tint, lw=1.2, linestyle=(0, (2, 1.5)))
        look = {"arrowstyle": "-|>", "color": tint, "lw": 1.4, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (response_edge + 0.05, into), (x, into), arrowprops=look)
        span = f"{last - window} to {last - 1}" if window > 1 else f"{last - 1}"
        axes.plot([x, named - 0.05], [first - 0.08] * 2, color=tint, lw=0.8, linestyle=(0, (1, 2)))
        axes.text(named, first - 0.08, f"window {window}: {span}", color=tint, weight="bold", va="center")
    final = data.iloc[-1]
    note = (f"The response occurs {int(final['frequency']):,} times in this corpus: "
            f"weight 1 / (log {int(final['frequency']):,} + 1) = {final['weight']:.2f}")  # fmt: skip
    axes.text(0.3, 0.58, note, color=GREEN, weight="bold", va="center")
    axes.text(0.3, 0.28, "Every window has a projection head of its own; negatives are the other pairs of the batch.",
              color=SOFT, va="center")  # fmt: skip
    return figure
