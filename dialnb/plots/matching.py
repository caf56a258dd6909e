"""DialogueCSE: how a response meets its context (Figure 1), and the matching matrices of real turns."""

from __future__ import annotations

from textwrap import shorten

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from dialnb.plots.style import BLUE, CARD, GREEN, INK, ORANGE, RED, SOFT, WIDE, canvas, in_style, require

CELL = 0.115
"""Inches of one token in a drawn matrix; a vector is as wide as six of them, whatever its true width."""


@in_style
def architecture(data: pd.DataFrame, *, candidates: int = 10, title: str = "Matching-guided embedding") -> Figure:
    """Texts one a row, with ``role`` (context turns, then "response", then "negative"), ``tokens`` and ``width``.

    Every text goes through the same encoder. A turn of n tokens and a response of m give a matching matrix of n x m,
    which turns the response into its version as seen from that turn; their mean is compared with the response itself.
    """
    require(data, "architecture", ("role", "text", "tokens", "width"))
    turns = data[~data["role"].isin(("response", "negative"))]
    (response,) = data[data["role"] == "response"].itertuples()
    d, m, n_turns = int(data["width"].iloc[0]), int(response.tokens), len(turns)
    heights = [max(0.75, CELL * n + 0.3) for n in turns["tokens"]]
    total = sum(heights) + max(0.75, CELL * m + 0.3) + 2.35
    figure = canvas(WIDE, total, layout=None)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDE), ylim=(0, total))
    axes.axis("off")
    axes.text(0.2, total - 0.22, title, weight="bold", va="center")
    for x, text in ((0.2, "text"), (3.05, "encoder output"), (4.75, "matching $M_i$"), (6.35, r"$\hat{R}_i = M_i R$")):
        axes.text(x, total - 0.58, text, color=SOFT, va="center")
    top, middles = total - 0.8, []
    for row, height in zip(turns.itertuples(), heights):
        middle, n = top - height / 2, int(row.tokens)
        _text(axes, middle, f"${row.role.replace('u', 'u_{k')}}}$", row.text, BLUE)
        _matrix(axes, 3.05, middle, n, 6, BLUE, f"{n}×{d}")
        _arrow(axes, (3.85, middle), (4.65, middle))
        _matrix(axes, 4.75, middle, n, m, GREEN, f"{n}×{m}")
        _arrow(axes, (4.85 + CELL * m, middle), (6.25, middle))
        _matrix(axes, 6.35, middle, n, 6, GREEN, f"{n}×{d}")
        middles.append(middle)
        top -= height
    aware = sum(middles) / n_turns
    for middle in middles:
        _arrow(axes, (7.15, middle), (7.62, aware))
    _vector(axes, 7.7, aware, GREEN, rf"$\tilde{{r}}$ = mean over {n_turns} turns", f"pooled, {d}")
    height = max(0.75, CELL * m + 0.3)
    own = top - height / 2 - 0.1
    _text(axes, own, "$r$", response.text, ORANGE)
    _matrix(axes, 3.05, own, m, 6, ORANGE, f"{m}×{d}")
    _arrow(axes, (3.85, own), (7.6, own))
    axes.text(6.6, own + 0.13, "mean over tokens", color=SOFT, ha="center", va="center")
    _arrow(axes, (4.75 + CELL * m / 2, own + 0.02), (4.75 + CELL * m / 2, middles[-1] - heights[-1] / 2 + 0.02))
    _vector(axes, 7.7, own, ORANGE, "$r$", f"pooled, {d}")
    centre = (aware + own) / 2
    axes.plot([8.55, 8.7, 8.7, 8.55], [aware, aware, own, own], color=SOFT, lw=1.2)
    axes.text(8.62, centre, "cos", weight="bold", ha="right", va="center", color=INK)
    negative = shorten(str(data[data["role"] == "negative"]["text"].iloc[0]), 44, placeholder=" ...")
    others = f"The same context meets {candidates - 1} sampled responses too, such as “{negative}”."
    axes.text(0.2, 0.72, others, color=RED, va="center")
    axes.text(0.2, 0.42, rf"Loss: cross-entropy of the true response among the {candidates}, with cos$/\tau$ as score.",
              va="center")  # fmt: skip
    axes.text(0.2, 0.14, "At test time only the encoder is used: the mean over tokens.", color=SOFT, va="center")
    return figure


