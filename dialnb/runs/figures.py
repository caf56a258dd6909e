"""Figures of a run, kept with the data they were drawn from, so that they can be drawn again without training."""

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from dialnb import plots
from dialnb.errors import DataError, check_known, in_words
from dialnb.files import Values, make_folder, read_json, read_table, table_at, write_json
from dialnb.limits import regular
from dialnb.plots.style import sheet

FORMATS = ("png", "svg", "pdf")
STYLES: dict[str, Values] = {"paper": {}} | {name: sheet(name) for name in ("slides", "acl")}
"""What a style changes over the project's own look; "paper" is that look. With the letters of "acl" a column is 3.03
inches wide, as in the papers of the ACL, and a wide figure 6.06; fonts are embedded as TrueType."""


def save_figure(
    folder: Path, name: str, figure: Callable | Figure, data: pd.DataFrame, caption: str, alt: str, arguments: dict
) -> Figure:
    """Write PNG, SVG, the data (CSV) and a JSON file with caption, alternative text and how to draw it again: by a
    function of `plots.FIGURES`, else not at all."""
    if not caption or not alt:
        raise DataError(f"figure {name} needs a caption and an alternative text: others read what they cannot see")
    function = None
    if isinstance(figure, Figure):
        drawn = figure
    else:
        function = f"{figure.__module__}:{figure.__qualname__}"
        with matplotlib.rc_context(plots.STYLE):
            drawn = figure(data, **arguments)
    data.to_csv(make_folder(folder) / f"{name}.csv", index=False)
    plots.save(drawn, folder / name)
    about = {"name": name, "caption": caption, "alt": alt, "function": function, "arguments": arguments}
    about |= {"dtypes": {str(column): str(dtype) for column, dtype in data.dtypes.items()}}
    write_json(folder / f"{name}.json", about)
    return drawn


def redraw(
    run: Path, formats: Sequence[str], style: str = "paper", out: Path | None = None, pattern: str = "*"
) -> tuple[list[Path], list[str]]:
    """Draw the figures of a run (whose names fit the pattern) again from their stored data; returns the files, and
    names that cannot be redrawn."""
    check_known("style", style, STYLES)
    for kind in formats:
        check_known("figure format", kind, FORMATS)
    found = sorted((run / "figures").glob(f"{pattern}.json"))
    if not found:
        raise DataError(f"{run / 'figures'} holds no figures with stored data; is {run} the folder of a finished run?")
    written, fixed = [], []
    for path in found:
        with matplotlib.rc_context(plots.STYLE | STYLES[style]):
            try:
                about = read_json(regular(path))
                draw = plots.FIGURES.get(str(about["function"]).partition(":")[2])
                stored = table_at(path.parent, f"{path.stem}.csv")
                if draw is None or stored is None:
                    fixed.append(path.stem)
                    continue
                data = read_table(stored, dtype=about["dtypes"])
                drawn = draw(data, **about["arguments"])
            except Exception as error:
                why = in_words(error)
                raise DataError(f"{path} does not say how to draw {path.stem} again ({why}); run it again") from error
            name = path.stem if style == "paper" else f"{path.stem}-{style}"
            written += plots.save(drawn, (out or run / "figures") / name, formats)
    return written, fixed
