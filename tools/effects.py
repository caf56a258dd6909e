"""`python -m tools.effects [FOLDER]`: draw the printed gains of the headline claims next to the recorded ones.

One figure of all papers, `effects`, and one of each, `<slug>/effects`, at page width; those of column width end in
`-column`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import pandas as pd

from dialnb.claims import HOLDS, NEGATIVE, verdicts
from dialnb.claims.papers import SLUGS, load_paper
from dialnb.files import project_root
from dialnb.plots.effects import COLUMN_WIDTH, PAGE_WIDTH, printed_and_ours
from dialnb.plots.style import STYLE, save

NUMBERS = ["printed", "estimate", "low", "high"]


def headlines() -> pd.DataFrame:
    """The headline claims of the records, in points of a hundred."""
    frame = verdicts()
    frame = frame[frame["headline"].astype(bool) & frame["slug"].isin(SLUGS)].copy()
    points = (frame["slug"] == "ums").map({True: 100.0, False: 1.0})  # its scores are fractions
    frame[NUMBERS] = frame[NUMBERS].astype(float).mul(points, axis=0)
    frame["outcome"] = frame["verdict"].replace({HOLDS: "holds"} | dict.fromkeys(NEGATIVE, "does not"))
    return frame.assign(paper=frame["slug"].map(lambda slug: load_paper(slug).name))


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
