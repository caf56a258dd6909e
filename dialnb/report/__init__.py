"""The report: one static page that opens from disk, without network, with what ran beside what the papers printed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from dialnb.papers import SLUGS, Cell, Table, load_paper
from dialnb.runs.reproduce import NotebookRun

HERE = Path(__file__).parent


def render(runs: Sequence[NotebookRun], profile: str, folder: Path) -> Path:
    """Write `index.html` and its style sheet into `folder` and return the page's path.

    All five papers are listed; one that is not among `runs` shows as not asked for.
    """
    by_slug = {run.slug: run for run in runs}
    papers = [_paper_view(slug, by_slug.get(slug, NotebookRun(slug, "not asked for")), folder) for slug in SLUGS]
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["cell"] = format_cell
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    html = environment.get_template("index.html.j2").render(papers=papers, profile=profile, made=made)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(HERE / "style.css", folder / "style.css")
    page = folder / "index.html"
    page.write_text(html, encoding="utf-8")
    return page


def format_cell(value: Cell, digits: int = 0) -> str:
    """A printed value as text: results keep their paper's digits, counts get thousands separators, absent is a dash.

    >>> format_cell(97.0, digits=2), format_cell(892835), format_cell(None)
    ('97.00', '892,835', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.{digits}f}" if digits else f"{value:,g}"
    return f"{value:,}" if isinstance(value, int) else value


def _paper_view(slug: str, run: NotebookRun, folder: Path) -> dict[str, Any]:
    """What the template shows of one paper; links are relative, so that the whole folder can be moved."""
    paper = load_paper(slug)
    link = Path(os.path.relpath(run.notebook, folder)).as_posix() if run.notebook else None
    tables = [
        {"table": table, "digits": table.digits if table.kind == "results" else 0, "numeric": _numeric(table)}
        for table in paper.tables.values()
    ]
    return {"paper": paper, "run": run, "link": link, "tables": tables}


def _numeric(table: Table) -> list[bool]:
    """For each column, whether all its values are numbers (set flush right)."""
    return [all(not isinstance(row.values[i], str) for row in table.rows) for i in range(len(table.columns))]
