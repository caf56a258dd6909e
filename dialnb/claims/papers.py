"""What the five papers printed, as data: `papers/<slug>/paper.yaml` in, typed tables and tidy rows out.

A published number is written down once, in the paper's YAML file; notebooks, claims and the report all read it here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

from dialnb.errors import DataError, check_known
from dialnb.files import Fields, as_list, project_root, read_yaml

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

SLUGS = ("dse", "dialoguecse", "tadse", "wmdc", "ums")
"""The five papers, in the order in which the notebooks run (WMDC and TaDSE build on DSE)."""

OWN = ("matrix",)
"""Studies of our own, which run, are judged and are reported like a paper; nothing of their tables was printed."""

STUDIES = (*SLUGS, *OWN)

WORDS = ("TF-IDF", "BM25")
"""Names of the rows that know nothing but which words two texts share."""

FLOORS = ("Chance", *WORDS, "Majority")
"""Names of the rows that learned nothing (`dialnb.claims.case.Case.floor` says which of them a model must be above)."""

Cell = Any
"""A printed value: a number, a text, or None where nothing is printed."""
Labels = Mapping[str, str]
"""What tells a printed row from the others."""


@dataclass(frozen=True)
class Row:
    """One printed row: what identifies it (`model`, `setting`, `backbone` ...) and one value per column."""

    labels: Labels
    values: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """One printed table, or one of ours (kind "own"), which has no printed values and says itself how many decimals it
    shows and whether the "highest" or "lowest" value is best. `average_checks` name the columns that are averages of
    other columns.
    """

    id: str
    caption: str
    kind: str
    unit: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    average_checks: Sequence[Fields] = ()
    notes: Sequence[str] = ()
    decimals: int | None = None
    best: str = ""

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the row labels, in the order of the file."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.labels))

    @property
    def digits(self) -> int:
        """Decimal places the table is printed with: the most that any of its numbers shows, or what it says itself."""
        if self.decimals is not None:
            return self.decimals
        shown = [Decimal(str(value)) for row in self.rows for value in row.values if isinstance(value, float)]
        return max((-int(number.as_tuple().exponent) for number in shown), default=0)


@dataclass(frozen=True)
class Paper:
    """One paper: its tables, its figures in words, and the places where it contradicts itself (`mismatches`)."""

    slug: str
    name: str
    title: str
    venue: str
    tables: Mapping[str, Table]
    figures: Sequence[Mapping[str, str]]
    mismatches: Sequence[Fields]

    @property
    def own(self) -> bool:
        """Is it a study of ours, of which nothing was printed?"""
        return self.slug in OWN


@cache
def load_paper(slug: str) -> Paper:
    """Read one paper's published tables.

    >>> load_paper("dse").tables["T2"].columns[0]
    'Clinc150'
    """
    check_known("paper", slug, STUDIES)
    path = project_root() / "papers" / slug / "paper.yaml"
    return parse_paper(read_yaml(path), where=str(path))


def parse_paper(raw: Fields, where: str) -> Paper:
    """Turn parsed YAML into a `Paper`; a missing field, a doubled id or a ragged row is an error that says where."""
    try:
        tables = [_parse_table(table, where) for table in raw["tables"]]
        head = {field: str(raw[field]) for field in ("slug", "name", "title", "venue")}
    except TypeError as wrong:
        raise DataError(f"{where}: a table has a field that is not known here ({wrong})") from None
    except KeyError as missing:
        raise DataError(f"{where}: expected the field {missing}, found none; add it") from None
    by_id = {table.id: table for table in tables}
    if len(by_id) < len(tables):
        raise DataError(f"{where}: table ids must be unique, found {[table.id for table in tables]}")
    return Paper(**head, tables=by_id, figures=raw.get("figures", ()), mismatches=raw.get("mismatches", ()))


def published(slug: str, table: str) -> pd.DataFrame:
    """The printed table as tidy rows: paper, table, the row labels, column, value, unit; absent cells are left out.

    >>> frame = published("tadse", "T3")
    >>> float(frame.query("model == 'TaDSE' and column == 'SNIPS'").value.item())
    97.0
    """
    import pandas as pd

    found = find_table(slug, table)
    rows = [
        {"paper": slug, "table": found.id, **row.labels, "column": column, "value": value, "unit": found.unit}
        for row in found.rows
        for column, value in zip(found.columns, row.values)
        if value is not None
    ]
    names = ["paper", "table", *found.label_names, "column", "value", "unit"]
    return pd.DataFrame(rows, columns=names).infer_objects()


@cache
def load_cells(slug: str) -> Fields:
    """Which tidy rows answer which printed cell (`papers/<slug>/cells.yaml`), and the paper's own encoders."""
    load_paper(slug)
    return read_yaml(project_root() / "papers" / slug / "cells.yaml")


def select(rows: pd.DataFrame, where: Fields) -> pd.DataFrame:
    """The tidy rows that match every column of `where`; a wanted value may be one value or a list of them.

    Numbers match as numbers (a file may hold 1.0 for 1); datasets match without case and without the prefix that marks
    bundled data; null matches absent values. A column that the rows do not have matches nothing.
    """
    return rows[matches(rows, where)]


def matches(rows: pd.DataFrame, where: Fields) -> np.ndarray:
    """For every row whether `select` keeps it."""
    import numpy as np
    import pandas as pd

    kept = np.ones(len(rows), bool)
    for column, wanted in where.items():
        if column not in rows:
            return np.zeros(len(rows), bool)
        named = {_readable(one, column) for one in as_list(wanted)}
        found = pd.Categorical(rows[column])
        fits = [_readable(value, column) in named for value in (*found.categories, None)]
        kept &= np.array(fits).take(found.codes)  # of absent values -1
    return kept


def _readable(value: Any, column: str) -> float | str:
    """A value as it is compared: the number that it is or spells, else its text; empty where it is absent."""
    if value is None or value != value:
        return ""
    try:
        number = float(value)
        return number if number == number else str(value)  # "nan" may be a name
    except ValueError:
        return dataset_name(value) if column == "dataset" else str(value)


def dataset_name(name: object) -> str:
    """A dataset's name as it is compared: without case, and without the prefix of bundled data."""
    return str(name).casefold().removeprefix("bundled/")


def _parse_table(raw: Fields, where: str) -> Table:
    columns = tuple(raw["columns"])
    rows = []
    for row in raw["rows"]:
        labels = {name: str(value) for name, value in row.items() if name != "values"}
        values = [None] * len(columns) if raw["kind"] == "own" else row["values"]
        if len(values) != len(columns):
            raise DataError(
                f"{where}, table {raw['id']}, row {labels}: expected {len(columns)} values, one per column, "
                f"found {len(values)}"
            )
        rows.append(Row(labels, tuple(values)))
    head = {field: raw[field] for field in ("id", "caption", "kind", "unit")}
    best = "highest" if raw["kind"] == "results" else raw.get("best", "")
    return Table(**{**raw, **head, "columns": columns, "rows": tuple(rows), "best": best})


def find_table(slug: str, table: str) -> Table:
    """A table of a paper; a name that it does not have is an error that lists those that it has."""
    tables = load_paper(slug).tables
    check_known(f"table of {slug}", table, tables)
    return tables[table]
