"""Lines with intervals: scores over epochs, scores over a setting, losses over steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from dialnb.evaluation.intervals import mean_interval
from dialnb.plots.style import COLUMN, LINE, WIDE, canvas, in_style, legend_below, looks, require

APART = 1000
"""Losses that differ by this factor stand on a logarithmic axis."""


@in_style
def scores_by_epoch(
    data: pd.DataFrame,
    *,
    panels: str = "task",
    line: str = "model",
    dashed: Sequence[str] = ("DSE-dropout",),
    y_label: str = "score (%)",
    title: str = "Score after each epoch of training",
) -> Figure:
    """One panel per task, one line per model over ``epoch`` (DSE, Figure 3: DSE solid, DSE-dropout dashed).

    The band is the 95 % interval over seeds, where there are several; other columns are averaged over first.
    """
    require(data, "scores_by_epoch", (panels, line, "epoch", "value"))
    style = {name: (c, m, "--" if name in dashed else "-") for name, (c, m, _) in looks(data[line]).items()}
    return _grid(data, panels, line, "epoch", "value", style, y_label, title, "epoch", False)


@in_style
def sweep(
    data: pd.DataFrame,
    *,
    x: str,
    y: str = "value",
    line: str = "",
    panels: str = "",
    log_x: bool = True,
    x_label: str = "",
    y_label: str = "score (%)",
    title: str = "",
    units: str = "seeds",
) -> Figure:
    """A score over a setting (temperature, batch size, turns, k), with the 95 % interval over seeds as a band.

    Where every panel is a setting of its own, ``x_label`` may name it as ``{panel}``. ``units``: what seeds are.
    """
    require(data, "sweep", [column for column in (x, y, line, panels) if column])
    style = looks(data[line] if line else [""])
    x_label = x_label or x.replace("_", " ")
    title = title or f"{y_label.split(' (')[0].capitalize()} over {x_label}"
    return _grid(data, panels, line, x, y, style, y_label, title, x_label, log_x, units)


@in_style
def training_curves(data: pd.DataFrame, *, line: str = "model", title: str = "Loss during training") -> Figure:
    """``loss`` over ``step``: every value faint, its running mean on top; below it the learning ``rate``, if given.
    Losses of very different size stand on a logarithmic axis."""
    require(data, "training_curves", (line, "step", "loss"))
    with_rate = "rate" in data and data["rate"].notna().any()
    below = 0.15 * data[line].nunique() if data[line].nunique() > 3 else 0
    figure = canvas(COLUMN, (4.2 if with_rate else 3.3) + below)
    ratios = [3, 1] if with_rate else [1]
    axes = figure.subplots(len(ratios), squeeze=False, sharex=True, height_ratios=ratios)[:, 0]
    for name, (colour, marker, dashes) in looks(data[line]).items():
        rows = data[data[line] == name].sort_values("step")
        smooth = rows["loss"].ewm(span=max(1, len(rows) / 12)).mean()
        marked = {"marker": marker, "markevery": max(1, len(rows) // 6)}
        axes[0].plot(rows["step"], rows["loss"], color=colour, lw=0.7, alpha=0.35)
        axes[0].plot(rows["step"], smooth, color=colour, linestyle=dashes, label=str(name), **marked)
        if with_rate:
            axes[1].plot(rows["step"], rows["rate"], color=colour, linestyle=dashes)
    axes[0].set(ylabel="loss", title=title)
    if 0 < APART * data["loss"].min() < data["loss"].max():
        axes[0].set_yscale("log")
    axes[0].xaxis.set_major_locator(MaxNLocator(integer=True))
    lines, _ = axes[0].get_legend_handles_labels()
    if len(lines) > 3:
        legend_below(figure, lines, 2)
    else:
        axes[0].legend()
    if with_rate:
        axes[1].set_ylabel("learning\nrate")
        axes[1].ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    for row in axes:
        row.grid(axis="y")
    axes[-1].set_xlabel("step")
    return figure


def _grid(
    data: pd.DataFrame, panels: str, line: str, x: str, y: str, style: dict, y_label: str, title: str, x_label: str,
    log_x: bool, units: str = "seeds",
) -> Figure:  # fmt: skip
    """Panels two abreast, one line per name in ``style``, one legend below all."""
    names = list(dict.fromkeys(data[panels])) if panels else [None]
    columns = min(2, len(names))
    rows = -(-len(names) // columns)
    figure = canvas(COLUMN, 3.6) if len(names) == 1 else canvas(WIDE, 2.5 * rows + 1.0)
    grid = figure.subplots(rows, columns, squeeze=False)
    banded = False
    for place, (axes, name) in enumerate(zip(grid.flat, names)):
        shown = data if name is None else data[data[panels] == name]
        for label, (colour, marker, dashes) in style.items():
            part = shown[shown[line] == label] if line else shown
            banded |= _line(axes, part, x, y, color=colour, marker=marker, linestyle=dashes, label=str(label))
        if log_x:
            axes.set_xscale("log")
        ticks = np.unique(shown[x].dropna())
        if len(ticks) <= 8:
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.minorticks_off()
        elif not log_x:
            axes.xaxis.get_major_locator().set_params(integer=bool((ticks == ticks.round()).all()))
        axes.set(title=str(name or title).replace("_", " "), ylabel=y_label if place % columns == 0 else "")
        if place + columns >= len(names) or "{panel}" in x_label:
            axes.set_xlabel(x_label.replace("{panel}", str(name).replace("_", " ")))
        axes.grid(axis="y")
    for axes in grid.flat[len(names) :]:
        axes.remove()
    if len(names) > 1:
        figure.suptitle(title)
    handles = [handle for handle in grid.flat[0].get_lines() if handle.get_label()] if line else []
    handles += [Patch(color=LINE, label=f"95 % interval over {units}")] if banded else []
    if handles:
        legend_below(figure, handles, 2 * columns)
    return figure


def _line(axes: Axes, data: pd.DataFrame, x: str, y: str, **look) -> bool:
    """Mean over everything but ``x``; a band where several seeds give an interval (then True)."""
    units = data.groupby([x, "seed"] if "seed" in data else [x])[y].mean().dropna()
    intervals = {at: mean_interval(values.to_numpy()) for at, values in units.groupby(level=0)}
    means = [interval.estimate for interval in intervals.values()]
    axes.plot(list(intervals), means, markeredgecolor="white", markeredgewidth=0.5, markersize=6.5, **look)
    known = [at for at, interval in intervals.items() if np.isfinite(interval.low)]
    if known:
        low, high = ([getattr(intervals[at], side) for at in known] for side in ("low", "high"))
        axes.fill_between(known, low, high, color=look["color"], alpha=0.16, lw=0)
    return bool(known)
