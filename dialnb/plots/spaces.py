"""Embedding spaces: projections side by side, and uniformity against alignment."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from pandas import DataFrame

from dialnb.files import Values
from dialnb.plots.sketch import wrapped
from dialnb.plots.style import (
    INK,
    LINE,
    SOFT,
    WIDE,
    Look,
    canvas,
    drawn_from,
    legend_below,
    looks,
    panels_two_abreast,
    split,
)

SIZES = {"*": 55, ".": 45}
"""Areas of the markers that look smaller than the others."""
GREY, CIRCLE = (LINE, ".", None), (INK, "o", None)


@drawn_from("x", "y", "{panels}", "label", "{rows}", "{pair}")
def projection_panels(
    data: DataFrame,
    *,
    panels: str = "model",
    rows: str = "",
    pair: str = "",
    circles: Sequence[str] = ("out of scope",),
    grey: Sequence[str] = ("random response",),
    title: str = "",
) -> Figure:
    """A panel for each model (and a row for each value of ``rows``): points ``x``, ``y`` of a projection by label.

    DSE, Figure 1. Labels in ``circles`` become open black circles, those in ``grey`` grey dots. Points that share a
    value of the column ``pair`` are joined by a thin line. A column ``preservation`` is printed under its panel.
    """
    models, parts = list(data[panels].unique()), split(data, rows)
    size, beside = min(3.6, (WIDE - 2.1) / len(models)), 1.8
    figure = canvas(size * len(models) + beside + 0.3, (size + 0.3) * len(parts) + 0.4)
    grid = figure.subplots(len(parts), len(models) + 1, squeeze=False, width_ratios=[size] * len(models) + [beside])
    explained: list[str] = []
    for (name, part), (*row, side) in zip(parts.items(), grid):
        plain = [label for label in part["label"].unique() if label not in (*circles, *grey)]
        styles = looks(plain) | dict.fromkeys(grey, GREY) | dict.fromkeys(circles, CIRCLE)
        for model, axes in zip(models, row):
            shown = part[part[panels] == model]
            if pair:
                for _, ends in shown[shown[pair] != ""].groupby(pair):
                    axes.plot(ends["x"], ends["y"], color=SOFT, lw=0.8, zorder=2)
            for label, style in styles.items():
                if label in set(part["label"]):
                    _dots(axes, shown[shown["label"] == label], style, wrapped(str(label).replace("_", " "), 16))
            _frame(axes, shown)
        row[0].set_ylabel(name)
        side.axis("off")
        handles, labels = row[0].get_legend_handles_labels()
        if labels != explained:  # rows with the same labels are explained once
            side.legend(
                handles,
                labels,
                loc="center left",
                bbox_to_anchor=(-0.12, 0.5),
                borderpad=0,
                labelspacing=0.35,
            )
        explained = labels
    for model, axes in zip(models, grid[0]):
        axes.set_title(model)
    figure.suptitle(title or _title(data))
    return figure


def _title(data: DataFrame) -> str:
    method = data["method"].iloc[0] if "method" in data else "Projection"
    return f"{method} of sentence vectors"


def _dots(
    axes: Axes,
    points: DataFrame,
    style: Look,
    label: str = "",
) -> None:
    """Draw the points of one label: in its colour, as small grey dots below all others, or as open circles."""
    colour, marker, _ = style
    look: Values = {"facecolor": colour, "edgecolor": "white", "linewidth": 0.3, "zorder": 3}
    if style == GREY:
        look |= {"edgecolor": "none", "zorder": 1}
    if style == CIRCLE:
        look |= {"facecolor": "none", "edgecolor": colour, "linewidth": 0.8}
    axes.scatter(
        points["x"],
        points["y"],
        s=SIZES.get(marker, 26),
        marker=marker,
        label=label,
        **look,
    )


def _frame(axes: Axes, shown: DataFrame) -> None:
    """A square frame without numbers, and how many neighbours the projection preserved below it."""
    axes.set(xticks=[], yticks=[], box_aspect=1)
    axes.set_aspect("equal", adjustable="datalim")
    axes.spines[:].set(visible=True, color=LINE)
    if "preservation" in shown and len(shown):
        axes.set_xlabel(f"neighbours preserved: {shown['preservation'].iloc[0]:.2f}")


@drawn_from("x", "y", "model", "label")
def highlighted_panels(
    data: DataFrame,
    *,
    highlight: Sequence[str],
    zoom: bool = True,
    title: str = "",
) -> Figure:
    """A panel for each model in which the ``highlight`` labels are coloured and all others grey (TaDSE, Figure 4).

    With ``zoom`` a second row shows the square in which the first two labels meet most.
    """
    models = split(data, "model")
    size = min(3.6, (WIDE - 0.2) / len(models))
    figure = canvas(size * len(models) + 0.2, (size + 0.3) * (1 + zoom) + 1.0)
    figure.set_layout_engine("constrained", h_pad=0.08)
    grid = figure.subplots(1 + zoom, len(models), squeeze=False)
    for column, (name, shown) in zip(grid.T, models.items()):
        for axes in column:
            for label, style in looks(highlight).items():
                _dots(axes, shown[shown["label"] == label], style, label.replace("_", " "))
            _dots(axes, shown[~shown["label"].isin(highlight)], GREY, "other intents")
            _frame(axes, shown)
        column[0].set_title(name)
        if zoom:
            (x, y), side = _meeting(shown, highlight)
            column[0].add_patch(
                Rectangle(
                    (x, y),
                    side,
                    side,
                    fill=False,
                    edgecolor=INK,
                    lw=1.1,
                    zorder=4,
                )
            )
            column[1].set(xlim=(x, x + side), ylim=(y, y + side), xlabel="the square above, larger")
    legend_below(figure, int(figure.get_figwidth() // 2.2))
    figure.suptitle(title or _title(data))
    return figure


def _meeting(data: DataFrame, highlight: Sequence[str]) -> tuple[np.ndarray, float]:
    """Lower left corner and side of the square around a point of the first two labels that holds most of both: most
    of the rarer one, then most of all."""
    everything = data[["x", "y"]].to_numpy(float)
    side = 0.28 * float(np.ptp(everything, axis=0).max())
    labels = data["label"].to_numpy()
    best, held_best = everything.mean(axis=0), (0, 0)
    for place in everything[np.isin(labels, highlight[:2])]:
        inside = labels[(np.abs(everything - place) <= side / 2).all(axis=1)]
        counts = [int((inside == label).sum()) for label in highlight[:2]]
        held = (min(counts), sum(counts))
        if held > held_best:
            best, held_best = place, held
    return best - side / 2, side


@drawn_from("model", "uniformity", "alignment", "{panels}")
def uniformity_alignment(data: DataFrame, *, panels: str = "", title: str = "Shape of the embedding spaces") -> Figure:
    """Each model as a point: ``uniformity`` across, ``alignment`` up; the lower left corner is best at both."""
    parts = split(data, panels)
    figure, grid = panels_two_abreast(len(parts), 2.7, single=7.0)
    for axes, (part, shown) in zip(grid, parts.items()):
        for model, (colour, marker, _) in looks(data["model"]).items():
            points = shown[shown["model"] == model]
            dots = axes.scatter(points["uniformity"], points["alignment"], marker=marker, label=model, zorder=3)
            dots.set(facecolor=(colour, 0.3), edgecolor=colour, sizes=[2 * SIZES.get(marker, 26)])  # two may meet
        axes.set(xlabel="uniformity (lower: more even)", ylabel="alignment (lower: tighter)", title=part or title)
        axes.margins(0.1)
        axes.locator_params(nbins=4)
        axes.grid()
    if panels:
        figure.suptitle(title)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside right center", handlelength=1)
    return figure
