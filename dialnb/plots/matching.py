"""DialogueCSE: how a response meets its context (Figure 1), and the matching matrices of real turns."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from pandas import DataFrame

from dialnb.plots.sketch import Page, wrapped
from dialnb.plots.style import BLUE, GREEN, ORANGE, RED, SOFT, WIDE, canvas, drawn_from

CELL, VECTOR = 0.115, 6
"""Inches of one token in a drawn matrix, and the cells of a vector, whatever its true width."""
ENCODED, MATCHED, SEEN, POOLED = 3.05, 4.75, 6.35, 7.7
"""Where the columns of the drawing begin."""
SEEN_NAME = r"$\hat{R}_i = M_i R$"


@drawn_from("role", "text", "tokens", "width")
def architecture(data: DataFrame, *, candidates: int = 10) -> Figure:
    """Texts one a row, with ``role`` (context turns, then "response", then "negative"), ``tokens`` and ``width``.

    Every text goes through the same encoder. A turn of n tokens and a response of m give a matching matrix of n x m,
    which turns the response into its version as seen from that turn; their mean is compared with the response itself.
    """
    (response,) = data[data["role"] == "response"].itertuples()
    turns = data[~data["role"].isin(("response", "negative"))]
    width, m = response.width, response.tokens
    page, top, middles = Page("Matching-guided embedding"), 0.8, []
    for x, name in {
        0.25: "text",
        ENCODED: "encoder output",
        MATCHED: "matching $M_i$",
        SEEN: SEEN_NAME,
    }.items():
        page.text(x, 0.58, name, SOFT)
    for row in turns.itertuples():
        height = _height(row.tokens)
        y = top + height / 2
        _encoded(page, y, f"$u_{{k{row.role[1:]}}}$", row, BLUE)
        page.arrow((ENCODED + 0.8, y), (MATCHED - 0.1, y), lw=1)
        _matrix(page, MATCHED, y, row.tokens, m, GREEN, f"{row.tokens}×{m}")
        page.arrow((MATCHED + 0.1 + CELL * m, y), (SEEN - 0.1, y), lw=1)
        _matrix(page, SEEN, y, row.tokens, VECTOR, GREEN, f"{row.tokens}×{width}")
        middles.append(y)
        top += height
    mean_y, own_y = float(np.mean(middles)), top + _height(m) / 2 + 0.1
    for y in middles:
        page.arrow((SEEN + 0.8, y), (POOLED - 0.08, mean_y), lw=1)
    _encoded(page, own_y, "$r$", response, ORANGE)
    page.arrow((ENCODED + 0.8, own_y), (POOLED - 0.1, own_y), lw=1)
    page.text(6.6, own_y - 0.13, "mean over tokens", SOFT, ha="center")
    page.arrow((MATCHED + CELL * m / 2, own_y), (MATCHED + CELL * m / 2, top - 0.02), lw=1)
    page.text(POOLED, mean_y - 0.36, f"mean over {len(turns)} turns", size="small")  # beside the arrows
    for y, name, colour in ((mean_y, r"$\tilde{r}$", GREEN), (own_y, "$r$", ORANGE)):
        _matrix(page, POOLED, y, 1, VECTOR, colour, name)
        page.text(POOLED + 0.35, y + 0.2, f"pooled, {width}", SOFT, ha="center", size="small")
    page.line([8.55, 8.7, 8.7, 8.55], [mean_y, mean_y, own_y, own_y])
    page.text(8.62, (mean_y + own_y) / 2, "cos", weight="bold", ha="right")
    foot = own_y + _height(m) / 2
    example = wrapped(data[data["role"] == "negative"]["text"].iloc[0], 44, most=1).rstrip(".")
    sampled = f"The same context meets {candidates - 1} sampled responses too, such as “{example}”."
    loss = rf"Loss: cross-entropy of the true response among the {candidates}, with cos$/\tau$ as score."
    page.text(0.25, foot + 0.3, sampled, RED)
    page.text(0.25, foot + 0.6, loss)
    page.text(0.25, foot + 0.9, "At test time only the encoder is used: the mean over tokens.", SOFT)
    return page.cut(foot + 1.1)


def _height(tokens: int) -> float:
    """Inches that a text with its matrices takes."""
    return max(0.75, CELL * tokens + 0.3)


def _encoded(
    page: Page,
    y: float,
    name: str,
    row: Any,
    colour: str,
) -> None:
    """A text on its card, and the vectors of its tokens."""
    page.text(0.68, y, name, colour, ha="right")
    page.card(0.75, y - 0.24, 1.85, wrapped(row.text, 24, most=2), colour, height=0.48, size="small")
    page.arrow((2.65, y), (ENCODED - 0.08, y), lw=1)
    _matrix(page, ENCODED, y, row.tokens, VECTOR, colour, f"{row.tokens}×{row.width}")


def _matrix(
    page: Page,
    x: float,
    y: float,
    rows: int,
    columns: int,
    colour: str,
    name: str,
) -> None:
    """A grid of cells in shades of a colour, which mean nothing, with its name above."""
    from seaborn import light_palette  # takes seconds to import

    i, j = np.indices((rows, columns))
    shades = 0.2 + 0.055 * ((7 * i + 5 * j + i * j) % 11)
    top = y - CELL * rows / 2
    xs, ys = x + CELL * np.arange(columns + 1), top + CELL * np.arange(rows + 1)
    shade = light_palette(colour, as_cmap=True)
    page.axes.pcolormesh(xs, ys, shades, cmap=shade, vmin=0, vmax=1, edgecolor="white", lw=0.8)
    page.text(xs.mean(), top - 0.12, name, ha="center", size="small")


@drawn_from("model", "turn", "row", "word", "column", "response", "value")
def matching_matrices(data: DataFrame) -> Figure:
    """Matrices with cells ``value`` at (``row``, ``column``), named ``word`` and ``response``; a row of panels for each
    ``model``, a column for each ``turn``. Colours are centred on zero, each panel on its own scale."""
    from seaborn import heatmap

    models, turns = data["model"].unique(), data["turn"].unique()
    figure = canvas(WIDE, (0.2 * data["row"].max() + 1.45) * len(models) + 0.3)
    grid = figure.subplots(len(models), len(turns), squeeze=False)
    figure.suptitle("Which tokens of a turn meet which of the response")
    for axes, ((model, turn), part) in zip(grid.flat, data.groupby(["model", "turn"], sort=False)):
        matrix = part.pivot(index="row", columns="column", values="value")
        limit = matrix.abs().max(axis=None)
        heatmap(
            matrix,
            cmap="PuOr_r",
            vmin=-limit,
            vmax=limit,
            cbar_kws={"aspect": 40},
            ax=axes,
            yticklabels=part.groupby("row")["word"].first(),
            xticklabels=part.groupby("column")["response"].first() if model == models[-1] else False,
        )
        axes.tick_params(length=0, labelsize="x-small")
        axes.tick_params("y", rotation=0)
        axes.set(xlabel="", ylabel=model if turn == turns[0] else "")
        if model == models[0]:
            axes.set_title(f"turn {turn}")
    return figure
