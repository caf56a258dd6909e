"""The paper check: does a claim agree with the cells that the paper itself prints?"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from dialnb.claims import evidence
from dialnb.claims.comparison import row_selectors
from dialnb.claims.definitions import Claim, load_claims
from dialnb.claims.evidence import Lacking
from dialnb.claims.papers import load_cells, load_paper, select
from dialnb.errors import DataError

AGREES, CONTRADICTS, SILENT = "agree", "contradict it", "no numbers"


@cache
def printed_rows(slug: str) -> pd.DataFrame:
    """All printed cells as the tidy rows that would answer them (`papers/<slug>/cells.yaml`, read the other way round).

    Averages and summaries get the metric of their column's name; the `ratios` of cells.yaml are computed.
    """
    found: list[dict[str, Any]] = []
    for table in load_paper(slug).tables.values():
        spec = load_cells(slug).get("tables", {}).get(table.id) or {}
        summaries = [*(check["column"] for check in table.average_checks), *spec.get("derived", {})]
        columns = (
            {column: {"metric": column} for column in summaries} | spec.get("columns", {}) | spec.get("printed", {})
        )
        for row in table.rows:
            where = row_selectors(spec, row.labels)
            cells = dict(zip(table.columns, row.values, strict=True))
            for metric, (one, other) in spec.get("ratios", {}).items():
                if cells[one] and cells[other]:
                    found.append({**where, "table": table.id, "metric": metric, "value": cells[one] / cells[other]})
            for column, value in cells.items():
                if column in columns and isinstance(value, int | float):
                    found.append({**where, **columns[column], "table": table.id, "value": float(value)})
    single = [row for row in found if not isinstance(row.get("model"), list)]
    return evidence.prepared(
        pd.DataFrame([{k: v[0] if isinstance(v, list) else v for k, v in row.items()} for row in single])
    )


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
    except (Lacking, DataError):
        return SILENT


def _parts(claim: Claim, rows: pd.DataFrame) -> list[pd.DataFrame]:
    known = {name: value for name, value in claim.rows.items() if name in rows and name not in ("protocol", "ties")}
    rows = select(rows, known) if len(rows) else rows
    if rows.empty or (claim.each and claim.each not in rows):
        raise Lacking("no printed cells")
    return [part for _, part in rows.groupby(claim.each)] if claim.each else [rows]


def _agree(claim: Claim, rows: pd.DataFrame) -> bool:
    """Do the printed values of one part lie on the claimed side of the line? Comparisons that are not printed count
    neither way; if none is, `Lacking` is raised."""
    sign = -1 if claim.lower else 1
    if claim.kind == "statistic":
        if "between" in claim.statistic:
            raise Lacking("a correlation over the printed models is no check")
        low, high = claim.statistic["range"]
        return bool(rows.value.between(low, high).all())
    if claim.kind == "trend":
        return _trend_agrees(claim, rows, sign)
    found = []
    for better, worse in claim.sides:
        try:
            gap = evidence.differences(rows, better, worse, claim.by, claim.times).value.mean()
            if claim.than is not None:
                gap -= evidence.differences(rows, claim.than["better"], claim.than["worse"], claim.by).value.mean()
            found.append(sign * gap > claim.margin)
        except Lacking:
            continue
    if not found:
        raise Lacking("no printed cells")
    return all(found)


def _trend_agrees(claim: Claim, rows: pd.DataFrame, sign: int) -> bool:
    sides = [claim.better, claim.worse] if claim.worse else [claim.better]
    x, curves = evidence.curves(rows, sides, claim.trend["over"], claim.by, "seeds")
    y, shape, at = sign * curves[0, 0], claim.trend.get("shape", "rising"), claim.trend.get("at")
    if shape in ("rising", "falling"):
        return (np.polyfit(x, y, 1)[0] > 0) == (shape == "rising")
    if shape == "peak":
        return bool(np.isin(x[y.argmax()], np.atleast_1d(at)))
    raise Lacking("read off a figure")
