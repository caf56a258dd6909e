"""The look of every figure: one palette, one style, one way to save, one way to say which columns are missing."""

import io
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from inspect import signature
from math import ceil, nan
from pathlib import Path
from typing import Any, Literal

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from dialnb.claims.intervals import mean_interval
from dialnb.errors import DataError
from dialnb.files import make_folder

INK, SOFT, LINE, CARD = "#1b1f24", "#57606a", "#c9d0d6", "#f7f9fa"
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#a3487f", "#d55e00", "#56b4e9")
"""Colour-blind-safe (after Okabe and Ito); the order is also one of falling contrast in grey."""
BLUE, ORANGE, GREEN, PURPLE, RED, SKY = PALETTE

MORE = (*PALETTE, "#332288", "#8c6d31", "#e377a2", "#6b7a00")
"""For the rare figure with up to ten kinds; beyond six, markers tell more than colours."""

MARKERS = ("s", "^", "D", "v", "P", "X", "*", "<", ">", "p", "h")
DASHES = ("-", (0, (4, 1.8)), (0, (1, 1.4)), (0, (5, 1.5, 1, 1.5)), (0, (8, 2)))
"""As many markers and dashes as are told apart without colour."""

Draw = Callable[..., Figure]
"""A function that draws."""

Look = tuple[str, str, Any]
"""Colour, marker and dashes."""

WIDE, COLUMN = 9.0, 4.5
"""Widths in inches, printed at 7 and 3.4 inches: the letters of 11 points then measure more than 8."""


def sheet(name: str) -> dict[Any, Any]:
    """What a style sheet of this folder sets, and nothing else."""
    path = Path(__file__).with_name(f"{name}.mplstyle")
    return dict(matplotlib.rc_params_from_file(path, use_default_template=False))


STYLE = sheet("dialnb")


def split(data: DataFrame, column: str) -> dict[str, DataFrame]:
    """The rows by the values of a column, in order of appearance; all under "" without a column."""
    return dict(iter(data.groupby(column, sort=False))) if column else {"": data}


def interval_of_seeds(data: DataFrame, by: str) -> DataFrame:
    """``mean``, ``low`` and ``high`` end of the 95 % interval over seeds, a row for each value of the column ``by``;
    what else differs is averaged over first. One seed has no interval: its ends are missing."""
    units = data.groupby([by, "seed"] if "seed" in data else [by])["value"].mean().dropna()
    rows = {}
    for name, values in units.groupby(level=0):
        interval = mean_interval(values.to_numpy())
        ends = (interval.low, interval.high) if len(values) > 1 else (nan, nan)
        rows[name] = interval.estimate, *ends
    return DataFrame.from_dict(rows, orient="index", columns=["mean", "low", "high"])


def panels_two_abreast(count: int, height: float, single: float = COLUMN) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels of this height, and room around them; a single panel may be wider than a column."""
    columns = min(2, count)
    rows = ceil(count / columns)
    figure = canvas(WIDE if columns == 2 else single, height * rows + 1)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[count:]:
        axes.remove()
    return figure, list(grid[:count])


def legend_below(figure: Figure, most: int, *more: Artist) -> None:
    """A legend under the panels of what any of them names, and more, in at most so many columns, and in no more than
    the width of the figure holds."""
    named = {label: one for axes in figure.axes for one, label in zip(*axes.get_legend_handles_labels())}
    handles = [*named.values(), *more]
    for columns in range(min(most, len(handles)), 0, -1):
        legend = figure.legend(handles=handles, loc="outside lower center", ncols=columns)
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()


def save(figure: Figure, stem: Path, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write a figure in several formats beside each other; the same figure always gives the same bytes."""
    paths = [make_folder(stem.parent) / f"{stem.name}.{kind}" for kind in formats]
    dateless = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    for path in paths:
        if path.suffix == ".png":
            path.write_bytes(smaller(png(figure)))
        else:
            with matplotlib.rc_context(style_unless_set()):
                figure.savefig(path, metadata=dateless.get(path.suffix), facecolor="white")
    return paths


def png(figure: Figure, dpi: float | None = None) -> bytes:
    """A figure as a picture, in our style's resolution or another; no word on who made it, so that bytes repeat."""
    stored = io.BytesIO()
    with matplotlib.rc_context(style_unless_set()):
        figure.savefig(
            stored,
            format="png",
            dpi=dpi,
            facecolor="white",
            metadata={"Software": None},
        )
    return stored.getvalue()


def smaller(png: bytes) -> bytes:
    """The same picture in 256 colours in about a quarter of the bytes; chosen to cover all hues, not the most pixels: a
    model is known by its colour, however small its mark; then moved to what they stand for, so that light bands of two
    models keep two colours."""
    from PIL import Image

    stored = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        few = picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=10_000, dither=Image.Dither.NONE)
        few.save(stored, "PNG", optimize=True)
    return min(png, stored.getvalue(), key=len)


def style_unless_set() -> dict[Any, Any]:
    """The project's style, or nothing where the caller has set it already (perhaps with other letters)."""
    return {} if matplotlib.rcParams["svg.hashsalt"] == STYLE["svg.hashsalt"] else STYLE


def drawn_from(*columns: str) -> Callable[[Draw], Draw]:
    """Draw in the project's style, unless the caller has set it already (perhaps with the larger letters of slides),
    from data that have these columns; ``{name}`` is the column that an argument of the figure names, if any."""

    def decorate(draw: Draw) -> Draw:
        usual = {name: argument.default for name, argument in signature(draw).parameters.items()}

        @wraps(draw)
        def styled(data: DataFrame, **arguments: Any) -> Figure:
            needed = [column.format(**usual | arguments) for column in columns]
            require(data, draw.__name__, filter(None, needed))
            with matplotlib.rc_context(style_unless_set()):
                return draw(data, **arguments)

        return styled

    return decorate


def canvas(width: float, height: float, layout: Literal["constrained"] | None = "constrained") -> Figure:
    """An empty figure that grows with the letters: what fits at 11 points fits in the style of slides too."""
    scale = matplotlib.rcParams["font.size"] / STYLE["font.size"]
    return Figure(figsize=(width * scale, height * scale), layout=layout)


def require(data: DataFrame, figure: str, columns: Iterable[str]) -> None:
    """A sentence instead of a KeyError, and no empty pictures."""
    missing = [column for column in columns if column not in data]
    if missing:
        there = ", ".join(map(str, data.columns)) or "none"
        raise DataError(f"{figure} needs the column(s) {', '.join(missing)}; the data has: {there}")
    if data.empty:
        raise DataError(f"{figure} has nothing to draw: the data has no rows")


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Colour, marker and dashes for each distinct name in order of appearance; no two of the first 110 share both
    colour and marker, no two of the first 50 colour and dashes."""
    styles = {}
    for i, name in enumerate(dict.fromkeys(names)):
        dashes = DASHES[(i + i // len(MORE)) % len(DASHES)]
        styles[name] = MORE[i % len(MORE)], MARKERS[i % len(MARKERS)], dashes
    return styles
