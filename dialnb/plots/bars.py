"""Bars beside each other: a share or score of several models, with intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from dialnb.plots.style import (
    COLUMN,
    INK,
    WIDE,
    canvas,
    in_style,
    interval_of_seeds,
    legend_below,
    looks,
    require,
    split,
)

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
    groups, kinds = data[x].unique(), split(data, bar)
    count = len(groups) * len(kinds)
    figure = canvas(np.clip(0.8 * count, COLUMN, WIDE), 3.6)
    axes = figure.subplots()
    width = 0.8 / len(kinds)
    left = np.arange(len(groups)) - 0.4 + width / 2
    for place, (kind, (colour, *_)) in enumerate(looks(kinds).items()):
        scores = interval_of_seeds(kinds[kind], x, value).reindex(groups)
        means = scores["mean"]
        whiskers = np.nan_to_num([means - scores["low"], scores["high"] - means])
        bars = axes.bar(
            left + place * width,
            means,
            width * 0.94,
            yerr=whiskers,
            label=str(kind),
            color=colour,
            edgecolor="white",
            hatch=HATCHES[place % len(HATCHES)],
            ecolor=INK,
        )
        axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.set_xticks(range(len(groups)), groups)
    axes.set(ylabel=y_label, title=title)
    axes.margins(y=0.12)
    if data[value].min() >= 0:
        axes.set_ylim(bottom=0)
    axes.grid(axis="y")
    if bar:
        legend_below(figure, axes.get_legend_handles_labels()[0], len(kinds))
    return figure
