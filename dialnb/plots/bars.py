"""Bars beside each other: a share or score of several models, with intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from dialnb.evaluation.intervals import mean_interval
from dialnb.plots.style import COLUMN, INK, WIDE, canvas, in_style, legend_below, looks, require

HATCHES = ("", "///", "...", "xx")


@in_style
def grouped_bars(
    data: pd.DataFrame,
    *,
    x: str = "model",
    bar: str = "",
    value: str = "value",
    y_label: str = "score",
    title: str = "",
) -> Figure:
    """A group of bars for each value of ``x``, one for each value of ``bar``, told apart by colour and hatching.

    Heights are means over everything else, written above the bars; whiskers are 95 % intervals over ``seed``, where
    there are several.
    """
    require(data, "grouped_bars", [column for column in (x, bar, value) if column])
    groups = list(dict.fromkeys(data[x]))
    kinds = list(dict.fromkeys(data[bar])) if bar else [""]
    figure = canvas(WIDE if len(groups) * len(kinds) > 8 else max(COLUMN, 0.8 * len(groups) * len(kinds)), 3.6)
    axes, width = figure.subplots(), 0.8 / len(kinds)
    for place, (kind, (colour, _, _)) in enumerate(looks(kinds).items()):
        shown = data[data[bar] == kind] if bar else data
        at = np.arange(len(groups)) + (place - (len(kinds) - 1) / 2) * width
        found = [_interval(shown[shown[x] == group], value) for group in groups]
        heights = [interval.estimate if interval else np.nan for interval in found]
        look = {"facecolor": colour, "edgecolor": "white", "hatch": HATCHES[place % len(HATCHES)]}
        axes.bar(at, heights, width * 0.94, label=str(kind), **look)
        tops = [i.high if i and np.isfinite(i.high) else h for i, h in zip(found, heights)]
        for left, interval, height, top in zip(at, found, heights, tops):
            if interval and np.isfinite(interval.low):
                axes.plot([left, left], [interval.low, interval.high], color=INK, lw=1.3)
            if np.isfinite(height):
                axes.annotate(
                    f"{height:.2f}", (left, top), (0, 3), textcoords="offset points", ha="center", va="bottom"
                )
    axes.set_xticks(range(len(groups)), groups)
    axes.set(ylabel=y_label, title=title)
    axes.set_ylim(bottom=0 if data[value].min() >= 0 else None, top=axes.get_ylim()[1] * 1.08)
    axes.grid(axis="y")
    if bar:
        legend_below(figure, axes.get_legend_handles_labels()[0], len(kinds))
    return figure


def _interval(rows: pd.DataFrame, value: str):
    """Mean and interval over seeds; None where there is nothing."""
    if rows.empty:
        return None
    return mean_interval((rows.groupby("seed")[value].mean() if "seed" in rows else rows[value]).to_numpy())
