"""Ranks of several methods on several tasks: the critical-difference diagram, and the grid behind it."""

from collections.abc import Mapping

from matplotlib.figure import Figure
from pandas import DataFrame, Series

from dialnb.plots.style import BLUE, INK, SOFT, WIDE, canvas, drawn_from

ROW = 0.38
"""Inches from one method's label to the next."""


def groups_within(mean_ranks: Mapping[str, float], difference: float) -> list[tuple[str, ...]]:
    """The largest groups of neighbours whose mean ranks lie within ``difference``: what a test cannot tell apart.

    >>> groups_within({"a": 1.0, "b": 2.0, "c": 4.5, "d": 5.0}, 1.5)
    [('a', 'b'), ('c', 'd')]
    """
    means = Series(mean_ranks).sort_values(kind="stable")
    groups: list[tuple[str, ...]] = []
    for start in range(len(means)):
        near = means.iloc[start:] - means.iloc[start] <= difference + 1e-12
        group = tuple(near.index[near])
        inside_last = groups and set(group) <= set(groups[-1])
        if len(group) > 1 and not inside_last:
            groups.append(group)
    return groups


def _ranks(data: DataFrame) -> DataFrame:
    """The rank [method, task] of each method's mean score over trainings, the best mean rank first."""
    from dialnb.claims.ranks import ranks_of  # takes scipy's tests with it

    ranks = ranks_of(data.pivot_table("value", "method", "task", sort=False))
    return ranks.loc[ranks.mean(axis=1).sort_values(kind="stable").index]


@drawn_from("method", "task", "value")
def critical_difference(data: DataFrame, *, difference: float) -> Figure:
    """Mean ranks on a line, the best on the left; a bar joins methods whose mean ranks differ by less than
    ``difference`` (Demšar 2006).

    ``data`` has a row for each ``method`` and ``task`` with its score as ``value``, once for each training.
    """
    means = _ranks(data).mean(axis=1)
    groups, count = groups_within(means, difference), len(means)
    half = (count + 1) // 2
    first_label = 0.35 * len(groups) + 0.5
    figure = canvas(WIDE, 1.5 + ROW * (half + first_label))
    axes = figure.subplots()
    axes.axis("off")
    axes.set(xlim=(1.42 - 0.42 * count, 1.42 * count - 0.42), ylim=(half + first_label + 0.2, -2.2))
    axes.set_title(f"Mean ranks over {data['task'].nunique()} tasks (1 is best)")
    axes.plot([1, count], [0, 0], color=INK, lw=1.2)
    for rank in range(1, count + 1):
        axes.plot([rank, rank], [0, -0.18], color=INK, lw=1.2)
        axes.text(rank, -0.28, str(rank), ha="center", va="bottom")
    axes.plot([1, min(1 + difference, count)], [-1.35, -1.35], color=BLUE, lw=3, solid_capstyle="butt")
    cut = "" if 1 + difference <= count else " (longer than the line)"
    axes.text(1, -1.5, f"critical difference {difference:.2f}{cut}", va="bottom", color=BLUE)
    for number, group in enumerate(groups, 1):
        ends = [means[group[0]] - 0.06, means[group[-1]] + 0.06]
        axes.plot(ends, [0.35 * number] * 2, color=INK, lw=4, solid_capstyle="round")
    for place, (method, rank) in enumerate(means.items()):
        if place < half:
            level, edge, side, text = place, 1.1 - 0.1 * count, "right", f"{method}  {rank:.2f} "
        else:
            level, edge, side, text = count - 1 - place, 1.1 * count - 0.1, "left", f" {rank:.2f}  {method}"
        y = first_label + level
        axes.plot([rank, rank, edge], [0, y, y], color=SOFT, lw=0.9)
        axes.plot([rank], [0], "o", color=INK, ms=4)
        axes.text(edge, y, text, ha=side, va="center")
    return figure


@drawn_from("method", "task", "value")
def rank_grid(data: DataFrame) -> Figure:
    """Methods as rows, the best mean rank on top, tasks as columns; the darker a cell, the better the rank in it."""
    from seaborn import heatmap  # takes seconds to import

    grid = _ranks(data)
    figure = canvas(WIDE, 1.7 + ROW * len(grid))
    axes = figure.subplots()
    # Only the light half of the colours is used: black figures stay readable on it.
    heatmap(
        grid,
        cmap="Blues_r",
        vmin=1 - 0.8 * len(grid),
        vmax=1.15 * len(grid),
        annot=True,
        fmt="g",
        cbar=False,
        lw=2,
        annot_kws={"color": INK},
        ax=axes,
    )
    best = grid.eq(grid.min()).to_numpy().ravel()
    for text, first in zip(axes.texts, best):
        text.set_fontweight("bold" if first else "normal")
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_xticks(axes.get_xticks(), grid.columns, rotation=35, ha="left", rotation_mode="anchor")
    axes.set_yticks(axes.get_yticks(), [f"{method}  {mean:.2f}" for method, mean in grid.mean(axis=1).items()])
    axes.set(title="Rank on every task (1 is best)", ylabel="")
    axes.set_xlabel("beside each method: its mean rank", color=SOFT)
    return figure
