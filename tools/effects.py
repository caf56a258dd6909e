"""`python -m tools.effects [FOLDER]`: draw the printed gains of the headline claims next to the recorded ones.

One figure of all papers, `effects`, and one of each, `<slug>/effects`, at page width; those of column width end in
`-column`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pandas import DataFrame

from dialnb.claims import HOLDS, NEGATIVE, verdicts
from dialnb.claims.papers import SLUGS, load_paper
from dialnb.files import project_root
from dialnb.plots.style import BLUE, INK, LINE, ORANGE, RED, SOFT, STYLE, canvas, drawn_from, save

NUMBERS = ["printed", "estimate", "low", "high"]

COLUMN_WIDTH, PAGE_WIDTH = 3.3, 7.0
"""Inches, at which the figure is printed as it is."""
ROW = 0.175
"""Inches of a claim."""
FARTHEST = 25
"""Points up to which a printed gain is drawn; of a larger one the number is shown."""
LOOKS: dict[str, dict[str, Any]] = {
    "holds": {"color": BLUE, "marker": "o", "markerfacecolor": BLUE},
    "does not": {"color": RED, "marker": "s", "markerfacecolor": RED},
    "undecided": {"color": INK, "marker": "^", "markerfacecolor": "white"},
}
"""How ours look, by what came out; of any other outcome its words are shown."""
PRINTED: dict[str, Any] = {
    "color": ORANGE,
    "marker": "D",
    "markerfacecolor": "none",
    "markeredgewidth": 1.2,
    "linestyle": "",
}


def headlines() -> DataFrame:
    """The headline claims of the records, in points of a hundred."""
    frame = verdicts()
    frame = frame[frame["headline"].astype(bool) & frame["slug"].isin(SLUGS)].copy()
    points = (frame["slug"] == "ums").map({True: 100.0, False: 1.0})  # its scores are fractions
    frame[NUMBERS] = frame[NUMBERS].astype(float).mul(points, axis=0)
    frame["outcome"] = frame["verdict"].replace({HOLDS: "holds"} | dict.fromkeys(NEGATIVE, "does not"))
    return frame.assign(paper=frame["slug"].map(lambda slug: load_paper(slug).name))


@drawn_from("paper", "headline", "outcome", "printed", "estimate", "low", "high")
def printed_and_ours(data: DataFrame, *, width: float = PAGE_WIDTH) -> Figure:
    """Draw a row for each claim, under its paper: the printed gain, ours with its 95 % interval, in points."""
    papers = data.groupby("paper", sort=False)
    rows = len(data) + len(papers)
    small = width < 5
    size = 6.5 if small else 8
    figure = canvas(width, rows * ROW + 0.85, layout=None)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_position(_frame(figure, small))
    axes.axvline(0, color=SOFT, lw=0.8, zorder=0)
    place, places, labels = 0, [], []
    for name, claims in papers:
        places.append(place)
        labels.append(name)
        place += 1
        for claim in claims.itertuples():
            axes.axhline(place, color=LINE, lw=0.4, zorder=0)
            look = LOOKS.get(claim.outcome)
            if look is None:
                axes.text(0.4, place, claim.outcome, color=SOFT, fontsize=size, va="center")
            else:
                axes.plot([claim.low, claim.high], [place, place], color=look["color"], lw=1.6, solid_capstyle="butt")
                axes.plot(claim.estimate, place, markersize=4.2, **look)
                if claim.printed > FARTHEST:
                    words = f"{claim.printed:.0f} →"
                    axes.text(FARTHEST, place, words, color=INK, fontsize=size, va="center", ha="right")
                else:
                    axes.plot(claim.printed, place, markersize=4.6, zorder=3, **PRINTED)
            places.append(place)
            labels.append(claim.headline)
            place += 1
    axes.set_ylim(place - 0.4, -0.6)
    axes.set_yticks(places, labels, fontsize=size)
    names = {*data["paper"]}
    for label in axes.get_yticklabels():
        label.set_fontweight("bold" if label.get_text() in names else "normal")
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=size)
    axes.set_xlabel("gain in points, with 95 % interval", fontsize=size)
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    axes.grid(False)
    handles = [Line2D([], [], label="printed", markersize=4.6, **PRINTED)]
    handles += [Line2D([], [], label=f"ours: {name}", markersize=4.2, lw=1.6, **look) for name, look in LOOKS.items()]
    columns = 2 if small else 4
    figure.legend(handles=handles, loc="lower center", ncols=columns, fontsize=size, frameon=False)
    return figure


def _frame(figure: Figure, small: bool) -> tuple[float, float, float, float]:
    """Where the axes stand: room for names on the left, for the scale and the legend below."""
    width, height = figure.get_size_inches()
    left, below = (1.55 / width, 0.72 / height) if small else (2.1 / width, 0.62 / height)
    return left, below, 0.98 - left, 1 - below - 0.05 / height


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw and save all of them, as PNG and SVG."""
    given = sys.argv[1:] if arguments is None else arguments
    folder = Path(given[0]) if given else project_root() / "figures"
    claims = headlines()
    for slug in ("", *SLUGS):
        shown = claims[claims["slug"] == slug] if slug else claims
        for name, width in (("effects", PAGE_WIDTH), ("effects-column", COLUMN_WIDTH)):
            with matplotlib.rc_context(STYLE):
                save(printed_and_ours(shown, width=width), folder / slug / name, ("png", "svg"))


if __name__ == "__main__":
    main()