def _text(axes: Axes, middle: float, name: str, text: str, tint: str) -> None:
    box = {"boxstyle": "round,pad=0,rounding_size=0.08", "facecolor": CARD, "edgecolor": tint, "lw": 1.2}
    axes.add_patch(FancyBboxPatch((0.75, middle - 0.24), 1.85, 0.48, **box))
    words, lines = text.split(), ["", ""]
    for word in words:
        line = 0 if len(lines[0]) + len(word) < 23 and not lines[1] else 1
        lines[line] = f"{lines[line]} {word}".strip()
    axes.text(0.83, middle, "\n".join(filter(None, lines)), va="center", size="small", linespacing=1.1)
    axes.text(0.68, middle, name, ha="right", va="center", color=tint)
    _arrow(axes, (2.65, middle), (2.97, middle))


def _matrix(axes: Axes, x: float, middle: float, rows: int, columns: int, tint: str, shape: str) -> None:
    """A grid of cells with its shape above."""
    bottom = middle - rows * CELL / 2 - 0.06
    for i, j in np.ndindex(rows, columns):
        shade = 0.2 + 0.55 * ((7 * i + 5 * j + i * j) % 11) / 10
        corner = (x + j * CELL, bottom + i * CELL)
        axes.add_patch(Rectangle(corner, CELL * 0.9, CELL * 0.9, facecolor=tint, alpha=shade, edgecolor="none"))
    axes.text(x + columns * CELL / 2, bottom + rows * CELL + 0.08, shape, size="small", ha="center", va="center")


def _vector(axes: Axes, x: float, middle: float, tint: str, name: str, shape: str) -> None:
    for j in range(6):
        corner = (x + j * CELL * 1.15, middle - CELL * 0.65)
        axes.add_patch(Rectangle(corner, CELL * 1.05, CELL * 1.3, facecolor=tint, alpha=0.35 + 0.1 * (j * 5 % 6)))
    axes.text(x + 0.4, middle + 0.2, name, ha="center", va="center", size="small")
    axes.text(x + 0.4, middle - 0.2, shape, ha="center", va="center", size="small", color=SOFT)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    look = {"arrowstyle": "-|>", "mutation_scale": 9, "color": SOFT, "lw": 1, "shrinkA": 0, "shrinkB": 0}
    axes.add_patch(FancyArrowPatch(start, end, **look))


@in_style
def matching_matrices(
    data: pd.DataFrame, *, title: str = "Which tokens of a turn meet which of the response"
) -> Figure:
    """Matrices with cells ``value`` at (``row``, ``column``), named ``word`` and ``response``; a row of panels for each
    ``model``, a column for each ``turn``. Colours are centred on zero, each panel on its own scale."""
    require(data, "matching_matrices", ("model", "turn", "row", "word", "column", "response", "value"))
    models, turns = (list(dict.fromkeys(data[name])) for name in ("model", "turn"))
    tallest = int(data["row"].max()) + 1
    figure = canvas(WIDE, (0.2 * tallest + 1.25) * len(models) + 0.3)
    grid = figure.subplots(len(models), len(turns), squeeze=False)
    for (i, model), (j, turn) in ((a, b) for a in enumerate(models) for b in enumerate(turns)):
        part = data[(data["model"] == model) & (data["turn"] == turn)]
        matrix = part.pivot(index="row", columns="column", values="value").to_numpy()
        limit = float(np.abs(matrix).max()) or 1.0
        axes = grid[i, j]
        axes.imshow(matrix, cmap="PuOr_r", vmin=-limit, vmax=limit, aspect="auto")
        words = part.drop_duplicates("row").sort_values("row")["word"]
        names = part.drop_duplicates("column").sort_values("column")["response"]
        axes.set_yticks(range(len(words)), words, size="x-small")
        axes.set_xticks(range(len(names)), names if i == len(models) - 1 else [], rotation=90, size="x-small")
        axes.set_title(f"turn {turn}" if i == 0 else "")
        axes.tick_params(length=0)
        if j == 0:
            axes.set_ylabel(model)
    figure.suptitle(title)
    return figure
