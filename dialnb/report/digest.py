"""The report in short, as Markdown that code hosts show: what ran, and every claim that was judged."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from dialnb.claims import MARKS, NOT_RUN, VERDICTS, interval_text, verdict_text
from dialnb.claims.papers import load_paper
from dialnb.report.gather import Group

TRUST = """\
Trust: encoder, trainings, share of the printed training (● enough, ○ not). A difference between trained models needs \
three trainings, and both models must be above chance and word overlap on the same text; most of the recorded runs \
trained each model once, from an encoder of our own. An earlier judge, which took draws and test items for replicates \
and knew no floors, called 39 claims of the papers held and 34 failed."""


def digest(groups: Iterable[Group], home: Path) -> str:
    """Papers with their verdicts, then the claims of each; links are relative to the folder ``home``."""
    parts, rows = [], []
    for group in (group for group in groups if group.runs):
        paper, judged = load_paper(group.slug), group.judged
        place = Path(os.path.relpath(group.folders[-1], home)).as_posix()
        counts = " | ".join(str(judged.counts[verdict]) for verdict in VERDICTS)
        rows.append(
            f"| [{paper.name}](#{paper.name.lower()}) | {group.profile} | {', '.join(group.encoders)} | {counts} |"
        )
        parts.append(_section(group, place, judged.to_dict()))
    head = ["# The recorded runs in short", "",
            "Written by `python -m tools.record`. The whole report, with every table, figure and interval, is a site "
            "that `dialnb report` renders from the same files.", "",
            TRUST, "",
            f"| paper | profile | encoder | {' | '.join(VERDICTS)} |",
            f"|---|---|---|{'---:|' * len(VERDICTS)}"]  # fmt: skip
    return "\n".join([*head, *rows, "", *parts])


def _section(group: Group, place: str, claims: list[dict]) -> str:
    """One paper: where its files are, the claims that were judged, and how many wait."""
    paper, run = load_paper(group.slug), group.runs[-1]
    kept = {path.stem for path in (group.folders[-1] / "tables").glob("*.md")}
    tables = [name for name in paper.tables if name in kept]
    linked = ", ".join(f"[{name}]({place}/tables/{name}.md)" for name in tables)
    lines = [f"## {paper.name}", "",
             f"[Executed notebook]({place}/notebook.ipynb), [provenance]({place}/run.json), tables: {linked}. "
             f"Took {run['seconds']:.0f} s, {str(run['updated'])[:10]}, commit {str(run['code']['commit'])[:7]}.", "",
             "| | trust | claim | where | ours, 95 % interval | |", "|---|---|---|---|---|---|"]  # fmt: skip
    for claim in (claim for claim in claims if claim["verdict"] != NOT_RUN):
        told = (claim["strength"], claim["statement"], claim["where"], interval_text(claim), claim["reason"])
        cells = " | ".join(text.replace("|", "\\|") for text in told)
        lines.append(f"| {MARKS[claim['verdict']]} {verdict_text(claim)} | {cells} |")
    waiting = sum(claim["verdict"] == NOT_RUN for claim in claims)
    rest = [f"{waiting} further claims were not run.", ""] if waiting else []
    return "\n".join([*lines, "", *rest])
