"""The picture of the README: the way from bytes to verdicts, with a small sketch of each step."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Rectangle

from dialnb.plots.style import BLUE, CARD, GREEN, INK, LINE, ORANGE, PURPLE, RED, SOFT, STYLE, save


def overview() -> Figure:
    """The picture of the README: bytes, records, examples, encoder, tidy rows, verdicts, each with a small sketch."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, 6.5))
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, 100), ylim=(0, 65))
        axes.axis("off")
        steps = [
            ("Bytes", "sources with hash and licence", BLUE, _sketch_bytes),
            ("Records", "typed dialogues, intents, pairs", ORANGE, _sketch_records),
            ("Examples", "what one training step sees", GREEN, _sketch_examples),
            ("Encoder", "one loop, one objective per paper", PURPLE, _sketch_encoder),
            ("Tidy rows", "task, dataset, metric, seed, value", RED, _sketch_rows),
            ("Verdicts", "each claim, held against its paper", INK, _sketch_verdicts),
        ]
        width, height, gap, left, bottom = 28.0, 27.5, 5.0, 3.0, 2.5
        for number, (title, subtitle, colour, sketch) in enumerate(steps):
            x = left + (number % 3) * (width + gap)
            y = bottom + (1 - number // 3) * (height + gap)
            _card(axes, x, y, width, height, colour, f"{number + 1}", title, subtitle)
            sketch(axes, x + 2, y + 2, colour)
            if number % 3 < 2:
                _arrow(axes, [(x + width + 0.7, y + height / 2), (x + width + gap - 0.7, y + height / 2)])
        middle, top = bottom + height + gap / 2, bottom + height
        right, start = left + 2.5 * width + 2 * gap, left + width / 2
        axes.plot([right, right, start, start], [top + gap - 0.6, middle, middle, middle - 0.4], color=SOFT, lw=1.8)
        _arrow(axes, [(start, middle), (start, top + 0.4)])
    return figure


def _card(
    axes: Axes, x: float, y: float, width: float, height: float, colour: str, number: str, title: str, subtitle: str
) -> None:
    style = "round,pad=0,rounding_size=1.2"
    axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=style, facecolor=CARD, edgecolor=LINE, lw=1))
    axes.add_patch(Circle((x + 3.4, y + height - 3.6), 1.75, facecolor=colour, edgecolor="none"))
    axes.text(x + 3.4, y + height - 3.7, number, color="white", weight="bold", size=12, ha="center", va="center")
    axes.text(x + 6.2, y + height - 3.7, title, weight="bold", size=15, va="center")
    axes.text(x + 2, y + height - 7.6, subtitle, color=SOFT, size=10.5, va="center")


def _arrow(axes: Axes, ends: Sequence[tuple[float, float]]) -> None:
    axes.add_patch(
        FancyArrowPatch(*ends, arrowstyle="-|>", mutation_scale=16, color=SOFT, lw=1.8, shrinkA=0, shrinkB=0)
    )


def _box(axes: Axes, x: float, y: float, width: float, height: float, colour: str, alpha: float = 1.0) -> None:
    style = "round,pad=0,rounding_size=0.8"
    axes.add_patch(
        FancyBboxPatch((x, y), width, height, boxstyle=style, facecolor=colour, edgecolor="none", alpha=alpha)
    )


def _sketch_bytes(axes: Axes, x: float, y: float, colour: str) -> None:
    """Three lines of a file, and the two questions asked of every file."""
    for row, line in enumerate(("7b 22 74 65 78 74 22 3a", "20 22 68 69 20 74 68 65", "72 65 22 7d 0a 7b 22 74")):
        axes.text(x, y + 13 - 2.7 * row, line, family="DejaVu Sans Mono", size=11.5, color=SOFT, va="center")
    for offset, width, label in ((0, 12.4, "sha256 checked"), (13, 11.2, "licence known")):
        _box(axes, x + offset, y + 0.6, width, 3.6, colour, alpha=0.14)
        axes.text(x + offset + width / 2, y + 2.4, label, size=9, color=colour, weight="bold", ha="center", va="center")


def _sketch_records(axes: Axes, x: float, y: float, colour: str) -> None:
    """Two turns of a dialogue with what the record knows of them."""
    _box(axes, x, y + 9.3, 18.5, 4.6, colour, alpha=0.3)
    axes.text(x + 1.2, y + 11.6, "a table for two at 7", size=10.5, va="center")
    axes.text(x + 19.3, y + 11.6, "user", size=9.5, color=SOFT, va="center")
    _box(axes, x + 5.5, y + 3.4, 18.5, 4.6, LINE, alpha=0.6)
    axes.text(x + 6.7, y + 5.7, "for which evening?", size=10.5, va="center")
    axes.text(x + 4.7, y + 5.7, "system", size=9.5, color=SOFT, va="center", ha="right")
    axes.text(x, y + 0.8, "act: request     slot: people = two", size=9.5, color=SOFT, va="center")


