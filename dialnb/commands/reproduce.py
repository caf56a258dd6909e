"""`dialnb reproduce`: run the notebooks, render the report, say where it is."""

from __future__ import annotations

import argparse
from pathlib import Path

from dialnb.papers import SLUGS


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
    from dialnb.report import render
    from dialnb.runs.reproduce import reproduce

    runs = reproduce(options.profile, options.papers or SLUGS, options.out, options.notebooks)
    page = render(runs, options.profile, options.out / "report")
    counts = {status: sum(run.status == status for run in runs) for status in ("ran", "failed", "left out")}
    print(", ".join(f"{count} {status}" for status, count in counts.items()))
    print(f"Report: {page.absolute().as_uri()}")
    return 1 if counts["failed"] else 0
