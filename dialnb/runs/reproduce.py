"""Run the papers' notebooks with one profile: what `dialnb reproduce` and `make reproduce` do before the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dialnb.papers import SLUGS
from dialnb.runs.engine import NotebookRun, Request, check
from dialnb.runs.jobs import run_all
from dialnb.runs.profiles import project

__all__ = ["NotebookRun", "reproduce"]


def reproduce(
    profile: str = "quick",
    slugs: Sequence[str] = SLUGS,
    out: Path = Path("runs"),
    notebooks: Path | None = None,
) -> list[NotebookRun]:
    """Execute the notebooks of `slugs`; executed copies go to `out/<slug>-<profile>-seed1/notebook.ipynb`.

    A notebook that does not exist yet is left out with a line that says so; one that fails is kept as far as it got,
    and the others still run.
    """
    root = project()
    requests = [Request(slug, profile, out=out) for slug in slugs]
    for request in requests:
        check(request, root)
    return run_all(requests, root, notebooks)
