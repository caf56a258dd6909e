"""One renderer for a compared table: the notebook's styled frame, CSV, Markdown, LaTeX and the report start here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import groupby
from operator import attrgetter
from statistics import mode
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader
from pandas import DataFrame

from dialnb.claims.papers import Cell, Table
from dialnb.files import Fields

OWN = "own"
"""The kind of tables of which nothing was printed."""

RAN, SUBSTITUTE, CONSTANT, NOT_RUN = "ran", "substitute", "constant", "not run"
LATEX = str.maketrans(
    {"&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "$": r"\$", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}"}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "−": "$-$", "–": "--"}
)


@dataclass(frozen=True)
class Comparison:
    """One printed table with ours beside it. `rows` is tidy, one row per cell; every view below comes from it.
    `absent` has the models of ours that did not run and have no row, by the reason."""

    slug: str
    table: Table
    rows: DataFrame
    absent: Mapping[str, Sequence[str]] = field(default_factory=dict)
    command: str = ""  # that makes it

    @property
    def labels(self) -> list[str]:
        """Names of the row labels, as printed."""
        return list(self.table.label_names)

    @cached_property
    def digits(self) -> int:
        """Digits after the point: the paper's own for results, none for counts."""
        return self.table.digits if self.table.kind in ("results", "in-text", OWN) else 0

    @property
    def parts(self) -> tuple[str, ...]:
        """What is shown of a cell."""
        return ("ours",) if self.table.kind == OWN else ("ours", "paper", "difference")

    @cached_property
    def grid(self) -> list[Fields]:
        """Rows with labels, status, note and, per column, a cell: its texts, whether it is best, what to sort by."""
        best = self._best()
        found: list[Fields] = []
        for number, group in groupby(self.rows.itertuples(), attrgetter("row")):
            part = list(group)
            status = min((cell.status for cell in part), key=(SUBSTITUTE, RAN, CONSTANT, NOT_RUN).index)
            notes = [cell.note for cell in part if cell.status == status]
            labels = {name: text for name in self.labels if pd.notna(text := getattr(part[0], name))}
            cells = {cell.column: self._cell(cell, (number, cell.column) in best) for cell in part}
            note = mode(notes)
            if status == SUBSTITUTE:  # all that stands in
                note = "; ".join(dict.fromkeys("; ".join(notes).split("; ")))
            found.append({"labels": labels, "status": status, "note": note, "cells": cells})
        return found

    def csv(self) -> str:
        """The tidy rows, numbers unrounded."""
        return self.rows.drop(columns="row").to_csv(index=False, lineterminator="\n")

    def markdown(self) -> str:
        """A pipe table; a cell reads `ours ± interval (paper, difference)`: what is in parentheses was published."""
        return self._render("table.md.j2", "**{}**", lambda text: text.replace("|", "\\|"))

    def latex(self) -> str:
        """A `tabular` with booktabs rules; cells as in Markdown."""
        return self._render("table.tex.j2", r"\textbf{{{}}}", lambda text: text.translate(LATEX))

    def _repr_html_(self) -> str:
        """The styled table: best of ours bold, the paper's values and rows that did not run greyed."""
        return self._render("table.html.j2")

    def _render(self, template: str, bold: str = "", escape: Callable[[str], str] = str) -> str:
        names = ("slug", "table", "labels", "parts", "grid", "absent", "command")
        shown = {name: getattr(self, name) for name in names}
        return render(template, **shown, columns=list(self.table.columns), bold=bold.format, escape=escape)

    def _cell(self, cell: Any, best: bool) -> Fields:
        """The texts of one cell; `facts` is what a reader sees who points at it."""
        ours = "" if pd.isna(cell.ours) else format_cell(cell.ours, self.digits)
        interval = "" if pd.isna(cell.half) else f" ± {cell.half:.{self.digits}f}"
        published = None if pd.isna(cell.published) else cell.published
        seeds = f"{cell.seeds} seeds" if cell.seeds > 1 else ""
        n = f"n = {cell.n:,}" if cell.n else ""
        difference = "" if pd.isna(cell.difference) else f"{cell.difference:+,.{self.table.digits}f}"
        if not self.digits:  # counts of whole things
            difference = difference.removesuffix(f".{0:0{self.table.digits}}")
        return {
            "ours": ours + interval,
            "paper": "" if self.table.kind == OWN else format_cell(published, self.digits),
            "same": "" if pd.isna(cell.same) else format_cell(cell.same, self.digits),
            "note": cell.note,
            "difference": difference.replace("-", "−"),
            "best": best,
            "status": cell.status,
            "sort": cell.published if pd.isna(cell.ours) else cell.ours,
            "facts": "; ".join(filter(None, (seeds, n, cell.note))),
        }

    def _best(self) -> set[tuple[int, str]]:
        """(row, column) of our best values, among rows of one setting, where at least two ran."""
        if not self.table.best:
            return set()
        blocks = [name for name in self.labels if name in ("setting", "threshold", "dataset", "metric", "split")]
        ran = self.rows[self.rows.ours.notna()]
        groups = ran.groupby([*blocks, "column"], dropna=False).ours
        best = groups.transform("max" if self.table.best == "highest" else "min")
        found = ran[(ran.ours == best) & (groups.transform("size") > 1)]
        return set(zip(found.row, found.column))


@cache
def templates(room: str) -> Environment:
    """The templates of a room; in HTML, values are text whatever they hold."""
    return Environment(
        loader=PackageLoader(f"dialnb.{room}", "."),
        autoescape=lambda name: ".html" in (name or ""),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(template: str, room: str = "claims", /, **values: Any) -> str:
    """A template of a room with these values."""
    return templates(room).get_template(template).render(values)


def format_cell(value: Cell, digits: int = 0) -> str:
    """A value as text: results keep their paper's digits, counts get thousands separators, absent is a dash.

    >>> format_cell(97.0, digits=2), format_cell(892835), format_cell(None)
    ('97.00', '892,835', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.{digits}f}" if digits else f"{value:,g}" if abs(value) < 1e5 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
