"""Bars beside each other: a share or score of several models, with intervals."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from dialnb.plots.style import (
    COLUMN,
    INK,
    WIDE,
    canvas,
    drawn_from,
    interval_of_seeds,
    legend_below,
    looks,
    split,
)

HATCHES = ("", "///", "...", "xx")


@drawn_from("model", "{bar}", "value")
def grouped_bars(
    data: pd.DataFrame,
    *,
    bar: str,
    y_label: str = "score",
    title: str = "",
) -> Figure:
    """A group of bars for each ``model``, one for each value of ``bar``, told apart by colour and hatching.

    Heights are means over everything else, written above the bars; whiskers are 95 % intervals over ``seed``, where
    there are several.
    """
    groups, kinds = data["model"].unique(), split(data, bar)
    figure = canvas(np.clip(0.8 * len(groups) * len(kinds), COLUMN, WIDE), 3.6)
    axes = figure.subplots()
    width = 0.8 / len(kinds)
    left = np.arange(len(groups)) - 0.4 + width / 2
    for place, (kind, (colour, *_)) in enumerate(looks(kinds).items()):
        scores = interval_of_seeds(kinds[kind], "model").reindex(groups)
        means = scores["mean"]
        whiskers = np.nan_to_num([means - scores["low"], scores["high"] - means])
        look = {
            "color": colour,
            "edgecolor": "white",
            "hatch": HATCHES[place % len(HATCHES)],
            "ecolor": INK,
        }
        bars = axes.bar(left + place * width, means, width * 0.94, yerr=whiskers, label=str(kind), **look)
        axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.set_xticks(range(len(groups)), groups)
    axes.set(ylabel=y_label, title=title)
    axes.margins(y=0.12)
    if data["value"].min() >= 0:
        axes.set_ylim(bottom=0)
    axes.grid(axis="y")
    legend_below(figure, axes.get_legend_handles_labels()[0], len(kinds))
    return figure
