"""Embedding spaces: projections side by side, and uniformity against alignment."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from dialnb.plots.style import COLUMN, INK, LINE, SOFT, WIDE, canvas, in_style, legend_below, looks, require

SIZES = {"*": 55, ".": 45}
"""Areas of the markers that look smaller than the others."""


@in_style
def projection_panels(
    data: pd.DataFrame,
    *,
    panels: str = "model",
    colour: str = "label",
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
    require(data, "projection_panels", [c for c in ("x", "y", panels, colour, rows, pair) if c])
    across = list(dict.fromkeys(data[panels]))
    down = list(dict.fromkeys(data[rows])) if rows else [""]
    panel, beside = min(3.6, (WIDE - 2.1) / len(across)), 1.8
    figure = canvas(panel * len(across) + beside + 0.3, (panel + 0.3) * len(down) + 0.4)
    grid = figure.subplots(len(down), len(across) + 1, squeeze=False, width_ratios=[panel] * len(across) + [beside])
    for (row, name), (column, model) in product(enumerate(down), enumerate(across)):
        axes, of_row = grid[row, column], data[data[rows] == name] if rows else data
        style = looks(label for label in of_row[colour] if label not in (*circles, *grey))
        style |= dict.fromkeys(grey, (LINE, ".", None)) | dict.fromkeys(circles, (INK, "o", None))
        shown = of_row[of_row[panels] == model]
        if pair:
            for _, ends in shown[shown[pair].notna() & (shown[pair] != "")].groupby(pair):
                axes.plot(ends["x"], ends["y"], color=SOFT, lw=0.8, zorder=2)
        for label, (tint, marker, _) in style.items():
            points = shown[shown[colour] == label]
            if len(points):
                look = {
                    "s": SIZES.get(marker, 26),
                    "facecolor": tint,
                    "edgecolor": "white",
                    "linewidth": 0.3,
                    "zorder": 3,
                }
                look |= {"facecolor": "none", "edgecolor": INK, "linewidth": 0.8} if label in circles else {}
                look |= {"edgecolor": "none", "zorder": 1} if label in grey else {}
                text = fill(str(label).replace("_", " "), 16)
                axes.scatter(points["x"], points["y"], marker=marker, label=text, **look)
        axes.set(xticks=[], yticks=[], title=str(model) if row == 0 else "", ylabel=name if column == 0 else "")
        if "preservation" in shown and len(shown):
            axes.set_xlabel(f"neighbours preserved: {shown['preservation'].iloc[0]:.2f}")
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_box_aspect(1)
        axes.spines[:].set(visible=True, color=LINE)
    explained: list[str] = []
    for *row, side in grid:
        fullest = max(row, key=lambda axes: len(axes.collections))
        handles, labels = fullest.get_legend_handles_labels()
        side.axis("off")
        if labels != explained:  # rows with the same labels are explained once
            side.legend(handles, labels, loc="center left", bbox_to_anchor=(-0.12, 0.5), borderpad=0, handlelength=1.4,
                        handletextpad=0.4, labelspacing=0.35)  # fmt: skip
        explained = labels
    method = data["method"].iloc[0] if "method" in data else "Projection"
    figure.suptitle(title or f"{method} of sentence vectors")
    return figure


@in_style
def highlighted_panels(
    data: pd.DataFrame, *, highlight: Sequence[str], panels: str = "model", colour: str = "label", zoom: bool = True,
    title: str = "",
) -> Figure:  # fmt: skip
    """A panel for each model in which the ``highlight`` labels are coloured and all others grey (TaDSE, Figure 4).

    With ``zoom`` a second row shows the square in which the first two labels meet most.
    """
    require(data, "highlighted_panels", ("x", "y", panels, colour))
    across, style = list(dict.fromkeys(data[panels])), looks(highlight)
    size = min(3.6, (WIDE - 0.2) / len(across))
    figure = canvas(size * len(across) + 0.2, (size + 0.3) * (1 + zoom) + 1.0)
    figure.get_layout_engine().set(h_pad=0.08)
    grid = figure.subplots(1 + zoom, len(across), squeeze=False)
    for column, name in enumerate(across):
        shown = data[data[panels] == name]
        corner, side = _meeting(shown, colour, highlight) if zoom else (np.zeros(2), 0.0)
        for axes in grid[:, column]:
            others = shown[~shown[colour].isin(highlight)]
            axes.scatter(others["x"], others["y"], s=9, color=LINE, edgecolor="none", zorder=1)
            for label, (tint, marker, _) in style.items():
                points, text = shown[shown[colour] == label], str(label).replace("_", " ")
                axes.scatter(points["x"], points["y"], s=SIZES.get(marker, 20), marker=marker, color=tint,
                             edgecolor="white", linewidth=0.3, zorder=3, label=text)  # fmt: skip
            axes.set(xticks=[], yticks=[])
            axes.set_box_aspect(1)
            axes.spines[:].set(visible=True, color=LINE)
        top = grid[0, column]
        top.set_title(str(name))
        top.set_aspect("equal", adjustable="datalim")
        if "preservation" in shown:
            top.set_xlabel(f"neighbours preserved: {shown['preservation'].iloc[0]:.2f}")
        if zoom:
            top.add_patch(Rectangle(corner, side, side, fill=False, edgecolor=INK, lw=1.1, zorder=4))
            grid[1, column].set(xlim=(corner[0], corner[0] + side), ylim=(corner[1], corner[1] + side))
            grid[1, column].set_xlabel("the square above, larger")
    handles, _ = grid[0, 0].get_legend_handles_labels()
    other = Line2D([], [], linestyle="", marker="o", markersize=4, color=LINE, label="other intents")
    legend_below(figure, [*handles, other], int(figure.get_figwidth() // 2.2))
    method = data["method"].iloc[0] if "method" in data else "Projection"
    figure.suptitle(title or f"{method} of sentence vectors")
    return figure


def _meeting(data: pd.DataFrame, colour: str, highlight: Sequence[str]) -> tuple[np.ndarray, float]:
    """Lower left corner and side of the square around a point of the first two labels that holds most of both: most
    of the rarer one, then most of all."""
    first, second = (data[data[colour] == label][["x", "y"]].to_numpy(float) for label in highlight[:2])
    everything = data[["x", "y"]].to_numpy(float)
    side = 0.28 * float(np.ptp(everything, axis=0).max())
    if not len(first) or not len(second):
        return everything.mean(0) - side / 2, side
    centres = np.concatenate([first, second])
    held = [(np.abs(centres[:, None] - part).max(-1) <= side / 2).sum(1) for part in (first, second)]
    best = max(range(len(centres)), key=lambda i: (min(held[0][i], held[1][i]), held[0][i] + held[1][i]))
    return centres[best] - side / 2, side


@in_style
def uniformity_alignment(
    data: pd.DataFrame, *, name: str = "model", panels: str = "", title: str = "Shape of the embedding spaces"
) -> Figure:
    """Each model as a named point: ``uniformity`` across, ``alignment`` up; the lower left corner is best at both."""
    require(data, "uniformity_alignment", [c for c in (name, "uniformity", "alignment", panels) if c])
    parts = list(dict.fromkeys(data[panels])) if panels else [""]
    columns, rows, style = min(2, len(parts)), -(-len(parts) // 2), looks(data[name])
    figure = canvas(COLUMN if columns == 1 else WIDE, 3.5 * rows + 0.3)
    grid = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, part in zip(grid, parts):
        shown = data[data[panels] == part] if panels else data
        for one, x, y in shown[[name, "uniformity", "alignment"]].itertuples(index=False, name=None):
            tint, marker, _ = style[one]
            axes.scatter(x, y, s=2.4 * SIZES.get(marker, 26), marker=marker, color=tint, edgecolor="white", zorder=3)
        axes.set(xlabel="uniformity (lower: more even)", ylabel="alignment (lower: tighter)", title=part or title)
        axes.margins(0.16)
        axes.locator_params(nbins=4)
        axes.grid()
    for axes in grid[len(parts) :]:
        axes.remove()
    if len(parts) > 1:
        figure.suptitle(title)
    figure.draw_without_rendering()
    for axes, part in zip(grid, parts):
        shown = data[data[panels] == part] if panels else data
        points = shown[["uniformity", "alignment"]].to_numpy(float)
        _name_points(axes, points, list(map(str, shown[name])), [style[one][0] for one in shown[name]])
    return figure


def _name_points(axes: Axes, points: np.ndarray, names: Sequence[str], colours: Sequence[str]) -> None:
    """Write each name near its point, where it meets no other point, name, leader line or edge.

    A name prefers to be close, and away from the other points, so that it is read with its own. Names are placed one
    after the other, in the best of some orders: by how crowded the points are, from the left, from below, and back.
    """
    scale, room = axes.figure.dpi / 72, axes.get_window_extent().extents
    places = axes.transData.transform(points)
    measured = [axes.text(0, 0, name) for name in names]
    sizes = [text.get_window_extent().size for text in measured]
    for text in measured:
        text.remove()
    apart = np.linalg.norm(places[:, None] - places[None], axis=-1)
    keys = np.sort(apart, axis=1)[:, 1:3].sum(1), *places.T
    orders = [order for key in keys for order in (np.argsort(key, kind="stable"), np.argsort(-key, kind="stable"))]
    tried = (_places_of_names(order, places, sizes, scale, room) for order in orders)
    _, chosen = min(tried, key=lambda found: found[0])
    for i, (step, held) in chosen.items():
        across, up = ("left", "center", "right")[int(2 * held[0])], ("bottom", "center", "top")[int(2 * held[1])]
        leader = {"arrowstyle": "-", "color": colours[i], "lw": 0.9, "shrinkA": 0, "shrinkB": 3, "relpos": held}
        note = axes.annotate(names[i], points[i], step, textcoords="offset points", arrowprops=leader, ha=across, va=up)
        note.arrow_patch.set_visible(np.linalg.norm(step) > NEAR + 1)
        note.set_in_layout(False)


NEAR = 9
"""Points between a mark and its name where no leader line is needed."""
Place = tuple[np.ndarray, tuple[float, float]]
"""How far a name is from its point, in points of type, and where the name is held (0 to 1, from left and bottom)."""


def _places_of_names(
    order: np.ndarray, places: np.ndarray, sizes: Sequence[np.ndarray], scale: float, room: np.ndarray
) -> tuple[float, dict[int, Place]]:
    """What all names cost that are placed in this order, and the place of each; boxes are (left, low, right, high)."""
    taken = {i: _around(places[[i]], 4.5 * scale) for i in range(len(places))}
    total, chosen = 0.0, {}
    for i in order:
        blocked = np.concatenate([boxes for j, boxes in taken.items() if j != i] or [np.empty((0, 4))])
        best = (np.inf,)
        for distance, angle in product((NEAR, 20, 32, 46, 62, 80, 100), np.arange(16) * np.pi / 8):
            step = distance * np.array([np.cos(angle), np.sin(angle)])
            held = (0.5, int(step[1] < 0)) if abs(step[0]) < 4 else (int(step[0] < 0), 0.5)
            way = places[i] + scale * np.outer(np.arange(distance, 6, -4) / distance, step)
            corner = way[0] - sizes[i] * held
            box = np.concatenate([corner, corner + sizes[i]])
            clashes = 3 * _meets(blocked, box).sum() + _meets(blocked[:, None], np.tile(way, 2)).sum()
            outside = (box[:2] < room[:2]).any() or (box[2:] > room[2:]).any()
            nearer = (np.linalg.norm(places - way[0], axis=1) < distance * scale * 0.99).sum()
            cost = 40 * (clashes + 6 * outside) + 2 * nearer + distance / 10
            if cost < best[0]:
                best = (cost, step, held, np.concatenate([box[None], _around(way, scale)]))
        cost, step, held, boxes = best
        taken[i] = np.concatenate([taken[i], boxes])
        total, chosen[i] = total + cost, (step, held)
    return total, chosen


def _around(places: np.ndarray, radius: float) -> np.ndarray:
    return np.concatenate([places - radius, places + radius], axis=1)


def _meets(boxes: np.ndarray, box: np.ndarray) -> np.ndarray:
    """Whether boxes meet another one, or the point that is both of its corners."""
    return ((boxes[..., :2] < box[..., 2:]) & (boxes[..., 2:] > box[..., :2])).all(-1)
