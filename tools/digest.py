"""The report in short, as Markdown that code hosts show: what ran, and every claim that was judged."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from dialnb.claims import MARKS, VERDICTS, interval_text, verdict_text
from dialnb.claims.papers import load_paper
from dialnb.report.gather import Group


def digest(groups: Iterable[Group], home: Path) -> str:
    """Papers with their verdicts, then the claims of each; links are relative to the folder ``home``."""
    papers = []
    for group in groups:
        if group.runs:
            paper, folder = load_paper(group.slug), group.runs[-1].folder
            tables = [name for name in paper.tables if (folder / "tables" / f"{name}.md").is_file()]
            place = Path(os.path.relpath(folder, home)).as_posix()
            counts = sorted({claim["train_seeds"] for claim in group.judged.to_dict() if claim["train_seeds"]})
            trainings = " to ".join(map(str, dict.fromkeys([*counts[:1], *counts[-1:]])))
            papers.append({"paper": paper, "group": group, "tables": tables, "place": place, "trainings": trainings})
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.globals |= {
        "MARKS": MARKS,
        "VERDICTS": VERDICTS,
        "interval_text": interval_text,
        "verdict_text": verdict_text,
    }
    text = Path(__file__).with_name("digest.md.j2").read_text(encoding="utf-8")
    return environment.from_string(text).render(papers=papers)
