"""The cells that a paper prints, as tidy rows: what its claims are judged on first."""

from collections.abc import Iterator
from functools import cache

import pandas as pd

from dialnb.claims.comparison import row_selectors
from dialnb.claims.papers import FLOORS, Fields, Table, load_cells, load_paper


@cache
def printed_rows(slug: str) -> pd.DataFrame:
    """All printed cells as the tidy rows that would answer them (`papers/<slug>/cells.yaml`, read the other way round).

    Rows that stand for several models, and floors, are left out; of several datasets the first is the paper's.
    """
    found = []
    for table in load_paper(slug).tables.values():
        for row in _rows_of(table, load_cells(slug).get("tables", {}).get(table.id) or {}):
            if not isinstance(row["model"], list) and row["model"] not in FLOORS:
                found.append({name: one[0] if isinstance(one, list) else one for name, one in row.items()})
    return pd.DataFrame(found)


def _rows_of(table: Table, spec: Fields) -> Iterator[Fields]:
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
