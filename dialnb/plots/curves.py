"""Lines and bars with intervals: scores over epochs, over a setting, of several models, and losses over steps."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from pandas import DataFrame, Series, to_datetime

from dialnb.plots.style import (
    COLUMN,
    INK,
    LINE,
    WIDE,
    canvas,
    drawn_from,
    interval_of_seeds,
    legend_below,
    looks,
    panels_two_abreast,
    split,
)

APART = 1000
"""Losses that differ by this factor stand on a logarithmic axis."""
TICKS = 8
"""Up to so many values of a setting are named each on its axis."""


@drawn_from("{panels}", "model", "epoch", "value")
def scores_by_epoch(
    data: DataFrame,
    *,
    panels: str = "task",
    dashed: Sequence[str] = ("DSE-dropout",),
    title: str = "Score after each epoch of training",
    **labels: str,
) -> Figure:
    """One panel per task, one line per model over ``epoch`` (DSE, Figure 3: DSE solid, DSE-dropout dashed).

    The band is the 95 % interval over seeds, where there are several; other columns are averaged over first.
    """
    return sweep(data, x="epoch", line="model", panels=panels, log_x=False, title=title, dashed=dashed, **labels)


@drawn_from("{x}", "value", "{line}", "{panels}")
def sweep(
    data: DataFrame,
    *,
    x: str,
    line: str = "",
    panels: str = "",
    log_x: bool = True,
    x_label: str = "",
    y_label: str = "score (%)",
    title: str = "",
    units: str = "seeds",
    dashed: Sequence[str] | None = None,
) -> Figure:
    """A score over a setting (temperature, batch size, turns, k), with the 95 % interval over seeds as a band.

    Where every panel is a setting of its own, ``x_label`` may name it as ``{panel}``. ``units``: what seeds are.
    Lines named in ``dashed`` are dashed and all others solid; by default each has dashes of its own.
    """
    x_label = x_label or x.replace("_", " ")
    title = title or f"{y_label.split(' (')[0].capitalize()} over {x_label}"
    styles, parts = looks(data[line] if line else [""]), split(data, panels)
    figure, grid = panels_two_abreast(len(parts), 2.5 if panels else 2.6)
    banded = False
    for place, (axes, (name, shown)) in enumerate(zip(grid, parts.items())):
        for label, rows in split(shown, line).items():
            colour, marker, dashes = styles[label]
            if dashed is not None:
                dashes = "--" if label in dashed else "-"
            scores = interval_of_seeds(rows, x)
            (drawn,) = axes.plot(scores.index, scores["mean"], color=colour, linestyle=dashes, label=str(label))
            drawn.set(marker=marker, markeredgecolor="white", markeredgewidth=0.5, markersize=6.5)
            band = scores.dropna()
            if len(band):
                axes.fill_between(band.index, band["low"], band["high"], color=colour, alpha=0.16, lw=0)
                banded = True
        panel = str(name).replace("_", " ")
        axes.set_title(panel or title)
        if place % 2 == 0:
            axes.set_ylabel(y_label)
        if place + 2 >= len(parts) or "{panel}" in x_label:
            axes.set_xlabel(x_label.replace("{panel}", panel))
        _mark_settings(axes, shown[x], log_x)
    if len(parts) > 1:
        figure.suptitle(title)
    bands = [Patch(color=LINE, label=f"95 % interval over {units}")] if banded else []
    legend_below(figure, 2 * min(2, len(parts)), *bands)
    return figure


def _mark_settings(axes: Axes, settings: Series, log_x: bool) -> None:
    """Name every setting on the axis, where they are few."""
    ticks = np.unique(settings.dropna())
    axes.grid(axis="y")
    if log_x:
        axes.set_xscale("log")
    if len(ticks) <= TICKS:
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    elif not log_x and (ticks == ticks.round()).all():
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


@drawn_from("model", "step", "loss", "{panels}")
def training_curves(data: DataFrame, *, panels: str = "") -> Figure:
    """``loss`` over ``step``: every value faint, on top its running mean, half of it from the last tenth of the steps
    so far; below it the learning ``rate``, if given. A column of ``panels`` for each of its values, with steps of its
    own.
    Losses of very different size stand on a logarithmic axis, and so do trainings of very different length."""
    parts, styles = split(data.sort_values("step", kind="stable"), panels), looks(data["model"])
    with_rate = "rate" in data and data["rate"].notna().any()
    ratios = [3, 1] if with_rate else [1]
    many = len(styles) > 3
    figure = canvas(COLUMN * len(parts), 2.4 + 0.9 * len(ratios) + 0.15 * len(styles) * many)
    columns = figure.subplots(len(ratios), len(parts), squeeze=False, sharex="col", sharey="row", height_ratios=ratios)
    for grid, (part, shown) in zip(columns.T, parts.items()):
        losses = grid[0]
        for name, rows in split(shown, "model").items():
            colour, marker, dashes = styles[name]
            smooth = rows["loss"].ewm(halflife="100ms", times=to_datetime(1e9 * np.log1p(rows["step"]))).mean()
            losses.plot(rows["step"], rows["loss"], color=colour, lw=0.7, alpha=0.2)
            losses.plot(
                rows["step"],
                smooth,
                color=colour,
                linestyle=dashes,
                label=name,
                marker=marker,
                markevery=0.15,  # of the picture
            )
            if with_rate:
                grid[1].plot(rows["step"], rows["rate"], color=colour, linestyle=dashes)
                grid[1].set_ylabel("learning\nrate")
                grid[1].ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
        losses.set(ylabel="loss", title=part or "Loss during training")
        losses.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        lengths = shown.groupby("model")["step"].max()
        if lengths.max() > 5 * lengths.min():
            losses.set_xscale("log")
        if 0 < APART * shown["loss"].min() < shown["loss"].max():
            losses.set_yscale("log")
        for axes in grid:
            axes.grid(axis="y")
            axes.label_outer()
        grid[-1].set_xlabel("step")
    if many:
        legend_below(figure, 2)
    else:
        losses.legend()
    return figure


HATCHES = ("", "///", "...", "xx")


@drawn_from("model", "{bar}", "value")
def grouped_bars(
    data: DataFrame,
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
        bars = axes.bar(
            left + place * width,
            means,
            width * 0.94,
            yerr=whiskers,
            ecolor=INK,
            label=str(kind),
            color=colour,
            edgecolor="white",
            hatch=HATCHES[place % len(HATCHES)],
        )
        axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.set_xticks(range(len(groups)), groups)
    axes.set(ylabel=y_label, title=title)
    axes.margins(y=0.12)
    if data["value"].min() >= 0:
        axes.set_ylim(bottom=0)
    axes.grid(axis="y")
    legend_below(figure, len(kinds))
    return figure
