"""`dialnb reproduce`: run the notebooks, render the report, say where it is."""

from __future__ import annotations

import argparse
from pathlib import Path

from dialnb.claims.papers import SLUGS


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the sub-command to the command line."""
    parser = subparsers.add_parser(
        "reproduce",
        help="run the papers' notebooks and render the report",
        description="Run the papers' notebooks in order through papermill, then render the report. A notebook that "
        "does not exist yet is left out with a line that says so; exit code 1 when a notebook fails.",
    )
    parser.add_argument("papers", nargs="*", metavar="PAPER", help=f"which papers (default: {' '.join(SLUGS)})")
    parser.add_argument("--profile", default="quick", choices=("smoke", "quick", "gpu", "paper"), help="default: quick")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder for the runs and the report")
    parser.add_argument("--notebooks", type=Path, help="folder of the notebooks (default: notebooks/ of the checkout)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run, render and summarise."""
    from dialnb.report import build
    from dialnb.runs.engine import Request, check, run_all
    from dialnb.runs.profiles import project

    root = project()
    requests = [Request(slug, options.profile, out=options.out) for slug in options.papers or SLUGS]
    for request in requests:
        check(request, root)
    runs = run_all(requests, root, options.notebooks)
    left_out = {run.slug: run.reason for run in runs if run.status == "left out"}
    page = build([run.notebook.parent for run in runs if run.notebook], options.out / "report", left_out)
    print(f"Report: {page.absolute().as_uri()}")
    return int(any(run.status == "failed" for run in runs))
