"""What a paper's own cells say: its tables as tidy rows, and what they give for a claim."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pandas as pd
from pandas import DataFrame

from dialnb.claims import evidence
from dialnb.claims.case import Case
from dialnb.claims.comparison import row_selectors
from dialnb.claims.definitions import Claim
from dialnb.claims.intervals import crossed_interval
from dialnb.claims.papers import FLOORS, Fields, Table, dataset_name, load_cells, load_paper, select
from dialnb.errors import DataError
from dialnb.files import Values, as_list

UNPRINTED = ("protocol", "ties")
"""Columns on which no printed table differs from itself."""


@cache
def printed_rows(slug: str) -> pd.DataFrame:
    """All printed cells as the tidy rows that would answer them (`papers/<slug>/cells.yaml`, read the other way round).

    Rows that stand for several models, and floors, are left out; of several datasets the first is the paper's.
    """
    found = []
    for table in load_paper(slug).tables.values():
        for row in _rows_of(table, load_cells(slug).get("tables", {}).get(table.id) or {}):
            if not isinstance(row["model"], list) and row["model"] not in FLOORS:
                found.append({name: as_list(one)[0] for name, one in row.items()})
    return pd.DataFrame(found)


def _rows_of(table: Table, spec: Fields) -> Iterator[Fields]:
    """The cells of one table; averages and summaries get the metric of their column's name, `ratios` are computed."""
    summaries = [*(check["column"] for check in table.average_checks), *spec.get("derived", {})]
    columns = {column: {"metric": column} for column in summaries}
    columns |= spec.get("columns", {}) | spec.get("printed", {})
    for row in table.rows:
        where = row_selectors(spec, row.labels) | {"table": table.id}
        cells: Values = dict(zip(table.columns, row.values))
        for metric, (one, other) in spec.get("ratios", {}).items():
            if cells[one] and cells[other]:
                yield where | {"metric": metric, "value": cells[one] / cells[other]}
        for column, selectors in columns.items():
            if isinstance(cells.get(column), int | float):
                yield where | selectors | {"value": float(cells[column])}


@cache
def stands_for(slug: str) -> dict[str, set[str]]:
    """For each dataset of a paper itself and what stands in for it here, as names are compared."""
    found: dict[str, set[str]] = {}
    for table in load_cells(slug).get("tables", {}).values():
        for where in ((table or {}).get("where", {}), *(table or {}).get("columns", {}).values()):
            names = [dataset_name(name) for name in as_list(where.get("dataset", []))]
            if names:
                found.setdefault(as_list(where["dataset"])[0], set()).update(names)
    for name in printed_rows(slug).get("dataset", pd.Series(dtype=object)).dropna().unique():
        found.setdefault(name, {dataset_name(name)})
    return found


@cache
def printed_case(slug: str) -> Case:
    """What a paper prints, as a case of its own."""
    return Case(printed_rows(slug), slug, printed=True)


def put_to_print(claim: Claim, slug: str, **changes: Any) -> Claim:
    """The claim as it is asked of the paper's cells, which say nothing of single items and readings."""
    asked = replace(claim, **{**claim.printed, **changes}, paired_over="seeds", readings={})
    known = printed_case(slug).results
    return replace(
        asked, rows={name: one for name, one in asked.rows.items() if name in known and name not in UNPRINTED}
    )


def printed_gain(claim: Claim, case: Case, rows: DataFrame, better: Fields, worse: Fields) -> float | None:
    """The gain that the paper's cells give for a comparison, on those of its datasets that were measured here; where
    they have other models than ours, the least of theirs."""
    slug = case.slug
    if not slug or case.printed or claim.id in case.silent:
        return None
    if "pairs" in claim.printed:
        asked, pairs = put_to_print(claim, slug), claim.printed["pairs"]
    else:
        wanted = dict(replace(claim, **claim.printed).rows)
        if claim.each:
            wanted[claim.each] = rows[claim.each].unique().tolist()
        if "dataset" in rows:
            here = {dataset_name(name) for name in rows["dataset"].unique()}
            wanted["dataset"] = [*(name for name, all_of in stands_for(slug).items() if here & all_of), None]
        asked, pairs = put_to_print(replace(claim, printed={}), slug, rows=wanted), [(better, worse)]
    printed = select(printed_case(slug).results, asked.rows)
    gains = []
    for pair in pairs:
        try:
            terms = evidence.terms_of(asked, *pair)
            strata = evidence.strata(evidence.gains(printed, terms, asked.by))
            gains.append(crossed_interval(strata).scaled(-1 if claim.lower else 1).estimate)
        except DataError:
            continue
    return min(gains, default=None)
