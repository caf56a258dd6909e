"""Ranks of several methods on several tasks: the critical-difference diagram, and the grid behind it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from dialnb.plots.style import BLUE, INK, SOFT, WIDE, canvas, in_style, require

ROW = 0.38
"""Inches from one method's label to the next."""


def groups_within(mean_ranks: Mapping[str, float], difference: float) -> list[tuple[str, ...]]:
    """The largest groups of neighbours whose mean ranks lie within ``difference``: what a test cannot tell apart.

    >>> groups_within({"a": 1.0, "b": 2.0, "c": 4.5, "d": 5.0}, 1.5)
    [('a', 'b'), ('c', 'd')]
    """
    order = sorted(mean_ranks, key=mean_ranks.get)
    found: list[tuple[str, ...]] = []
    for start, first in enumerate(order):
        group = tuple(name for name in order[start:] if mean_ranks[name] - mean_ranks[first] <= difference + 1e-12)
        if len(group) > 1 and not (found and set(group) <= set(found[-1])):
            found.append(group)
    return found


@in_style
def critical_difference(data: pd.DataFrame, *, difference: float, title: str = "") -> Figure:
    """Mean ranks on a line, the best on the left; a bar joins methods whose mean ranks differ by less than
    ``difference`` (Demšar 2006).

    ``data`` has a row for each ``method`` and ``task`` with its ``rank``.
    """
    require(data, "critical_difference", ("method", "task", "rank"))
    means = data.groupby("method", sort=False)["rank"].mean().sort_values(kind="stable")
    groups, count = groups_within(means.to_dict(), difference), len(means)
    half = (count + 1) // 2
    depth = 0.35 * len(groups) + 0.5  # between the line and the first label
    figure = canvas(WIDE, 1.5 + ROW * (half + depth))
    axes = figure.subplots()
    axes.set_xlim(1 - 0.42 * (count - 1), count + 0.42 * (count - 1))
    axes.set_ylim(-(half + depth) - 0.2, 2.2)
    axes.axis("off")
    axes.plot([1, count], [0, 0], color=INK, lw=1.2)
    for rank in range(1, count + 1):
        axes.plot([rank, rank], [0, 0.18], color=INK, lw=1.2)
        axes.annotate(str(rank), (rank, 0.28), ha="center", va="bottom")
    axes.plot([1, min(1 + difference, count)], [1.35, 1.35], color=BLUE, lw=3, solid_capstyle="butt")
    cut = "" if 1 + difference <= count else " (longer than the line)"
    axes.annotate(f"critical difference {difference:.2f}{cut}", (1, 1.5), ha="left", va="bottom", color=BLUE)
    for number, group in enumerate(groups):
        ends = [means[group[0]] - 0.06, means[group[-1]] + 0.06]
        axes.plot(ends, [-0.35 * (number + 1)] * 2, color=INK, lw=4, solid_capstyle="round")
    for place, (method, rank) in enumerate(means.items()):
        left = place < half
        level = -(depth + (place if left else count - 1 - place))
        edge = 1 - 0.1 * (count - 1) if left else count + 0.1 * (count - 1)
        axes.plot([rank, rank, edge], [0, level, level], color=SOFT, lw=0.9)
        axes.plot([rank], [0], "o", color=INK, ms=4)
        text = f"{method}  {rank:.2f}" if left else f"{rank:.2f}  {method}"
        axes.annotate(
            text, (edge, level), (-4 if left else 4, 0), textcoords="offset points", va="center",
            ha="right" if left else "left",
        )  # fmt: skip
    axes.set_title(title or f"Mean ranks over {data['task'].nunique()} tasks (1 is best)")
    return figure


@in_style
def rank_grid(data: pd.DataFrame, *, title: str = "Rank on every task (1 is best)") -> Figure:
    """Methods as rows, the best mean rank on top, tasks as columns; the darker a cell, the better the rank in it."""
    require(data, "rank_grid", ("method", "task", "rank"))
    order = data.groupby("method", sort=False)["rank"].mean().sort_values(kind="stable")
    grid = data.pivot_table("rank", "method", "task", sort=False).reindex(order.index)
    count = len(grid)
    figure = canvas(WIDE, 1.7 + ROW * count)
    axes = figure.subplots()
    shades = (count - grid.to_numpy()) / max(1, count - 1)
    axes.imshow(shades, cmap="Blues", vmin=-0.15, vmax=1.8, aspect="auto")
    for (i, j), rank in np.ndenumerate(grid.to_numpy()):
        if np.isfinite(rank):
            best = rank == np.nanmin(grid.to_numpy()[:, j])
            axes.annotate(f"{rank:g}", (j, i), ha="center", va="center", weight="bold" if best else "normal")
    axes.set_xticks(range(grid.shape[1]), grid.columns, rotation=35, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(count), [f"{method}  {order[method]:.2f}" for method in grid.index])
    axes.tick_params(length=0)
    axes.xaxis.tick_top()
    axes.spines[:].set_visible(False)
    axes.set_xticks(np.arange(-0.5, grid.shape[1]), minor=True)
    axes.set_yticks(np.arange(-0.5, count), minor=True)
    axes.grid(which="minor", color="white", lw=2)
    axes.tick_params(which="minor", length=0)
    axes.set_title(title)
    axes.set_xlabel("beside each method: its mean rank", color=SOFT)
    return figure
