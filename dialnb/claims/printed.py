"""The paper check: does a claim agree with the cells that the paper itself prints?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from dialnb.claims import evidence
from dialnb.claims.comparison import row_selectors
from dialnb.claims.definitions import Claim, load_claims
from dialnb.claims.evidence import Lacking
from dialnb.claims.papers import Table, load_cells, load_paper, select
from dialnb.claims.rows import prepared
from dialnb.errors import DataError

AGREES, CONTRADICTS, SILENT = "agree", "contradict it", "no numbers"


@cache
def printed_rows(slug: str) -> pd.DataFrame:
    """All printed cells as the tidy rows that would answer them (`papers/<slug>/cells.yaml`, read the other way round).

    Rows that stand for several models are left out; of several datasets the first is the paper's.
    """
    found = []
    for table in load_paper(slug).tables.values():
        for row in _rows_of(table, load_cells(slug).get("tables", {}).get(table.id) or {}):
            if not isinstance(row["model"], list):
                found.append({name: one[0] if isinstance(one, list) else one for name, one in row.items()})
    return prepared(pd.DataFrame(found))


def _rows_of(table: Table, spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The cells of one table; averages and summaries get the metric of their column's name, `ratios` are computed."""
    summaries = [*(check["column"] for check in table.average_checks), *spec.get("derived", {})]
    columns = {column: {"metric": column} for column in summaries}
    columns |= spec.get("columns", {}) | spec.get("printed", {})
    for row in table.rows:
        where = row_selectors(spec, row.labels) | {"table": table.id}
        cells = dict(zip(table.columns, row.values, strict=True))
        for metric, (one, other) in spec.get("ratios", {}).items():
            if cells[one] and cells[other]:
                yield where | {"metric": metric, "value": cells[one] / cells[other]}
        for column, selectors in columns.items():
            if isinstance(cells.get(column), int | float):
                yield where | selectors | {"value": float(cells[column])}


@cache
def paper_checks(slug: str) -> dict[str, str]:
    """What the printed cells of a paper say of each of its claims."""
    return {claim.id: paper_check(claim, slug) for claim in load_claims(slug)}


def paper_check(claim: Claim, slug: str) -> str:
    """What the printed cells say of a claim: they agree, contradict it, or there are none."""
    if claim.kind == "value":
        return AGREES  # the claim is the cell
    claim = replace(claim, **claim.printed)
    try:
        return AGREES if all(_agree(claim, part) for part in _parts(claim, printed_rows(slug))) else CONTRADICTS
    except DataError:
        return SILENT


def _parts(claim: Claim, rows: pd.DataFrame) -> list[pd.DataFrame]:
    unprinted = ("protocol", "ties")
    rows = select(rows, {name: one for name, one in claim.rows.items() if name in rows and name not in unprinted})
    if rows.empty or (claim.each and claim.each not in rows):
        raise Lacking("no printed cells")
    return [part for _, part in rows.groupby(claim.each)] if claim.each else [rows]


def _agree(claim: Claim, rows: pd.DataFrame) -> bool:
    """Do the printed values of one part lie on the claimed side of the line? Comparisons that are not printed count
    neither way; if none is, `Lacking` is raised."""
    if claim.kind == "statistic":
        if "between" in claim.statistic:
            raise Lacking("a correlation over the printed models is no check")
        return bool(rows.value.between(*claim.statistic["range"]).all())
    if claim.kind == "trend":
        return _trend_agrees(claim, rows)
    gaps = []
    for better, worse in claim.sides:
        try:
            gap = evidence.differences(rows, better, worse, claim.by, claim.times).value.mean()
            if claim.than is not None:
                gap -= evidence.differences(rows, claim.than["better"], claim.than["worse"], claim.by).value.mean()
            gaps.append(-gap if claim.lower else gap)
        except Lacking:
            continue
    if not gaps:
        raise Lacking("no printed cells")
    return min(gaps) > claim.margin


def _trend_agrees(claim: Claim, rows: pd.DataFrame) -> bool:
    sides = [claim.better, claim.worse] if claim.worse else [claim.better]
    x, curves = evidence.curves(rows, sides, claim.trend["over"], claim.by, "seeds")
    y = -curves[0, 0] if claim.lower else curves[0, 0]
    shape = claim.trend.get("shape", "rising")
    if shape in ("rising", "falling"):
        return (np.polyfit(x, y, 1)[0] > 0) == (shape == "rising")
    if shape == "peak":
        return bool(np.isin(x[y.argmax()], np.atleast_1d(claim.trend["at"])))
    raise Lacking("read off a figure")