def _sketch_examples(axes: Axes, x: float, y: float, colour: str) -> None:
    """A consecutive pair pulled together, the rest of the batch pushed away."""
    anchor, positive = (x + 4, y + 9.6), (x + 19.5, y + 12.4)
    negatives = [(x + 19.5, y + 8.2), (x + 19.5, y + 4.0)]
    axes.plot(*zip(anchor, positive), color=colour, lw=3.2, solid_capstyle="round")
    for negative in negatives:
        axes.plot(*zip(anchor, negative), color=SOFT, lw=1.4, linestyle=(0, (3, 2.5)))
        axes.add_patch(Circle(negative, 1.3, facecolor="white", edgecolor=SOFT, lw=1.6, zorder=3))
    for point in (anchor, positive):
        axes.add_patch(Circle(point, 1.3, facecolor=colour, edgecolor="none", zorder=3))
    axes.text(x, y + 6.3, "utterance", size=9.5, va="center")
    axes.text(x + 11.2, y + 13.4, "next one", size=9.5, color=colour, weight="bold", va="center", ha="center")
    axes.text(x + 11.4, y + 2.7, "rest of the batch", size=9.5, color=SOFT, va="center", ha="center")


def _sketch_encoder(axes: Axes, x: float, y: float, colour: str) -> None:
    """Texts in, vectors out."""
    for row in range(3):
        axes.plot([x, x + (5.0, 3.8, 4.5)[row]], [y + 11 - 3 * row] * 2, color=SOFT, lw=3, solid_capstyle="round")
    _arrow(axes, [(x + 5.9, y + 8), (x + 8.1, y + 8)])
    for layer in range(4):
        _box(axes, x + 8.8, y + 2.8 + 2.75 * layer, 7.4, 2.2, colour, alpha=0.45 + 0.15 * layer)
    _arrow(axes, [(x + 16.8, y + 8), (x + 19, y + 8)])
    shades = ((0.9, 0.3, 0.6), (0.2, 0.8, 0.4), (0.5, 0.15, 1.0))
    for row, line in enumerate(shades):
        for column, shade in enumerate(line):
            corner = (x + 19.6 + 1.5 * column, y + 9.95 - 3 * row)
            axes.add_patch(Rectangle(corner, 1.4, 2.1, facecolor=colour, alpha=shade, edgecolor="none"))
    for centre, label in ((2.3, "texts"), (12.5, "layers"), (21.8, "vectors")):
        axes.text(x + centre, y + 0.5, label, size=9.5, color=SOFT, ha="center", va="center")


def _sketch_rows(axes: Axes, x: float, y: float, colour: str) -> None:
    """The shape of a tidy table; bars stand for values, so that no number is invented."""
    axes.plot([x, x + 24], [y + 11.7] * 2, color=colour, lw=1.8)
    for offset, name in ((0, "dataset"), (10.6, "seed"), (16, "value")):
        axes.text(x + offset, y + 13.3, name, size=9.5, color=colour, weight="bold", va="center")
    rows = (("CLINC150", 0, 6.9), ("CLINC150", 1, 7.4), ("BANKING77", 0, 5.1), ("BANKING77", 1, 4.6))
    for row, (dataset, seed, length) in enumerate(rows):
        height = y + 9.9 - 2.9 * row
        axes.text(x, height, dataset, size=9.5, va="center")
        axes.text(x + 11.9, height, str(seed), size=9.5, va="center", ha="center")
        axes.add_patch(Rectangle((x + 16, height - 0.75), length, 1.5, facecolor=colour, alpha=0.55, edgecolor="none"))


def _sketch_verdicts(axes: Axes, x: float, y: float, colour: str) -> None:
    """The four verdicts: an interval of differences against the line of no difference."""
    zero = x + 15.8
    axes.plot([zero, zero], [y + 1.0, y + 14], color=SOFT, lw=1.3, linestyle=(0, (3, 2)))
    verdicts = (("holds", 4.6, GREEN, "o"), ("fails", -3.0, RED, "s"), ("undecided", 0.7, ORANGE, "D"))
    for row, (label, centre, tint, marker) in enumerate(verdicts):
        height = y + 12.4 - 3.5 * row
        axes.text(x, height, label, size=10.5, weight="bold", va="center")
        axes.plot([zero + centre - 2.3, zero + centre + 2.3], [height] * 2, color=tint, lw=2.8, solid_capstyle="round")
        axes.plot(zero + centre, height, marker=marker, color=tint, markersize=8, markeredgecolor="white")
    axes.text(x, y + 1.9, "not run", size=10.5, weight="bold", color=SOFT, va="center")
    axes.text(zero + 0.9, y + 1.9, "and why", size=9.5, color=SOFT, va="center")


if __name__ == "__main__":
    for written in save(overview(), Path(sys.argv[1]) / "overview"):
        print(written)
